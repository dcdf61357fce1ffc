"""Choose settings on the validation texts with Optuna, then compare them with the defaults once on the test texts.

`fsd tune --domain arxiv` tunes the settings of every detector, for base and FSD separately, on token
statistics in memory: no trial makes a forward pass. `--tune adapter` tunes the training of the adapter. Studies are
stored in mlruns/optuna.db; the same command continues an interrupted study, and several commands share its trials. The
winner is registered like the adapter of `fsd run`, which takes its settings by --settings-from.

Examples:
    fsd tune --domain arxiv
    fsd tune --tune adapter --trials 20 --dry-run
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fsd.config import TuneConfig
from fsd.scores import Score
from pipelines.common.cli import command
from pipelines.common.context import stage
from pipelines.common.deliver import run_name, show, tracked_run
from pipelines.common.job import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsd.tuning.objective import Winner
    from pipelines.common.inputs import Inputs

STAGES = {
    "data": "settings and texts",
    "model": "model",
    "tuning": "tuning: training and trials",
    "scoring": "scoring: test texts, control model",
    "judging": "judging: intervals, blind classifier, calibration",
    "recording": "recording: figures, report, adapter",
}


def prepare(config: TuneConfig) -> Job:
    """Read and split the texts, and check the settings; trials of an adapter train, those of detectors do not."""
    from fsd.errors import UsageError
    from pipelines.common import experiment
    from pipelines.common.inputs import read
    from pipelines.tune import detectors
    from pipelines.tune.job import tuning_data

    trains = config.tune == "adapter"
    if not trains:
        detectors.tunable(config)
    elif config.job.adapter:
        raise UsageError(f"adapter must not be given where it is to be tuned; got {config.job.adapter!r}")
    inputs = read(config.job)
    if trains and config.job.detection.named:
        for detector in inputs.detectors:
            if detector.needs_labels:
                raise UsageError(f"detectors of --tune adapter must not need known members; got {detector.name!r}")
    config = replace(config, job=inputs.config)
    # Refuses impossible numbers; the texts of a published benchmark are not here yet.
    if inputs.here:
        tuning_data(config, inputs.split.without_later(), "")
    job = experiment.job(partial(run, config, inputs), inputs)
    job = replace(job, writes=[config.storage, *job.writes])
    trials = f"at most {config.trials:,}"
    if not trains:
        return replace(
            job,
            reads={
                **job.reads,
                "trials": f"{trials} per detector and score, in memory",
            },
        )
    return replace(
        job,
        reads={**job.reads, "trials": f"{trials} of fine-tuning"},
        # One more training, with the winner's settings: no trial keeps its adapter.
        rounds=config.trials + 1,
        notes=[*job.notes, "trials that are stopped early take less"],
    )


def run(config: TuneConfig, inputs: "Inputs") -> None:
    """Tune on validation, compare on the test texts, record and register."""
    with stage("model"):
        from fsd.evaluation import sentences
        from fsd.evaluation.findings import as_findings
        from fsd.tuning.optuna_study import (
            compare_on_test,
            open_storage,
        )
        from pipelines.common import detector_settings, experiment, main_report, registration
        from pipelines.common.inputs import with_adapter_texts
        from pipelines.tune import adapter, detectors, report
        from pipelines.tune.job import tuning_data

        job = config.job
        if not inputs.here:
            inputs = inputs.fetched()
            # Refuses impossible numbers before a model is loaded; `prepare` did not have the texts of a benchmark.
            tuning_data(config, inputs.split.without_later(), "")
        open_storage(config.storage)
        model = experiment.open_model(job)
        language_model = model.language_model
        split = with_adapter_texts(inputs.split, job.adapter)
        data = tuning_data(config, split.without_later(), language_model.identity.fingerprint)
        # Both refuse before the tuning what would fail after it: a missing control model, texts that cannot be scored.
        control_model, _ = experiment.plan_control(job, split, inputs.detectors)
        experiment.prepare(model, split, inputs.detectors, job)
    tags = {
        "study": data.study,
        "tune": config.tune,
        "texts": main_report.named(inputs.sources),
        "base_model": language_model.identity.id,
    }
    title = run_name(
        job.model.model,
        job.data.data or (job.data.domain,),
        f"tune {config.tune} · seed {job.seed}",
    )
    params = {**vars(config), "job": None} | registration.params(job, inputs.detectors, inputs.sources, control_model)
    with tracked_run(
        config,
        f"fsd-{job.data.domain}",
        title,
        params=params,
        tags=tags,
    ) as tracked:
        with stage("tuning"):
            kind = adapter if config.tune == "adapter" else detectors
            tuned = kind.tune(config, data, model, tracked)
            job = tuned.job
            # The later texts, which took no part in the tuning, are scored from here on.
            split = split.replace(unseen=tuned.split.unseen)
            gains = compare_on_test(
                tuned.winners,
                tuned.split.test.members.tolist(),
                tuned.split.test.family.tolist(),
                tuned.default,
                tuned.tuned,
                objective=config.objective,
                seed=job.seed,
            )
            report.track(tracked, tuned, gains, data)
        with stage("scoring"):
            chosen = detector_settings.load_detectors(job.detection)
            placebo, placebo_remarks = experiment.plan_control(job, split, chosen)
            scored = experiment.prepare(tuned.model, split, chosen, job).score()
            control = placebo.score(split, tracked) if placebo else None
        with stage("judging"):
            results = experiment.compute_results(
                inputs._replace(config=job),
                language_model,
                split,
                scored,
                control,
                chosen,
                remarks=[*tuned.remarks, *placebo_remarks],
                cross_validated=_cross_validated(config, tuned.winners),
            )
        with stage("recording"):
            summary, version = registration.track(
                tracked,
                results,
                job,
                chosen,
                language_model,
                inputs.sources,
                study=data.study,
                edit=partial(
                    report.with_gains,
                    gains=gains,
                    objective=config.objective,
                ),
            )
        flag = "--settings-from" if config.tune == "detectors" else "--adapter"
        steps = [f"fsd run {flag} {version.uri}"] if version else []
        notes = [
            *sentences.conclusions(results),
            *report.remarks(gains),
            *inputs.remarks,
            *tuned.remarks,
        ]
        show(
            replace(summary, findings=as_findings(notes), next=steps),
            tracked,
            version,
        )


def _cross_validated(config: TuneConfig, winners: "Sequence[Winner]") -> dict[Score, float]:
    """Score → AUC by which versions are compared, without optimism of the selection; empty for other objectives."""
    if config.tune == "adapter" or config.objective != "auc":
        return {}
    return {Score.parse(winner.task): winner.validation_chosen_elsewhere for winner in winners}


if __name__ == "__main__":
    command(TuneConfig, prepare, __doc__ or "", stages=STAGES)
