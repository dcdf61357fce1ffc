"""Scores of all variants of every canary, and the rank tests on them."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fsd.errors import UsageError, at_least
from fsd.evaluation.calibration import observed_rate
from fsd.evaluation.metrics import Estimate, holm
from fsd.evidence.canaries import combined_p, rank_p
from fsd.progress import progress
from fsd.reporting import figures
from fsd.reporting.report import Against, Column, For, Picture, Report, Section, Table, p_value
from fsd.scoring.deviation import ViewStatistics
from fsd.scoring.model import open_model
from fsd.token_stats import FloatArray, Prompt, Scorer
from fsd.views import DRAWS, Detector, ViewInputs
from pipelines.canary import RankConfig, files
from pipelines.canary.files import COMMITMENT, SEALED, Canaries
from pipelines.common import job
from pipelines.common.experiment import load_detectors
from pipelines.common.job import Job, deliver, run_name, tracked_run

CONTEXT_WORDS = 32
"""Last words of the document that precede its canary when it is scored."""
FURTHER_VIEWS = {"neighbours", "primed", "tuned", *DRAWS}
"""Views that a canary does not have: it has no neighbours, prefix and continuations of its own, and no tuned model."""
COLUMNS = [
    Column("detector", "detector"),
    Column("published", lambda row: f"{row.repetitions} ×" if row.repetitions else "all"),
    Column("documents", "documents"),
    Column("median p", lambda row: p_value(row.median_p)),
    Column("found [95 % CI]", lambda row: str(Estimate(row.found, row.found_low, row.found_high))),
    Column("combined p", lambda row: p_value(row.p)),
    Column("p (Holm)", lambda row: "" if row.repetitions else p_value(row.p_holm)),
]


def prepare(config: RankConfig) -> Job:
    """Read the folder, and check it against its commitment, and what its variants can show."""
    at_least(1, withheld=config.withheld)
    canaries = files.read(Path(config.folder))
    check_resolution(canaries, config.alpha, config.withheld)
    sealed = canaries.sealed
    documents = [f"{canaries.contexts[entry.id]} {sealed.candidates(entry)[0]}" for entry in sealed.documents]
    scored = [min(sealed.count(entry), (config.withheld or sealed.count(entry)) + 1) for entry in sealed.documents]
    return Job(
        partial(run, config, canaries, load_detectors(config.detection)),
        {"canaries": job.files([config.folder], len(documents)).replace("texts", "documents")},
        config.model,
        texts=documents,
        passes={"base": sum(scored)},
        experiment=f"fsd-{config.domain}",
    )


def check_resolution(canaries: Canaries, alpha: float, withheld: int | None) -> None:
    """Check that the variants can show a p-value of α: all documents together, or a single one with random canaries."""
    if not 0 < alpha < 1:
        raise UsageError(f"alpha must be between 0 and 1; got {alpha:g}")
    sealed = canaries.sealed
    if sealed.kind == "paraphrase":
        finest = math.prod(1 / sealed.count(entry) for entry in sealed.documents)
        shown = f"{finest:.2g}, the smallest p-value that these documents and their variants can show"
    else:
        scored = min((withheld or sealed.scheme.variants) + 1, sealed.scheme.variants)
        finest = 1 / scored
        shown = f"1/{scored} = {finest:.2g} with {scored} variants of each canary scored"
    if finest > alpha * (1 + 1e-9):
        raise UsageError(f"alpha must be at least {shown}; got {alpha:g}")


def run(config: RankConfig, canaries: Canaries, requested: Sequence[Detector]) -> None:
    """Load the model, score, test, track and print."""
    name, sealed = config.model.model, canaries.sealed
    with job.stage("model"):
        model = open_model(config.model, config.api, config.answers or f"{config.folder.rstrip('/')}.answers")
        if model.tokenizer and sealed.tokenizer not in ("", model.tokenizer):
            raise UsageError(
                f"model {config.api.tokenizer or name} must have the tokenizer that the canaries were made for (hash "
                f"{sealed.tokenizer[:8]}); its own has {model.tokenizer[:8]}"
            )
        compared = [d.name for d in requested if FURTHER_VIEWS & set(d.views)]
        work = model.job(
            requested,
            sealed.candidates(sealed.documents[0])[:2],
            excluded=dict.fromkeys(compared, "it does not score a text after a context alone"),
            strict=config.detection.named,
            use="computed on canaries",
        )
    title = run_name(name, [config.folder], "canary test")
    tags = {"task": "canary", "model": name}
    with tracked_run(config, f"fsd-{config.domain}", title, tags=tags) as tracked:
        with job.stage("scoring"):
            table = score(canaries, work.detectors, model.scorers, withheld=config.withheld, seed=config.seed)
            results = rank_tests(table, [d.name for d in work.detectors], alpha=config.alpha, seed=config.seed)
        deliver(partial(report, table, results, canaries, config, work.remarks), tracked)


def report(
    table: pd.DataFrame, results: pd.DataFrame, canaries: Canaries, config: RankConfig, remarks: Sequence[str]
) -> Report:
    """The tests of all documents together, and by number of publications."""
    together = results[results["repetitions"] == 0].set_index("detector")
    best = str(together["p_holm"].idxmin())
    ranks = Picture(
        figures.png(figures.p_value_histogram(best, rank_p_values(table, best))),
        "Rank p-values of the single documents: the share of variants that score at least as high as the "
        "published one. A model that was not trained on them gives about as many values in each bar (grey line).",
        name="ranks.png",
    )
    lines = Table(
        results,
        COLUMNS,
        caption="Rank tests by number of publications.",
        title=f"canaries, found at p ≤ {config.alpha:g}",
        name="results",
        kept=(0, 1, 6, 5, 4),
    )
    return Report(
        title="Was it in the training data? Canaries",
        question=f"Was {config.model.model} trained on the documents that were published with a canary?",
        findings=[*conclusions(together, best, canaries, config), *remarks],
        sections=[Section("Results", tables=[lines], pictures=[ranks])],
        facts=[
            ("Model", config.model.model),
            ("Canaries", f"{canaries.sealed.kind}, {len(canaries.sealed.documents)} documents"),
            ("Significance level", f"{config.alpha:g}"),
        ],
        changes=["More documents with a canary, or more publications of each, would show a weaker memory."],
        score=f"{best} p {p_value(together['p_holm'][best])}",
        metrics={
            f"canary_{metric}/{detector}": value
            for metric in ("p", "found")
            for detector, value in together[metric].items()
        },
        artifacts={"canaries.parquet": table},
    )


def score(
    canaries: Canaries,
    detectors: Sequence[Detector],
    scorers: Mapping[str, Scorer],
    *,
    withheld: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Score the published variant of every document and the others, each after the end of its document."""
    parts, rng = [], np.random.default_rng(seed)
    with progress(len(canaries.sealed.documents), "canaries", "document", shown=True) as bar:
        for entry in canaries.sealed.documents:
            candidates = canaries.sealed.candidates(entry)
            others = [at for at in range(len(candidates)) if at != entry.published]
            if withheld is not None and withheld < len(others):
                others = sorted(rng.choice(others, withheld, replace=False).tolist())
            texts = [candidates[at] for at in (entry.published, *others)]
            before = canaries.contexts[entry.id]
            words = re.split(r"([ \n])", before.rstrip())[1 - 2 * CONTEXT_WORDS :]
            end = "".join(words) + before[len(before.rstrip()) :]
            readers = {name: of if name == "unigram" else _after(end, of) for name, of in scorers.items()}
            views = ViewStatistics.compute(texts, detectors, readers, ViewInputs(), states=("base",))
            part = pd.DataFrame({"document": entry.id, "repetitions": entry.repetitions, "variant": texts})
            part.insert(2, "published", [True, *(False for _ in others)])
            parts.append(part.assign(**{d.name: views.scores(d, "base") for d in detectors}))
            bar.update()
    return pd.concat(parts, ignore_index=True)


def _after(context: str, scorer: Scorer) -> Scorer:
    return lambda prompts: scorer([Prompt(prompt.text, context) for prompt in prompts])


def rank_tests(scores: pd.DataFrame, detectors: Sequence[str], *, alpha: float, seed: int = 0) -> pd.DataFrame:
    """The rank tests of every detector, by number of repetitions if there are several, and of all documents."""
    documents = [part for _, part in scores.groupby("document", sort=True)]
    published = [int(np.argmax(part["published"])) for part in documents]
    repetitions = np.array([int(part["repetitions"].iloc[0]) for part in documents])
    several = np.unique(repetitions).tolist()
    rows, last = [], {}
    for detector in detectors:
        values = [part[detector].to_numpy(float) for part in documents]
        p = rank_p_values(scores, detector)
        for level in [*(several if len(several) > 1 else []), 0]:
            chosen = np.flatnonzero((repetitions == level) | (level == 0))
            found = observed_rate(p[chosen] <= alpha + 1e-9)
            last[detector] = combined_p([values[at] for at in chosen], [published[at] for at in chosen], seed=seed)
            rows.append((detector, level, chosen.size, float(np.median(p[chosen])), *found, last[detector]))
    names = ["detector", "repetitions", "documents", "median_p", "found", "found_low", "found_high", "p"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(p_holm=table["detector"].map(holm(last)).where(table["repetitions"] == 0))


def by_model(tested: Mapping[str, pd.DataFrame], **how: Any) -> Table:
    """The rank tests of several models by the detector loss."""
    rows = pd.concat([rows.assign(model=name) for name, rows in tested.items()])
    return Table(rows, [Column("model", "model"), *COLUMNS[1:-1]], **how)


def rank_p_values(scores: pd.DataFrame, detector: str) -> FloatArray:
    """(D,) rank p-value of each document, in the order of their ids."""
    documents = (part for _, part in scores.groupby("document", sort=True))
    return np.array([rank_p(part[detector].to_numpy(float), int(np.argmax(part["published"]))) for part in documents])


def conclusions(together: pd.DataFrame, best: str, canaries: Canaries, config: RankConfig) -> list[str]:
    """The results in sentences, most important first."""
    p, model, sealed = float(together["p_holm"][best]), config.model.model, canaries.sealed
    many = f", corrected for {len(together)} detectors" if len(together) > 1 else ""
    shown = f"p {'' if p < 0.001 else '= '}{p_value(p)}{many}"
    if p <= config.alpha:
        found = f"{model} prefers the published variants: it was trained on them, or on something made of them"
    else:
        found = f"No evidence that {model} was trained on the published variants; this does not show that it was not"
    variants = "" if sealed.kind == "paraphrase" else f"; {sealed.scheme.variants:,} variants per document"
    return [
        f"{together['documents'][best]} documents together, {best}: {shown}. {found}",
        For("the p-values are exact: which variant is published was drawn at random, and sealed before"),
        For(f"the list matches its commitment{variants}"),
        Against(
            f"sha256 {canaries.sha256} of {SEALED} and in {COMMITMENT}; compare it with the published {COMMITMENT}, as "
            "both files here could have been replaced"
        ),
    ]
