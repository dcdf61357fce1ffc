"""Fine-tune a model a little on texts it cannot have seen, and compare scores before and after (arXiv 2410.10880).

`python -m pipelines.fsd --domain arxiv` runs offline on the embedded model and corpus. `--model` takes a model of your
own, `--data` texts of your own. Runs, figures and adapters go to MLflow (`make ui`).

Examples:
    fsd run --domain arxiv
    fsd run --data corpus.jsonl --model ./my-model --dry-run
    fsd run --config config.yaml --seed 43 --name "second seed" --json
"""

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from fsd.config import Dtype, FSDConfig
from pipelines.common.cli import command

if TYPE_CHECKING:
    from pipelines.common.dry_run import Plan


def main(config: FSDConfig) -> None:
    """Split, fine-tune or reuse an adapter, score before and after, evaluate, record."""
    from fsd import distributed, tracking
    from fsd.evaluation.results import judge
    from fsd.reporting import console
    from pipelines.common import datasets, detection, experiment, outcome, run_log
    from pipelines.common.output import check_space

    config = datasets.with_embedded_model(config)
    stages = run_log.Stages()
    with stages("data"):
        detectors = detection.load_detectors(config.detection)
        labelled = datasets.load_texts(config.data, config.model)
        split, remarks = datasets.split_texts(labelled.documents, config.data, config.seed)
        check_space(document.text for document in labelled.documents)
        distributed.from_main(tracking.check_store)
    with stages("model"):
        model = experiment.load_model(config)
        config = replace(config, model=replace(config.model, dtype=cast("Dtype", model.dtype)))
        split = datasets.with_adapter_texts(split, config.adapter)
        job = experiment.prepare(model, split, detectors, config)
        placebo, placebo_remarks = experiment.plan_placebo(config, split, job.detectors)
    with run_log.start(config, model.identity, labelled.sources, detectors) as run:
        if not config.adapter:
            with stages("finetuning"):
                experiment.train_adapter(model, split.unseen, config, run)
        with stages("scoring"):
            deviation = job.score()
        with stages("placebo"):
            control = placebo.deviation(split, run) if placebo else None
        if run is None:  # a process that only helps with training and scoring
            return
        with stages("judging"):
            results = judge(
                split,
                deviation,
                control,
                detectors,
                remarks=[*labelled.remarks, *remarks, *placebo_remarks, *job.remarks],
                seed=config.seed,
                repeats=config.audit_repeats,
            )
            results = replace(results, never_saw=experiment.never_saw(config, labelled.documents))
            results = experiment.with_power(results, model, config)
        version = run_log.track(run, results, config, detectors, model, stages.seconds, labelled.sources)
        found = outcome.Outcome(
            results.conclusions[0], {"results": results.table}, results.notes(), version=version, report=outcome.REPORT
        )
        # before the end of the run, which raises what could not be stored
        outcome.show(found, run, lambda: console.show(results))


def plan(config: FSDConfig) -> "Plan":
    """What the job would do."""
    from pipelines.common import fsd_plan

    return fsd_plan.plan(config)


if __name__ == "__main__":
    command(FSDConfig, main, __doc__ or "", plan=plan, parallel=True)
