"""Fine-tune a model a little on texts it cannot have seen, and compare scores before and after (arXiv 2410.10880).

`fsd run --domain arxiv` runs offline on the embedded model and corpus. `--model` takes a model of your
own, `--data` texts of your own. Runs, figures and adapters go to MLflow (`fsd ui`).

Examples:
    fsd run --domain arxiv
    fsd run --data corpus.jsonl --model ./my-model --dry-run
    fsd run --config config.yaml --seed 43 --name "second seed" --json
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from fsd.config import Dtype, FSDConfig
from pipelines.command.cli import command
from pipelines.command.context import stage, stages
from pipelines.command.deliver import show
from pipelines.command.job import Job

if TYPE_CHECKING:
    from pipelines.experiment.inputs import Inputs

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
    from pipelines.experiment import experiment
    from pipelines.experiment.inputs import read

    inputs = read(config)
    return experiment.job(partial(run, inputs), inputs)


def run(inputs: "Inputs") -> None:
    """Fine-tune or reuse an adapter, score before and after, evaluate, record."""
    from pipelines.experiment import experiment
    from pipelines.experiment.inputs import with_adapter_texts

    with stage("data"):
        inputs = inputs.fetched()
    config = inputs.config
    detectors = inputs.detectors
    split = with_adapter_texts(inputs.split, config.adapter)
    with stage("model"):
        from pipelines.experiment import registration

        model = experiment.open_with_adapter(config)
        language_model = model.language_model
        # From here on as it is in effect, also for the control model.
        config = replace(config, model=replace(config.model, dtype=cast("Dtype", language_model.dtype)))
        plan = experiment.prepare(model, split, detectors, config)
        placebo, placebo_remarks = experiment.plan_control(config, split, plan.detectors)
    with registration.start(config, language_model, inputs.sources, plan.detectors, placebo) as tracked:
        if not config.adapter:
            with stage("finetuning"):
                experiment.train_adapter(language_model, split.unseen, config, tracked)
        with stage("scoring"):
            scored = plan.score()
        control = None
        if placebo:
            with stage("placebo"):
                control = placebo.score(split)
        if tracked is None:  # a process that only helps with training and scoring
            return
        with stage("judging"):
            inputs = inputs._replace(config=config)
            remarks = placebo_remarks + plan.remarks
            results = experiment.compute_results(inputs, split, scored, control, remarks=remarks)
            results = experiment.with_power(results, model, config)
        with stage("recording"):
            report, version = registration.track(tracked, results, inputs, language_model)
        tracked.log_metrics(stages().seconds)
        # Before the end of the run, which raises what could not be stored.
        show(report, tracked, version)


if __name__ == "__main__":
    command(FSDConfig, prepare, __doc__ or "", parallel=True, stages=STAGES)
