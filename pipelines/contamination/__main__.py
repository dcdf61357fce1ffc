"""Was a whole data set in the training data? Four tests, one p-value each, corrected for their number.

`python -m pipelines.contamination FILE --model MODEL --known FILE` tests whether the model prefers the file's order to
random ones, and compares the file with texts known to be non-members, of the same source, time and kind. Through an API
(--model api:NAME) all but the test that fine-tunes the model.

Examples:
    fsd contamination questions.jsonl --model ./my-model --known others.jsonl
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from fsd.config import AdapterConfig, APIConfig, Columns, DetectorConfig, ModelConfig, OptionalPath, OptionalPaths
from pipelines.common.cli import command
from pipelines.common.job import Job

if TYPE_CHECKING:
    from fsd.data.documents import Document
    from fsd.evaluation.intervals import Estimate
    from fsd.views import Detector
    from pipelines.contamination.outcomes import Outcome


@dataclass(frozen=True)
class ContaminationConfig:
    """Data set, known non-members, model and tests."""

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE [FILE ...]", help_behavior_hint="")]
    """The data set: JSONL, CSV or Parquet with a column `text`, in the order in which it was published."""
    known: OptionalPaths = ()
    """Texts known to be non-members, of the same source, time and kind; without them only the order is tested."""
    model: ModelConfig = field(default_factory=ModelConfig)
    api: APIConfig = field(default_factory=APIConfig)
    training: AdapterConfig = field(default_factory=lambda: AdapterConfig(epochs=1))
    detection: DetectorConfig = field(default_factory=DetectorConfig)
    columns: Columns = ""
    """Column names that differ from the defaults, e.g. text=question."""
    shard: int = 5
    """Consecutive texts per shard of the test of order."""
    orders: int = 19
    """Random orders per shard."""
    sets: int = 19
    """Sets of known non-members among which the data set is ranked; the smallest p-value is 1 / (sets + 1)."""
    level: float = 0.05
    """Significance level of the conclusion."""
    answers: OptionalPath = None
    """File that keeps the answers of an API, so that an interrupted job goes on. Default: FILE.answers."""
    domain: str = "contamination"
    """Part of the experiment's name, fsd-<domain>."""
    seed: int = 42
    """Random seed for orders, sets, halves and fine-tuning."""


def prepare(config: ContaminationConfig) -> Job:
    """Read the texts and check them; the tests by sets of texts are counted roughly."""
    from fsd.data.near_duplicates import refuse_members, refuse_related
    from fsd.data.readers import parse_columns, read_files
    from fsd.errors import UsageError
    from fsd.evidence.dataset_tests import equal_sets
    from pipelines.common import job
    from pipelines.common.detection import cheap, load_detectors
    from pipelines.contamination.outcomes import one_per_family

    if not 0 < config.level < 1:
        raise UsageError(f"level must be between 0 and 1; got {config.level:g}")
    for name in ("orders", "sets"):
        if getattr(config, name) < 1:
            raise UsageError(f"{name} must be at least 1; got {getattr(config, name)}")
    columns = parse_columns(config.columns)
    suspect = read_files(config.files, columns)
    known = read_files(config.known, columns) if config.known else []
    if len(suspect) < 2 * max(2, config.shard):
        raise UsageError(f"data must fill 2 shards of {config.shard} texts; got {len(suspect)} texts")
    if known:
        refuse_members(known)
        refuse_related(suspect, known)
        equal_sets(len(one_per_family(suspect)), len(one_per_family(known)), config.sets)
    detectors = [d for d in cheap(load_detectors(config.detection)) if not d.paired]
    if known and not detectors:
        raise UsageError("dataset inference must have a detector with a base score; got none")
    texts = [document.text for document in suspect]
    scored = [*texts, *(document.text for document in known)]
    passes = dict(job.passes(detectors, scored, config.model, states=("base",)))
    passes["base"] = passes.get("base", 0) + (config.orders + 1) * len(texts) + (2 * len(texts) if known else 0)
    return Job(
        partial(run, config, suspect, known, detectors),
        {
            "data set": job.files(config.files, len(texts)),
            **({"known non-members": job.files(config.known, len(known))} if known else {}),
        },
        config.model,
        texts=scored,
        passes=passes,
        trained=texts if known else (),
        training=config.training if known else None,
        experiment=f"fsd-{config.domain}",
        notes=["the tests by sets of texts are counted roughly"] if known else [],
    )


def run(
    config: ContaminationConfig,
    suspect: "Sequence[Document]",
    known: "Sequence[Document]",
    detectors: "Sequence[Detector]",
) -> None:
    """Open the model, run the tests, track and print."""
    from fsd.reporting.report import Column, Report, Section, Table, p_value
    from fsd.scoring.model import open_model
    from pipelines.common import outcome
    from pipelines.contamination import outcomes as tests

    name, texts = config.model.model, [document.text for document in suspect]
    model = open_model(config.model, config.api, config.answers or f"{config.files[0].rstrip('/')}.answers")
    computable: list[Detector] = []
    if known:
        strict = config.detection.detectors != "all"
        computable, _ = model.computable(detectors, texts, strict=strict, use="used in dataset inference")
    title = outcome.run_name(name, config.files, "contamination")
    tags = {"task": "contamination", "model": name}
    with outcome.tracked_run(config, f"fsd-{config.domain}", title, tags=tags) as tracked:
        base = model.scorers["base"]
        outcomes = [tests.order_test(texts, base, shard=config.shard, orders=config.orders, seed=config.seed)]
        blind = None
        if known:
            inference, blind = tests.inference_test(suspect, known, computable, model.scorers, seed=config.seed)
            ranks = tests.withheld(inference.reason) or tests.rank_tests(
                tests.one_per_family(suspect),
                tests.one_per_family(known),
                model.local,
                base,
                sets=config.sets,
                shots=config.detection.shots,
                training=config.training,
                seed=config.seed,
            )
            outcomes += [inference, *ranks]
        table = tests.frame(outcomes)
        lines = Table(
            [*zip(outcomes, table["p_holm"], strict=True)],
            [
                Column("test", lambda line: line[0].name),
                Column("statistic", lambda line: line[0].statistic, words=True),
                Column("compared with", lambda line: line[0].null, words=True),
                Column("p", lambda line: p_value(line[0].p)),
                Column("p (Holm)", lambda line: p_value(line[1])),
            ],
            caption="p is the chance of such a result, or a clearer one, if the model was not trained on the data set; "
            "p (Holm) is corrected for the number of tests.",
            title="tests of the data set as a whole",
            name="results",
            frame=table,
            kept=(0, 4, 3, 1),
        )
        report = Report(
            title="Was it in the training data? A data set as a whole",
            question=f"Was {name} trained on {', '.join(config.files)}?",
            findings=conclusions(outcomes, blind, config),
            sections=[Section("Tests", tables=[lines])],
            facts=[
                ("Model", name),
                ("Data set", ", ".join(config.files)),
                ("Known non-members", ", ".join(config.known) or "none"),
                ("Seed", str(config.seed)),
            ],
            changes=[
                "Known non-members of another period or kind than the data set make the tests beside them void."
                if config.known
                else "Tests beside known non-members of the same kind (--known) would show what the order alone cannot."
            ],
            score=f"p {p_value(min(tests.corrected(outcomes).values(), default=None))}",
            metrics={
                **{f"contamination_p/{o.name}": o.p for o in outcomes if o.p is not None},
                **({"audit/blind_auc": blind.value} if blind else {}),
            },
        )
        outcome.deliver(report, tracked)


def conclusions(outcomes: "Sequence[Outcome]", blind: "Estimate | None", config: ContaminationConfig) -> list[str]:
    """The results in sentences, most important first."""
    from fsd.reporting.report import p_value
    from pipelines.contamination.outcomes import ORDER, corrected

    holm = corrected(outcomes)
    shown = [name for name, p in holm.items() if p <= config.level]
    model = config.model.model
    if shown:
        values = ", ".join(f"{name} (p {p_value(holm[name])})" for name in shown)
        lines = [f"evidence that {model} was trained on this data set, by {values}, corrected for {len(holm)} tests"]
    else:
        lines = [f"no evidence that {model} was trained on this data set; this does not show that it was not"]
    lines.append(
        f"{ORDER} is exact if the texts could as well have been published in any other order: not if they are sorted"
    )
    if blind:
        lines.append(
            f"a blind classifier, which never sees the model, distinguishes the two sets with AUC {blind}; the other "
            "tests hold as far as they differ in nothing but membership"
        )
    elif not config.known:
        lines.append("without known non-members (--known) only the order was tested")
    return lines + [f"{o.name} has no p-value: {o.reason}" for o in outcomes if o.p is None]


if __name__ == "__main__":
    command(ContaminationConfig, prepare, __doc__ or "")
