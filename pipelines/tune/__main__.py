"""Choose settings on the validation texts with Optuna, then open the test texts once, for winner and default.

`python -m pipelines.tune --domain arxiv` tunes the settings of every detector, base and FSD apart, on token statistics
that stand in memory: no trial asks a model. `--tune adapter` tunes how the adapter is trained. Studies are kept in
mlruns/optuna.db; the same command continues one that was interrupted, and started twice shares the work. The winner is
registered like the adapter of pipelines.fsd, which takes its settings by --settings-from.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING

from fsd.config import TuneConfig
from pipelines.common.cli import command

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.tracking import Run
    from pipelines.tune.job import Tuned


def main(config: TuneConfig) -> None:
    """Tune, open the test texts, compare, register."""
    from fsd import tracking
    from fsd.errors import UsageError
    from fsd.models import adapters, language_model
    from pipelines.common import datasets, experiment
    from pipelines.tune import detectors as _tuning_detectors
    from pipelines.tune.job import field_of, plan_of

    job = config.job
    plan_of(config)
    if config.tune == "detectors":
        _tuning_detectors.tunable(config)
    elif job.adapter:
        raise UsageError(f"adapter must not be given where it is to be tuned; got {job.adapter!r}")
    gathered = datasets.gather(job.data, job.model)
    parts, remarks = datasets.divide(gathered.documents, job.data, job.seed)
    field_of(config, parts, "")
    adapter = tracking.fetch_adapter(job.adapter) if job.adapter else None
    model = language_model.load(job.model)
    if adapter:
        adapters.attach(model, adapter)
        parts = datasets.trained_on(parts, job.adapter)
    field = field_of(config, parts, model.identity.fingerprint)
    tags = {"study": field.name, "tune": config.tune, "base_model": model.identity.id}
    with tracking.run(f"fsd-{job.data.domain}", f"tune {field.name}", params=_params(config), tags=tags) as run:
        if config.tune == "adapter":
            from pipelines.tune import adapter as _tuning_adapter

            tuned = _tuning_adapter.tune(config, field, model, run)
        else:
            if not adapter:
                experiment.train_adapter(model, parts.unseen, job, run)
            tuned = _tuning_detectors.tune(config, field, model)
        conclude(config, tuned, model, run, [*remarks, *tuned.remarks], field.name, gathered.sources)


def conclude(
    config: TuneConfig,
    tuned: "Tuned",
    model: "LanguageModel",
    run: "Run",
    remarks: list[str],
    study: str,
    sources: dict[str, str],
) -> None:
    """Compare winners and defaults on the test texts, and record and register the job with the winner's settings."""
    from fsd.data.near_duplicates import families
    from fsd.evaluation.results import judge
    from fsd.reporting import console
    from fsd.tuning import comparison as _tuning_verdict
    from pipelines.common import detection, experiment, run_log
    from pipelines.tune import run_log as _tuning_record

    test = tuned.parts.test
    gains = _tuning_verdict.open_test(
        tuned.winners,
        [bool(document.member) for document in test],
        families(test),
        tuned.default,
        tuned.tuned,
        objective=config.objective,
        seed=config.job.seed,
    )
    _tuning_record.log(run, tuned.trials, tuned.figures, _tuning_verdict.frame(gains))
    run.log_text(_tuning_record.SETTINGS, _tuning_record.settings_json(tuned.winners, {"study": study}))
    run.log_metrics(_tuning_verdict.metrics(gains))
    detectors = detection.load_detectors(tuned.job.detection)
    deviation = experiment.prepare(model, tuned.parts, detectors, tuned.job, tuned.scorers).score()
    placebo, placebo_remarks = experiment.plan_placebo(tuned.job, tuned.parts, detectors)
    results = judge(
        tuned.parts,
        deviation,
        placebo.deviation(tuned.parts) if placebo else None,
        detectors,
        remarks=[*remarks, *placebo_remarks],
        never_saw=experiment.never_saw(tuned.job, tuned.parts.test),
        seed=config.job.seed,
    )
    if config.objective == "auc" and config.tune == "detectors":  # the champion is chosen without the winner's bonus
        honest = {w.label.removesuffix(".fsd"): w.cross_validated for w in tuned.winners if w.label.endswith(".fsd")}
        results = results.with_validation_auc(honest)
    version = run_log.track(run, results, tuned.job, model, {}, sources)
    console.show(results)
    use = f"--settings-from {version.uri}" if config.tune == "detectors" else f"--adapter {version.uri}"
    notes = [*_tuning_verdict.remarks(gains), *remarks, f"registered as {version.uri}; pipelines.fsd {use}"]
    _tuning_verdict.show(gains, config.objective, notes)


def _params(config: TuneConfig) -> dict[str, object]:
    """Every setting under its flag's name."""
    values = asdict(config)
    job = values.pop("job")
    for group in ("data", "model", "training", "detection"):
        values |= job.pop(group)
    return {**values, **job}


if __name__ == "__main__":
    command(TuneConfig, main, __doc__ or "")
