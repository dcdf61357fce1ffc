"""The steps of `fsd tune`: its checks, the tuning, the comparison on the test texts, and what is recorded."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fsd.config import FSDConfig, TuneConfig, again
from fsd.errors import UsageError
from fsd.scores import Score
from fsd.tracking import Version
from fsd.tuning.objective import Winner, check_objective
from fsd.tuning.optuna_study import check_storage, compare_on_test, open_storage
from pipelines.command.context import stage
from pipelines.command.deliver import run_name, show, tracked_run
from pipelines.command.job import Job, Stated
from pipelines.experiment import detector_settings
from pipelines.experiment.experiment import Experiment, read
from pipelines.tune import adapter, detectors, report
from pipelines.tune.job import tuning_data


def prepare(config: TuneConfig) -> Job:
    """Read and split the texts, and check the settings; trials of an adapter train, those of detectors do not."""
    check_objective(config.objective)
    base_run = config.base_run
    trains = config.tune == "adapter"
    if not trains:
        detectors.tunable(config)
    elif base_run.adapter:
        raise UsageError(f"adapter must not be given where it is to be tuned; got {base_run.adapter!r}")
    experiment = read(base_run)
    if trains and not adapter.tunable(experiment.detectors):
        raise UsageError(
            "detectors of --tune adapter must not all need known members or a fine-tuned reference; got "
            f"{base_run.detection.detectors!r}"
        )
    config = replace(config, base_run=experiment.config)
    # Refuses impossible numbers; the texts of a published benchmark are not here yet.
    if experiment.texts_are_local:
        tuning_data(config, experiment.split.without_later(), "")
    job = experiment.job(partial(run, config, experiment))
    rounds = 1
    how = "per detector and score, in memory"
    if trains:
        # One more training, with the winner's settings: no trial keeps its adapter.
        rounds += config.trials
        how = "of fine-tuning; those that are stopped early take less"
    stated = Stated(f"at most {config.trials:,} {how}", {"at_most": config.trials})
    checks = [partial(check_storage, config.storage)]
    return replace(
        job, reads={**job.reads, "trials": stated}, writes=[config.storage, *job.writes], checks=checks, rounds=rounds
    )


def run(config: TuneConfig, experiment: Experiment) -> None:
    """Tune on validation, compare on the test texts, record and register."""
    with stage("model"):
        # They load PyTorch, for which a dry run need not wait.
        from pipelines.experiment import registration
        from pipelines.experiment.report import named

        base_run = config.base_run
        if not experiment.texts_are_local:
            experiment = experiment.fetched()
            # Refuses impossible numbers before a model is loaded; `prepare` did not have the texts of a benchmark.
            tuning_data(config, experiment.split.without_later(), "")
        open_storage(config.storage)
        model = experiment.open()
        language_model = model.language_model
        experiment = experiment.with_adapter_texts()
        data = tuning_data(config, experiment.split.without_later(), language_model.identity.fingerprint)
        # Both refuse before the tuning what would fail after it: a missing control model, texts that cannot be scored.
        control, _ = experiment.control()
        experiment.prepare(model)
    domain = base_run.data.domain
    title = run_name(
        base_run.model.model, base_run.data.places or (domain,), f"tune {config.tune} · seed {base_run.seed}"
    )
    tags = {
        "study": data.study,
        "tune": config.tune,
        "texts": named(experiment.sources),
        "base_model": language_model.identity.id,
    }
    params = vars(config) | registration.params(experiment, control)
    del params["base_run"]
    with tracked_run(config, f"fsd-{domain}", title, params=params, tags=tags) as tracked:
        with stage("tuning"):
            kind = adapter if config.tune == "adapter" else detectors
            tuned = kind.tune(config, data, model, tracked)
            test = tuned.split.test
            members = test.members.tolist()
            gains = compare_on_test(
                tuned.winners,
                members,
                test.family.tolist(),
                tuned.default,
                tuned.tuned,
                objective=config.objective,
                seed=base_run.seed,
            )
            report.track(tracked, tuned, gains, data, config.storage)
        # The later texts, which took no part in the tuning, are scored from here on.
        chosen = experiment._replace(
            config=tuned.run_config,
            detectors=detector_settings.load_detectors(tuned.run_config.detection),
            split=experiment.split.replace(unseen=tuned.split.unseen),
        )
        with stage("scoring"):
            control, control_remarks = chosen.control()
            plan = chosen.prepare(tuned.model)
            chosen.adapt_reference(tuned.model)
            scored = plan.score()
            of_control = control.scores_of_control() if control else None
        with stage("judging"):
            remarks = [*tuned.remarks, *control_remarks]
            results = chosen.results(
                scored, of_control, remarks, cross_validated=_cross_validated(config, tuned.winners)
            )
            results = chosen.with_power(results, tuned.model)
        with stage("recording"):
            with_gains = partial(report.with_gains, gains=gains, objective=config.objective)
            summary, version = registration.track(
                tracked, results, chosen, tuned.model, study=data.study, edit=with_gains
            )
        show(replace(summary, next=_next_commands(config, version)), tracked, version)


def _cross_validated(config: TuneConfig, winners: Sequence[Winner]) -> dict[Score, float]:
    """Score → AUC by which versions are compared, without optimism of the selection; empty for other objectives."""
    if config.tune == "adapter" or config.objective != "auc":
        return {}
    return {Score.parse(winner.task): winner.validation_chosen_elsewhere for winner in winners}


def _next_commands(config: TuneConfig, version: Version | None) -> list[str]:
    if version is None:
        return []
    flag = "--settings-from" if config.tune == "detectors" else "--adapter"
    return [f"{again('run', [], config.base_run, FSDConfig())} {flag} {version.uri}"]
