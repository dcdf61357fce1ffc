"""Fine-tune a model a little on texts it cannot have seen, and compare scores before and after (arXiv 2410.10880).

`fsd run --domain arxiv` runs offline on the embedded model and corpus. `--model` takes a model of your
own, `--data` texts of your own. Runs, figures and adapters go to MLflow (`fsd ui`).

Examples:
    fsd run --domain arxiv
    fsd run --data corpus.jsonl --model ./my-model --dry-run
    fsd run --config config.yaml --seed 43 --name "second seed" --json
"""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from fsd.config import Dtype, FSDConfig
from pipelines.command.cli import command
from pipelines.command.context import stage, stages
from pipelines.command.deliver import show
from pipelines.command.job import Job

if TYPE_CHECKING:
    from pipelines.experiment.experiment import Experiment

STAGES = {
    "data": "settings and texts",
    "model": "model",
    "finetuning": "fine-tuning",
    "scoring": "scoring",
    "placebo": "control model",
    "judging": "judging: intervals, blind classifier, calibration",
    "recording": "recording: figures, report, adapter",
}


def prepare(config: FSDConfig) -> Job:
    """Read and split the texts, and check the settings."""
    from pipelines.experiment.experiment import read

    experiment = read(config)
    return experiment.job(partial(run, experiment))


def run(experiment: "Experiment") -> None:
    """Fine-tune or reuse an adapter, score before and after, evaluate, record."""
    with stage("data"):
        experiment = experiment.fetched()
    experiment = experiment.with_adapter_texts()
    with stage("model"):
        from pipelines.experiment import registration

        model = experiment.open()
        language_model = model.language_model
        config = experiment.config
        # From here on as it is in effect, also for the control model.
        config = replace(config, model=replace(config.model, dtype=cast("Dtype", language_model.dtype)))
        experiment = experiment._replace(config=config)
        plan = experiment.prepare(model)
        # What the model cannot compute, its control need not.
        computed = experiment._replace(detectors=plan.detectors)
        control, remarks = computed.control()
    scored_beside = control.scored_beside() if control and experiment.trains(model) else nullcontext()
    with registration.start(computed, language_model, control) as tracked, scored_beside as beside:
        if not config.adapter or computed.adapting:
            with stage("finetuning"):
                computed.train(model, tracked)
        with stage("scoring"):
            scored = plan.score()
        of_control = None
        if control:
            with stage("placebo"):
                if beside:
                    # What comes of it is remembered, and errors of the other process come again below.
                    experiment.tried(model)
                    beside.exception()
                of_control = control.scores_of_control()
        if tracked is None:  # a process that only helps with training and scoring
            return
        with stage("judging"):
            results = experiment.results(scored, of_control, remarks + plan.remarks)
            results = experiment.with_power(results, model)
        with stage("recording"):
            report, version = registration.track(tracked, results, computed, model)
        tracked.log_metrics(stages().seconds)
        # Before the end of the run, which raises what could not be stored.
        show(report, tracked, version)


if __name__ == "__main__":
    command(FSDConfig, prepare, __doc__ or "", parallel=True, stages=STAGES)
