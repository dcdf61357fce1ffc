"""Rank the published canaries among the withheld ones: exact evidence that a model read the published documents.

`python -m pipelines.canary test DIR --model MODEL` reads the folder that `make` wrote, checks it against its
commitment, and scores all variants of every canary. A model that did not read the documents gives uniform ranks.

Examples:
    fsd canary test canaries --model ./my-model
    fsd canary test canaries --model ./my-model --withheld 99 --dry-run
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from fsd.config import APIConfig, DetectorConfig, ModelConfig, OptionalInt, OptionalPath, flags

if TYPE_CHECKING:
    import pandas as pd

    from fsd.token_stats import Scorer
    from fsd.tracking import Run
    from pipelines.canary.files import Canaries
    from pipelines.canary.scoring import Level
    from pipelines.common.dry_run import Plan

HEADINGS = ["detector", "published", "documents", "median p", "found [95 % CI]", "combined p", "p (Holm)"]


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


def main(config: RankConfig) -> None:
    """Read and check the folder, load the model, score, test, track and print."""
    from fsd import tracking
    from pipelines.canary import files, scoring
    from pipelines.common import outcome
    from pipelines.common.detection import load_detectors
    from pipelines.common.report import run_name

    if config.withheld is not None and config.withheld < 1:
        from fsd.errors import UsageError

        raise UsageError(f"withheld must be at least 1; got {config.withheld}")
    canaries = files.read(Path(config.folder))
    scoring.check_resolution(canaries, config.alpha, config.withheld)
    requested = load_detectors(config.detection)
    tracking.check_store()
    scorers = build_scorers(config, canaries)
    detectors, remarks = scoring.usable_on_canaries(
        requested, canaries, scorers, strict=config.detection.detectors != "all"
    )
    tags = {"task": "canary", "model": config.model.model}
    name = run_name(config.model.model, [config.folder], "canary test")
    with outcome.tracked_run(config, f"fsd-{config.domain}", name, params=flags(config), tags=tags) as run:
        table = scoring.score(canaries, detectors, scorers, withheld=config.withheld, seed=config.seed)
        results = {d.name: scoring.levels(table, d.name, alpha=config.alpha, seed=config.seed) for d in detectors}
        record(run, canaries, table, results, config.model.model, config.alpha, remarks)
        notes = [*conclusions(results, canaries, config.model.model, config.alpha), *remarks]
        found = outcome.Outcome(notes[0], {"results": scoring.frame(results)}, notes, report=outcome.REPORT)
        outcome.show(found, run, lambda: show(results, notes, config.alpha))


def plan(config: RankConfig) -> "Plan":
    """What would be scored: every variant of every canary, after its document."""
    from pipelines.canary import files, scoring
    from pipelines.common import dry_run
    from pipelines.common.detection import load_detectors

    canaries = files.read(Path(config.folder))
    scoring.check_resolution(canaries, config.alpha, config.withheld)
    load_detectors(config.detection)
    sealed = canaries.sealed
    documents = [f"{canaries.contexts[e.id]} {sealed.candidates(e)[0]}" for e in sealed.documents]
    variants = sum(
        1 + min(config.withheld or math.inf, (len(entry.variants) or sealed.scheme.variants) - 1)
        for entry in sealed.documents
    )
    return dry_run.Plan(
        {"canaries": f"{len(documents):,} documents in {config.folder}"},
        config.model,
        texts=documents,
        passes={"base": int(variants)},
        writes=dry_run.tracked(f"fsd-{config.domain}"),
    )


def build_scorers(config: RankConfig, canaries: "Canaries") -> "dict[str, Scorer]":
    """Scorers of the local model without an adapter, or of an API.

    Raises:
        UsageError: if the model cannot be loaded, or its tokenizer is not that of the canaries.
    """
    from fsd.models import language_model
    from fsd.scoring import scorers
    from fsd.scoring.api.scorer import API, api_scorers
    from fsd.scoring.cache import SQLiteStore
    from fsd.scoring.token_frequencies import fingerprint

    if config.model.model.startswith(API):
        if config.api.tokenizer:
            tokenizer, _ = language_model.load_tokenizer(config.api.tokenizer)
            check_tokenizer(canaries, fingerprint(tokenizer), config.api.tokenizer)
        path = Path(config.answers or f"{config.folder.rstrip('/')}.answers")
        return api_scorers(config.model, config.api, SQLiteStore(path, limit=None, required=True))
    model = language_model.load(config.model)
    check_tokenizer(canaries, fingerprint(model.tokenizer), config.model.model)
    built = scorers.build_scorers(model, config.model)
    return {name: scorer for name, scorer in built.items() if name != "tuned"}


def check_tokenizer(canaries: "Canaries", tokenizer: str, model: str) -> None:
    """Check that the model has the tokenizer in whose tokens all variants are equally long.

    Raises:
        UsageError: if the canaries were made for another one.
    """
    from fsd.errors import UsageError

    if canaries.sealed.tokenizer and canaries.sealed.tokenizer != tokenizer:
        raise UsageError(
            f"model {model} must have the tokenizer that the canaries were made for (hash "
            f"{canaries.sealed.tokenizer[:8]}); its own has {tokenizer[:8]}"
        )


def rows(results: "Mapping[str, Sequence[Level]]") -> list[list[str]]:
    """The cells of the table, see `HEADINGS`."""
    from fsd.reporting.html import p_shown
    from pipelines.canary.scoring import corrected

    holm = corrected(results)
    return [
        [
            detector,
            f"{level.repetitions} ×" if level.repetitions else "all",
            str(level.documents),
            p_shown(level.median_p),
            str(level.detected),
            p_shown(level.p),
            "" if level.repetitions else p_shown(holm[detector]),
        ]
        for detector, levels in results.items()
        for level in levels
    ]


def conclusions(results: "Mapping[str, Sequence[Level]]", canaries: "Canaries", model: str, alpha: float) -> list[str]:
    """The results in sentences, most important first."""
    from fsd.reporting.html import p_shown
    from pipelines.canary.files import COMMITMENT, SEALED
    from pipelines.canary.scoring import corrected

    holm = corrected(results)
    best = min(holm, key=lambda name: holm[name])
    level, p = results[best][-1], holm[best]
    many = f", corrected for {len(holm)} detectors" if len(holm) > 1 else ""
    start = f"{level.documents} documents together, {best}: p {'' if p < 0.001 else '= '}{p_shown(p)}{many}"
    if p <= alpha:
        first = f"{start}. {model} prefers the published variants: it read them, or something made from them"
    else:
        first = f"{start}. No evidence that {model} read the published variants; this does not show that it did not"
    return [
        first,
        "the p-values are exact: which variant is published was drawn at random, and sealed before",
        f"the list matches its commitment; {canaries.sealed.scheme.variants:,} variants per document"
        if canaries.sealed.kind != "paraphrase"
        else "the list matches its commitment",
        f"sha256 {canaries.sha256} of {SEALED} and in {COMMITMENT}; compare it with the published {COMMITMENT}, as "
        "both files here could have been replaced",
    ]


def record(
    run: "Run",
    canaries: "Canaries",
    table: "pd.DataFrame",
    results: "Mapping[str, Sequence[Level]]",
    model: str,
    alpha: float,
    remarks: Sequence[str],
) -> None:
    """Log scores, metrics, figure and report."""
    from fsd.reporting import figures, html
    from pipelines.canary.scoring import corrected, rank_p_values
    from pipelines.common.report import publish

    holm = corrected(results)
    run.log_table("canaries.parquet", table)
    run.log_metrics({f"canary_p/{name}": levels[-1].p for name, levels in results.items()})
    run.log_metrics({f"canary_found/{name}": levels[-1].detected.value for name, levels in results.items()})
    best = min(holm, key=lambda name: holm[name])
    picture = figures.png(figures.p_value_histogram(best, rank_p_values(table, best)))
    run.log_bytes("ranks.png", picture)
    caption = (
        "Rank p-values of the single documents: the share of variants that score at least as high as the published "
        "one. A model that did not read them gives about as many values in each bar (grey line)."
    )
    lines = html.Table("Rank tests by number of publications.", HEADINGS, rows(results), name="results")
    publish(
        run,
        html.Page(
            title="Was it in the training data? Canaries",
            question=f"Did {model} read the documents that were published with a canary?",
            findings=[*conclusions(results, canaries, model, alpha), *remarks],
            sections=[html.Section("Results", tables=[lines], pictures=[html.Picture(picture, caption)])],
            facts=[
                ("Model", model),
                ("Canaries", f"{canaries.sealed.kind}, {len(canaries.sealed.documents)} documents"),
                ("Significance level", f"{alpha:g}"),
            ],
            changes=["More documents with a canary, or more publications of each, would show a weaker memory."],
        ),
        f"{best} p {html.p_shown(holm[best])}",
    )


def show(results: "Mapping[str, Sequence[Level]]", notes: Sequence[str], alpha: float) -> None:
    """Print the table and the conclusions."""
    from fsd.reporting import console

    title = f"canaries, found at p ≤ {alpha:g}"
    console.table(HEADINGS, rows(results), notes, title=title, kept=(0, 1, 6, 5, 4))
