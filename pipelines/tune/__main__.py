"""Choose settings on the validation texts with Optuna, then compare them with the defaults once on the test texts.

`python -m pipelines.tune --domain arxiv` tunes the settings of every detector, for base and FSD separately, on token
statistics in memory: no trial makes a forward pass. `--tune adapter` tunes the training of the adapter. Studies are
stored in mlruns/optuna.db; the same command continues an interrupted study, and several commands share its trials. The
winner is registered like the adapter of pipelines.fsd, which takes its settings by --settings-from.

Examples:
    fsd tune --domain arxiv
    fsd tune --tune adapter --trials 20 --dry-run
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from fsd.config import TuneConfig, flags
from pipelines.common.cli import command

if TYPE_CHECKING:
    from pipelines.common.dry_run import Plan


def main(config: TuneConfig) -> None:
    """Tune on validation, compare on the test texts, record and register."""
    from fsd import tracking
    from fsd.data.near_duplicates import families
    from fsd.data.splitting import without_later
    from fsd.errors import UsageError
    from fsd.evaluation.results import judge
    from fsd.tuning import comparison
    from fsd.tuning.optuna_storage import open_storage
    from pipelines.common import datasets, detection, experiment, outcome, output, run_log
    from pipelines.tune import adapter, detectors
    from pipelines.tune import run_log as tuning_log
    from pipelines.tune.job import tuning_data

    config = replace(config, job=datasets.with_embedded_model(config.job))
    job = config.job
    if config.tune == "detectors":
        detectors.tunable(config)
    elif job.adapter:
        raise UsageError(f"adapter must not be given where it is to be tuned; got {job.adapter!r}")
    labelled = datasets.load_texts(job.data, job.model)
    split, remarks = datasets.split_texts(labelled.documents, job.data, job.seed)
    tuning_data(config, without_later(split), "")  # impossible numbers are refused before a model is loaded
    output.check_space(document.text for document in labelled.documents)
    open_storage(config.storage)
    tracking.check_store()
    model = experiment.load_model(job)
    split = datasets.with_adapter_texts(split, job.adapter)
    data = tuning_data(config, without_later(split), model.identity.fingerprint)
    experiment.plan_placebo(job, split, detection.load_detectors(job.detection))  # refuses a missing control model
    tags = {
        "study": data.study,
        "tune": config.tune,
        "texts": run_log.named(labelled.sources),
        "base_model": model.identity.id,
    }
    with outcome.tracked_run(
        config, f"fsd-{job.data.domain}", tuning_log.name(config), params=flags(config), tags=tags
    ) as run:
        tune = detectors.tune if config.tune == "detectors" else adapter.tune
        tuned = tune(config, data, model, run)
        job, split = tuned.job, split._replace(unseen=tuned.split.unseen)
        labels = [bool(document.member) for document in tuned.split.test]
        gains = comparison.compare_on_test(
            tuned.winners,
            labels,
            families(tuned.split.test),
            tuned.default,
            tuned.tuned,
            objective=config.objective,
            seed=job.seed,
        )
        tuning_log.track(run, tuned, gains, data.study)
        chosen = detection.load_detectors(job.detection)
        placebo, placebo_remarks = experiment.plan_placebo(job, split, chosen)
        results = judge(
            split,
            experiment.prepare(model, split, chosen, job, tuned.scorers).score(),
            placebo.deviation(split, run) if placebo else None,
            chosen,
            remarks=[*labelled.remarks, *remarks, *tuned.remarks, *placebo_remarks],
            seed=job.seed,
            repeats=job.audit_repeats,
            cross_validated={  # by which versions are compared, without selection optimism
                winner.label.removesuffix(".fsd"): winner.cross_validated
                for winner in tuned.winners
                if config.tune == "detectors" and config.objective == "auc" and winner.label.endswith(".fsd")
            },
        )
        results = replace(experiment.with_power(results, model, job), never_saw=experiment.never_saw(job, split.test))
        version = run_log.track(run, results, job, chosen, model, {}, labelled.sources, study=data.study)
        flag = "--settings-from" if config.tune == "detectors" else "--adapter"
        notes = [
            *comparison.remarks(gains),
            *labelled.remarks,
            *remarks,
            *tuned.remarks,
            *([f"registered as {version.uri}; to use it: pipelines.fsd {flag} {version.uri}"] if version else []),
        ]
        found = outcome.Outcome(
            results.conclusions[0],
            {"results": results.table, "tuning": comparison.frame(gains)},
            [*results.conclusions, *notes],
            version=version,
            report=outcome.REPORT,
        )
        outcome.show(found, run, lambda: tuning_log.show(results, gains, notes, config.objective))


def plan(config: TuneConfig) -> "Plan":
    """What would be tuned: of detectors no trial reads a text, of an adapter each trains one."""
    from pipelines.common import fsd_plan
    from pipelines.tune import detectors

    if config.tune == "detectors":
        detectors.tunable(config)
    job = fsd_plan.plan(config.job)
    many = config.tune == "adapter"
    trials = f"at most {config.trials:,} {'of fine-tuning' if many else 'per detector and score, in memory'}"
    return replace(
        job,
        reads={**job.reads, "trials": trials},
        rounds=config.trials + 1 if many else 1,
        writes=[config.storage, *job.writes],
        notes=[*job.notes, *(["trials that are stopped early take less"] if many else [])],
    )


if __name__ == "__main__":
    command(TuneConfig, main, __doc__ or "", plan=plan)
