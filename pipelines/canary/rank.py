"""Rank the published canaries among the withheld ones: exact evidence that a model read the published documents.

`python -m pipelines.canary test DIR --model MODEL` reads the folder that `make` wrote, checks it against its
commitment, and scores all variants of every canary. A model that did not read the documents gives uniform ranks.

Examples:
    fsd canary test canaries --model ./my-model
    fsd canary test canaries --model ./my-model --withheld 99 --dry-run
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from fsd.config import APIConfig, DetectorConfig, ModelConfig, OptionalInt, OptionalPath
from pipelines.common.job import Job

if TYPE_CHECKING:
    import pandas as pd

    from fsd.reporting.report import Column
    from fsd.views import Detector
    from pipelines.canary.files import Canaries


@dataclass(frozen=True)
class RankConfig:
    """Folder of canaries, model and detectors."""

    folder: Annotated[Positional[str], arg(metavar="DIR")]
    """Folder that `make` wrote."""
    model: ModelConfig = field(default_factory=ModelConfig)
    api: APIConfig = field(default_factory=APIConfig)
    detection: DetectorConfig = field(default_factory=lambda: DetectorConfig(detectors="loss"))
    withheld: OptionalInt = None
    """Withheld variants to score per document, drawn at random. Default: all."""
    alpha: float = 0.05
    """Significance level at which a single document counts as found."""
    answers: OptionalPath = None
    """File that keeps the answers of an API, so that an interrupted test goes on. Default: DIR.answers."""
    domain: str = "canaries"
    """Part of the experiment's name, fsd-<domain>."""
    seed: int = 42
    """Random seed for the choice of withheld variants and the combined test."""


def prepare(config: RankConfig) -> Job:
    """Read the folder, and check it against its commitment, and what its variants can show."""
    from fsd.errors import UsageError
    from pipelines.canary import files, scoring
    from pipelines.common import job
    from pipelines.common.detection import load_detectors

    if config.withheld is not None and config.withheld < 1:
        raise UsageError(f"withheld must be at least 1; got {config.withheld}")
    canaries = files.read(Path(config.folder))
    scoring.check_resolution(canaries, config.alpha, config.withheld)
    detectors = load_detectors(config.detection)
    sealed = canaries.sealed
    documents = [f"{canaries.contexts[entry.id]} {sealed.candidates(entry)[0]}" for entry in sealed.documents]
    others = [(len(entry.variants) or sealed.scheme.variants) - 1 for entry in sealed.documents]
    return Job(
        partial(run, config, canaries, detectors),
        {"canaries": job.files([config.folder], len(documents)).replace("texts", "documents")},
        config.model,
        texts=documents,
        passes={"base": sum(1 + min(config.withheld or most, most) for most in others)},
        experiment=f"fsd-{config.domain}",
    )


def run(config: RankConfig, canaries: "Canaries", requested: "Sequence[Detector]") -> None:
    """Load the model, score, test, track and print."""
    from fsd.reporting import figures
    from fsd.reporting.report import Picture, Report, Section, Table, p_value
    from fsd.scoring.model import open_model
    from pipelines.canary import scoring
    from pipelines.common import outcome

    name = config.model.model
    model = open_model(config.model, config.api, config.answers or f"{config.folder.rstrip('/')}.answers")
    check_tokenizer(canaries, model.tokenizer, config.api.tokenizer or name)
    texts = canaries.sealed.candidates(canaries.sealed.documents[0])[:2]
    compared = [d.name for d in requested if scoring.FURTHER_VIEWS & set(d.views)]
    excluded = dict.fromkeys(compared, "it does not score a text after a context alone")
    strict = config.detection.detectors != "all"
    detectors, remarks = model.computable(
        requested, texts, excluded=excluded, strict=strict, use="computed on canaries"
    )
    title = outcome.run_name(name, [config.folder], "canary test")
    tags = {"task": "canary", "model": name}
    with outcome.tracked_run(config, f"fsd-{config.domain}", title, tags=tags) as tracked:
        table = scoring.score(canaries, detectors, model.scorers, withheld=config.withheld, seed=config.seed)
        results = scoring.rank_tests(table, [d.name for d in detectors], alpha=config.alpha, seed=config.seed)
        together = results[results["repetitions"] == 0].set_index("detector")
        best = str(together["p_holm"].idxmin())
        picture = figures.png(figures.p_value_histogram(best, scoring.rank_p_values(table, best)))
        ranks = Picture(
            picture,
            "Rank p-values of the single documents: the share of variants that score at least as high as the "
            "published one. A model that was not trained on them gives about as many values in each bar (grey line).",
            name="ranks.png",
        )
        lines = Table(
            results,
            columns(),
            caption="Rank tests by number of publications.",
            title=f"canaries, found at p ≤ {config.alpha:g}",
            name="results",
            kept=(0, 1, 6, 5, 4),
        )
        report = Report(
            title="Was it in the training data? Canaries",
            question=f"Was {name} trained on the documents that were published with a canary?",
            findings=[*conclusions(together, canaries, name, config.alpha), *remarks],
            sections=[Section("Results", tables=[lines], pictures=[ranks])],
            facts=[
                ("Model", name),
                ("Canaries", f"{canaries.sealed.kind}, {len(canaries.sealed.documents)} documents"),
                ("Significance level", f"{config.alpha:g}"),
            ],
            changes=["More documents with a canary, or more publications of each, would show a weaker memory."],
            score=f"{best} p {p_value(together['p_holm'][best])}",
            metrics={
                **{f"canary_p/{detector}": p for detector, p in together["p"].items()},
                **{f"canary_found/{detector}": found for detector, found in together["found"].items()},
            },
            artifacts={"canaries.parquet": table},
        )
        outcome.deliver(report, tracked)


def columns() -> "list[Column]":
    """How a row of the rank tests is shown."""
    from fsd.evaluation.intervals import Estimate
    from fsd.reporting.report import Column, p_value

    def found(row: Any) -> str:
        return str(Estimate(row.found, row.found_low, row.found_high))

    return [
        Column("detector", "detector"),
        Column("published", lambda row: f"{row.repetitions} ×" if row.repetitions else "all"),
        Column("documents", "documents"),
        Column("median p", lambda row: p_value(row.median_p)),
        Column("found [95 % CI]", found),
        Column("combined p", lambda row: p_value(row.p)),
        Column("p (Holm)", lambda row: "" if row.repetitions else p_value(row.p_holm)),
    ]


def check_tokenizer(canaries: "Canaries", tokenizer: str, model: str) -> None:
    """Check that the model has the tokenizer in whose tokens all variants are equally long, if it is known."""
    from fsd.errors import UsageError

    if tokenizer and canaries.sealed.tokenizer not in ("", tokenizer):
        raise UsageError(
            f"model {model} must have the tokenizer that the canaries were made for (hash "
            f"{canaries.sealed.tokenizer[:8]}); its own has {tokenizer[:8]}"
        )


def conclusions(together: "pd.DataFrame", canaries: "Canaries", model: str, alpha: float) -> list[str]:
    """The results in sentences, most important first."""
    from fsd.reporting.report import p_value
    from pipelines.canary.files import COMMITMENT, SEALED

    best = str(together["p_holm"].idxmin())
    p = float(together["p_holm"][best])
    many = f", corrected for {len(together)} detectors" if len(together) > 1 else ""
    shown = f"p {'' if p < 0.001 else '= '}{p_value(p)}{many}"
    start = f"{together['documents'][best]} documents together, {best}: {shown}"
    if p <= alpha:
        first = f"{start}. {model} prefers the published variants: it was trained on them, or on something made of them"
    else:
        first = (
            f"{start}. No evidence that {model} was trained on the published variants; this does not show that it was "
            "not"
        )
    variants = canaries.sealed.scheme.variants
    return [
        first,
        "the p-values are exact: which variant is published was drawn at random, and sealed before",
        "the list matches its commitment"
        + (f"; {variants:,} variants per document" if canaries.sealed.kind != "paraphrase" else ""),
        f"sha256 {canaries.sha256} of {SEALED} and in {COMMITMENT}; compare it with the published {COMMITMENT}, as "
        "both files here could have been replaced",
    ]
