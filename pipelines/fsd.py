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
from pipelines.common.cli import command
from pipelines.common.job import Job, show, stage, stages

if TYPE_CHECKING:
    from pipelines.common.experiment import Inputs


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
    from pipelines.common import experiment

    inputs = experiment.read(config)
    return experiment.job(partial(run, inputs), inputs)


def run(inputs: "Inputs") -> None:
    """Fine-tune or reuse an adapter, score before and after, evaluate, record."""
    with stage("data"):
        inputs = inputs.fetched()
    config, detectors = inputs.config, inputs.detectors
    with stage("model"):
        from pipelines.common import experiment, run_log

        model = experiment.load_model(config)
        config = replace(config, model=replace(config.model, dtype=cast("Dtype", model.dtype)))
        split = experiment.with_adapter_texts(inputs.split, config.adapter)
        job = experiment.prepare(model, split, detectors, config)
        placebo, placebo_remarks = experiment.plan_placebo(config, split, job.detectors)
    with run_log.start(config, model, inputs.sources, job.detectors, placebo) as tracked:
        if not config.adapter:
            with stage("finetuning"):
                experiment.train_adapter(model, split.unseen, config, tracked)
        with stage("scoring"):
            deviation = job.score()
        with stage("placebo"):
            control = placebo.deviation(split, tracked) if placebo else None
        if tracked is None:  # a process that only helps with training and scoring
            return
        with stage("judging"):
            inputs, remarks = inputs._replace(config=config), [*placebo_remarks, *job.remarks]
            results = experiment.judge(inputs, model, split, deviation, control, detectors, remarks=remarks)
        with stage("recording"):
            report, version = run_log.track(tracked, results, config, detectors, model, inputs.sources)
        tracked.log_metrics(stages().seconds)
        # before the end of the run, which raises what could not be stored
        show(report, tracked, version)


if __name__ == "__main__":
    command(FSDConfig, prepare, __doc__ or "", parallel=True, stages=STAGES)
