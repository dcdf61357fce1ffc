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
from pipelines.common.cli import command
from pipelines.common.job import Job, run_name, show, stage, tracked_run

if TYPE_CHECKING:
    from pipelines.common.experiment import Inputs

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
    from fsd.data.splitting import without_later
    from fsd.errors import UsageError
    from pipelines.common import experiment
    from pipelines.tune import detectors
    from pipelines.tune.job import tuning_data

    many = config.tune == "adapter"
    if not many:
        detectors.tunable(config)
    elif config.job.adapter:
        raise UsageError(f"adapter must not be given where it is to be tuned; got {config.job.adapter!r}")
    inputs = experiment.read(config.job)
    if many and config.job.detection.named and (needing := [d.name for d in inputs.detectors if d.labelled]):
        raise UsageError(f"detectors of --tune adapter must not need known members; got {needing[0]!r}")
    config = replace(config, job=inputs.config)
    if inputs.here:
        tuning_data(config, without_later(inputs.split), "")
    job = experiment.job(partial(run, config, inputs), inputs)
    trials = f"at most {config.trials:,} {'of fine-tuning' if many else 'per detector and score, in memory'}"
    return replace(
        job,
        reads={**job.reads, "trials": trials},
        rounds=config.trials + 1 if many else 1,
        writes=[config.storage, *job.writes],
        notes=[*job.notes, *(["trials that are stopped early take less"] if many else [])],
    )


def run(config: TuneConfig, inputs: "Inputs") -> None:
    """Tune on validation, compare on the test texts, record and register."""
    with stage("model"):
        from fsd.data.near_duplicates import families
        from fsd.data.splitting import without_later
        from fsd.evaluation import sentences
        from fsd.tuning.optuna_study import compare_on_test, open_storage
        from pipelines.common import experiment, run_log
        from pipelines.tune import adapter, detectors, report
        from pipelines.tune.job import tuning_data

        job = config.job
        if not inputs.here:
            inputs = inputs.fetched()
            tuning_data(config, without_later(inputs.split), "")  # refuses impossible numbers before a model is loaded
        open_storage(config.storage)
        model = experiment.load_model(job)
        split = experiment.with_adapter_texts(inputs.split, job.adapter)
        data = tuning_data(config, without_later(split), model.identity.fingerprint)
        control_model, _ = experiment.plan_placebo(job, split, inputs.detectors)  # refuses a missing control model
        experiment.prepare(model, split, inputs.detectors, job)  # and what cannot be trained or scored
    tags = {
        "study": data.study,
        "tune": config.tune,
        "texts": run_log.named(inputs.sources),
        "base_model": model.identity.id,
    }
    title = run_name(job.model.model, job.data.data or (job.data.domain,), f"tune {config.tune} · seed {job.seed}")
    params = {**vars(config), "job": None} | run_log.params(job, inputs.detectors, inputs.sources, control_model)
    with tracked_run(config, f"fsd-{job.data.domain}", title, params=params, tags=tags) as tracked:
        with stage("tuning"):
            tuned = (detectors if config.tune == "detectors" else adapter).tune(config, data, model, tracked)
            job, split = tuned.job, split._replace(unseen=tuned.split.unseen)
            labels = [bool(document.member) for document in tuned.split.test]
            gains = compare_on_test(
                tuned.winners,
                labels,
                families(tuned.split.test),
                tuned.default,
                tuned.tuned,
                objective=config.objective,
                seed=job.seed,
            )
            report.track(tracked, tuned, gains, data)
        with stage("scoring"):
            chosen = experiment.load_detectors(job.detection)
            placebo, placebo_remarks = experiment.plan_placebo(job, split, chosen)
            deviation = experiment.prepare(model, split, chosen, job, tuned.scorers).score()
            control = placebo.deviation(split, tracked) if placebo else None
        with stage("judging"):
            results = experiment.judge(
                inputs._replace(config=job),
                model,
                split,
                deviation,
                control,
                chosen,
                remarks=[*tuned.remarks, *placebo_remarks],
                cross_validated={  # by which versions are compared, without selection optimism
                    winner.task.removesuffix(".fsd"): winner.validation_chosen_elsewhere
                    for winner in tuned.winners
                    if config.tune == "detectors" and config.objective == "auc" and winner.task.endswith(".fsd")
                },
            )
        with stage("recording"):
            found, version = run_log.track(
                tracked,
                results,
                job,
                chosen,
                model,
                inputs.sources,
                study=data.study,
                edit=partial(report.with_gains, gains=gains, objective=config.objective),
            )
        flag = "--settings-from" if config.tune == "detectors" else "--adapter"
        notes = [*sentences.conclusions(results), *report.remarks(gains), *inputs.remarks, *tuned.remarks]
        show(
            replace(found, findings=notes, next=[f"fsd run {flag} {version.uri}"] if version else []), tracked, version
        )


if __name__ == "__main__":
    command(TuneConfig, prepare, __doc__ or "", stages=STAGES)
