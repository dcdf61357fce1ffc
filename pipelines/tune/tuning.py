"""The steps of `fsd tune`: its checks, the tuning, the comparison on the test texts, and what is recorded."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fsd.config import FSDConfig, TuneConfig, again
from fsd.errors import UsageError
from fsd.scores import Score
from fsd.tracking import Version
from fsd.tuning.objective import Winner
from fsd.tuning.optuna_study import check_storage, compare_on_test, open_storage
from pipelines.command.context import stage
from pipelines.command.deliver import run_name, show, tracked_run
from pipelines.command.job import Job, Stated
from pipelines.experiment import detector_settings, experiment
from pipelines.experiment.inputs import Inputs, read, with_adapter_texts
from pipelines.tune import adapter, detectors, report
from pipelines.tune.job import tuning_data


def prepare(config: TuneConfig) -> Job:
    """Read and split the texts, and check the settings; trials of an adapter train, those of detectors do not."""
    base_run = config.base_run
    trains = config.tune == "adapter"
    if not trains:
        detectors.tunable(config)
    elif base_run.adapter:
        raise UsageError(f"adapter must not be given where it is to be tuned; got {base_run.adapter!r}")
    inputs = read(base_run)
    if trains and base_run.detection.named:
        for detector in inputs.detectors:
            if detector.needs_labels:
                raise UsageError(f"detectors of --tune adapter must not need known members; got {detector.name!r}")
    config = replace(config, base_run=inputs.config)
    # Refuses impossible numbers; the texts of a published benchmark are not here yet.
    if inputs.texts_are_local:
        tuning_data(config, inputs.split.without_later(), "")
    job = experiment.job(partial(run, config, inputs), inputs)
    trials = f"at most {config.trials:,}"
    rounds = 1
    notes = job.notes
    if trains:
        trials += " of fine-tuning"
        # One more training, with the winner's settings: no trial keeps its adapter.
        rounds += config.trials
        notes = [*notes, "trials that are stopped early take less"]
    else:
        trials += " per detector and score, in memory"
    checks = [partial(check_storage, config.storage)]
    stated = Stated(trials, {"at_most": config.trials})
    return replace(
        job,
        reads={**job.reads, "trials": stated},
        writes=[config.storage, *job.writes],
        checks=checks,
        rounds=rounds,
        notes=notes,
    )


def run(config: TuneConfig, inputs: Inputs) -> None:
    """Tune on validation, compare on the test texts, record and register."""
    with stage("model"):
        # They load PyTorch, for which a dry run need not wait.
        from pipelines.experiment import registration
        from pipelines.experiment.report import named

        base_run = config.base_run
        if not inputs.texts_are_local:
            inputs = inputs.fetched()
        open_storage(config.storage)
        model = experiment.open_with_adapter(base_run)
        language_model = model.language_model
        split = with_adapter_texts(inputs.split, base_run.adapter)
        data = tuning_data(config, split.without_later(), language_model.identity.fingerprint)
        # Both refuse before the tuning what would fail after it: a missing control model, texts that cannot be scored.
        control_model, _ = experiment.plan_control(base_run, split, inputs.detectors)
        experiment.prepare(model, split, inputs.detectors, base_run)
    domain = base_run.data.domain
    title = run_name(
        base_run.model.model, base_run.data.places or (domain,), f"tune {config.tune} · seed {base_run.seed}"
    )
    tags = {
        "study": data.study,
        "tune": config.tune,
        "texts": named(inputs.sources),
        "base_model": language_model.identity.id,
    }
    params = vars(config) | registration.params(base_run, inputs.detectors, inputs.sources, control_model)
    del params["base_run"]
    with tracked_run(config, f"fsd-{domain}", title, params=params, tags=tags) as tracked:
        with stage("tuning"):
            kind = adapter if config.tune == "adapter" else detectors
            tuned = kind.tune(config, data, model, tracked)
            test = tuned.split.test
            gains = compare_on_test(
                tuned.winners,
                test.members.tolist(),
                test.family.tolist(),
                tuned.default,
                tuned.tuned,
                objective=config.objective,
                seed=base_run.seed,
            )
            report.track(tracked, tuned, gains, data)
        run_config = tuned.run_config
        # The later texts, which took no part in the tuning, are scored from here on.
        split = split.replace(unseen=tuned.split.unseen)
        with stage("scoring"):
            chosen = detector_settings.load_detectors(run_config.detection)
            placebo, placebo_remarks = experiment.plan_control(run_config, split, chosen)
            scored = experiment.prepare(tuned.model, split, chosen, run_config).score()
            control = placebo.score(split) if placebo else None
        with stage("judging"):
            inputs = inputs._replace(config=run_config, detectors=chosen)
            results = experiment.compute_results(
                inputs,
                split,
                scored,
                control,
                remarks=[*tuned.remarks, *placebo_remarks],
                cross_validated=_cross_validated(config, tuned.winners),
            )
            results = experiment.with_power(results, tuned.model, run_config)
        with stage("recording"):
            with_gains = partial(report.with_gains, gains=gains, objective=config.objective)
            summary, version = registration.track(
                tracked, results, inputs, language_model, study=data.study, edit=with_gains
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
