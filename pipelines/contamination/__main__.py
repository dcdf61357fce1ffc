"""Was a whole data set in the training data? Four tests, one p-value each, corrected for their number.

`python -m pipelines.contamination FILE --model MODEL --known FILE` tests whether the model prefers the file's order to
random ones, and compares the file with texts known to be non-members, of the same source, time and kind. Through an API
(--model api:NAME) all but the test that fine-tunes the model.

Examples:
    fsd contamination questions.jsonl --model ./my-model --known others.jsonl
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from fsd.config import (
    AdapterConfig,
    APIConfig,
    Columns,
    DetectorConfig,
    ModelConfig,
    OptionalPath,
    OptionalPaths,
    flags,
)
from pipelines.common.cli import command

if TYPE_CHECKING:
    from fsd.evaluation.intervals import Estimate
    from fsd.models.language_model import LanguageModel
    from fsd.token_stats import Scorer
    from fsd.tracking import Run
    from pipelines.common.dry_run import Plan
    from pipelines.contamination.outcomes import Outcome

HEADINGS = ["test", "statistic", "compared with", "p", "p (Holm)"]


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


def main(config: ContaminationConfig) -> None:
    """Read the texts, check them, run the tests, track and print."""
    from fsd import tracking
    from fsd.data.near_duplicates import refuse_members, refuse_related
    from fsd.data.readers import parse_columns, read_files
    from fsd.errors import UsageError
    from fsd.evidence.dataset_tests import equal_sets
    from pipelines.common import outcome
    from pipelines.common.detection import cheap, load_detectors
    from pipelines.common.report import run_name
    from pipelines.contamination import outcomes as tests

    if not 0 < config.level < 1:
        raise UsageError(f"level must be between 0 and 1; got {config.level:g}")
    columns = parse_columns(config.columns)
    suspect = read_files(config.files, columns)
    known = read_files(config.known, columns) if config.known else []
    if len(suspect) < 2 * max(2, config.shard):
        raise UsageError(f"data must fill 2 shards of {config.shard} texts; got {len(suspect)} texts")
    independent = tests.one_per_family(suspect), tests.one_per_family(known)
    if known:
        refuse_members(known)
        refuse_related(suspect, known)
        equal_sets(len(independent[0]), len(independent[1]), config.sets)
    detectors = [d for d in cheap(load_detectors(config.detection)) if not d.paired]
    tracking.check_store()
    model, scorers = build_scorers(config)
    if known:
        tests.check_detectors(detectors, [d.text for d in suspect], scorers, strict=config.detection.detectors != "all")
    tags = {"task": "contamination", "model": config.model.model}
    name = run_name(config.model.model, config.files, "contamination")
    with outcome.tracked_run(config, f"fsd-{config.domain}", name, params=flags(config), tags=tags) as run:
        texts = [document.text for document in suspect]
        outcomes = [
            tests.order_test(texts, scorers["base"], shard=config.shard, orders=config.orders, seed=config.seed)
        ]
        blind = None
        if known:
            inference, blind = tests.inference_test(suspect, known, detectors, scorers, seed=config.seed)
            ranks = tests.withheld(inference.reason) or tests.rank_tests(
                *independent,
                model,
                scorers["base"],
                sets=config.sets,
                shots=config.detection.shots,
                training=config.training,
                seed=config.seed,
            )
            outcomes += [inference, *ranks]
        run.log_metrics({f"contamination_p/{o.name}": o.p for o in outcomes if o.p is not None})
        if blind:
            run.log_metrics({"audit/blind_auc": blind.value})
        record(run, outcomes, blind, config)
        notes = conclusions(outcomes, blind, config)
        found = outcome.Outcome(notes[0], {"results": tests.frame(outcomes)}, notes, report=outcome.REPORT)
        outcome.show(found, run, lambda: show(outcomes, notes))


def build_scorers(config: ContaminationConfig) -> "tuple[LanguageModel | None, dict[str, Scorer]]":
    """The local model and its scorers without an adapter, or None and the scorers of an API whose answers are kept.

    Raises:
        UsageError: if the model cannot be loaded, or an API's settings are invalid.
    """
    from fsd.models import language_model
    from fsd.scoring import scorers
    from fsd.scoring.api.scorer import API, api_scorers
    from fsd.scoring.cache import SQLiteStore

    if config.model.model.startswith(API):
        path = Path(config.answers or f"{config.files[0].rstrip('/')}.answers")
        return None, api_scorers(config.model, config.api, SQLiteStore(path, limit=None, required=True))
    model = language_model.load(config.model)
    built = scorers.build_scorers(model, config.model)
    return model, {name: scorer for name, scorer in built.items() if name != "tuned"}


def plan(config: ContaminationConfig) -> "Plan":
    """What would be scored and trained, roughly: the tests read the texts in random orders and sets."""
    from fsd.data.readers import parse_columns, read_files
    from pipelines.common import dry_run
    from pipelines.common.detection import cheap, load_detectors

    columns = parse_columns(config.columns)
    texts = [document.text for document in read_files(config.files, columns)]
    known = [document.text for document in (read_files(config.known, columns) if config.known else [])]
    reads = {"data set": dry_run.files(config.files, len(texts))}
    if known:
        reads["known non-members"] = dry_run.files(config.known, len(known))
    detectors = [d for d in cheap(load_detectors(config.detection)) if not d.paired]
    passes = dict(dry_run.passes(detectors, [*texts, *known], config.model, states=("base",)))
    passes["base"] = passes.get("base", 0) + (config.orders + 1) * len(texts) + (2 * len(texts) if known else 0)
    return dry_run.Plan(
        reads,
        config.model,
        texts=[*texts, *known],
        passes=passes,
        trained=texts if known else (),
        training=config.training if known else None,
        writes=dry_run.tracked(f"fsd-{config.domain}"),
        notes=["the tests by sets of texts are counted roughly"] if known else [],
    )


def rows(outcomes: "Sequence[Outcome]") -> list[list[str]]:
    """The cells of the table, see `HEADINGS`."""
    from fsd.reporting.html import p_shown
    from pipelines.contamination.outcomes import corrected

    holm = corrected(outcomes)
    return [[o.name, o.statistic, o.null, p_shown(o.p), p_shown(holm.get(o.name))] for o in outcomes]


def conclusions(outcomes: "Sequence[Outcome]", blind: "Estimate | None", config: ContaminationConfig) -> list[str]:
    """The results in sentences, most important first."""
    from fsd.reporting.html import p_shown
    from pipelines.contamination.outcomes import ORDER, corrected

    holm = corrected(outcomes)
    shown = [name for name, p in holm.items() if p <= config.level]
    model = config.model.model
    if shown:
        values = ", ".join(f"{name} (p {p_shown(holm[name])})" for name in shown)
        lines = [f"evidence that {model} read this data set, by {values}, corrected for {len(holm)} tests"]
    else:
        lines = [f"no evidence that {model} read this data set; this does not show that it did not"]
    lines.append(
        f"{ORDER} is exact if the texts could as well have been published in any other order: not if they are sorted"
    )
    if blind:
        lines.append(
            f"a blind classifier, which never sees the model, tells the two sets apart with AUC {blind}; the other "
            "tests hold as far as they differ in nothing but membership"
        )
    elif not config.known:
        lines.append("without known non-members (--known) only the order was tested")
    return lines + [f"{o.name} has no p-value: {o.reason}" for o in outcomes if o.p is None]


def record(run: "Run", outcomes: "Sequence[Outcome]", blind: "Estimate | None", config: ContaminationConfig) -> None:
    """Publish the report."""
    from fsd.reporting import html
    from pipelines.common.report import publish
    from pipelines.contamination.outcomes import corrected

    caption = (
        "p is the chance of such a result, or a clearer one, if the model did not read the data set; p (Holm) is "
        "corrected for the number of tests."
    )
    holm = corrected(outcomes)
    table = html.Table(caption, HEADINGS, rows(outcomes), left=(0, 1, 2), name="results")
    publish(
        run,
        html.Page(
            title="Was it in the training data? A data set as a whole",
            question=f"Did {config.model.model} read {', '.join(config.files)}?",
            findings=conclusions(outcomes, blind, config),
            sections=[html.Section("Tests", tables=[table])],
            facts=[
                ("Model", config.model.model),
                ("Data set", ", ".join(config.files)),
                ("Known non-members", ", ".join(config.known) or "none"),
                ("Seed", str(config.seed)),
            ],
            changes=[
                "Tests beside known non-members of the same kind (--known) would show what the order alone cannot."
                if not config.known
                else "Known non-members of another period or kind than the data set make the tests beside them void.",
            ],
        ),
        f"p {html.p_shown(min(holm.values(), default=None))}",
    )


def show(outcomes: "Sequence[Outcome]", notes: Sequence[str]) -> None:
    """Print the table and the conclusions."""
    from fsd.reporting import console

    title = "tests of the data set as a whole"
    console.table(HEADINGS, rows(outcomes), notes, title=title, left=(0, 1, 2), kept=(0, 4, 3, 1))


if __name__ == "__main__":
    command(ContaminationConfig, main, __doc__ or "", plan=plan)
