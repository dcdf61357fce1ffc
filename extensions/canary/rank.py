"""Scores of all variants of every canary, and the rank tests on them."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from extensions.canary import files
from extensions.canary.files import COMMITMENT, SEALED, Canaries
from extensions.canary.powers import canary_power
from extensions.canary.settings import RankConfig
from fsd.api import (
    AGAINST,
    DRAWS,
    FOR,
    Column,
    Detector,
    Estimate,
    Finding,
    Model,
    Picture,
    Prompt,
    Reader,
    Report,
    Scorer,
    ScoringPlan,
    Section,
    Table,
    UsageError,
    ViewInputs,
    ViewStatistics,
    at_least,
    charts,
    check_level,
    combined_p,
    figures,
    holm,
    made_for,
    observed_rate,
    outline,
    p_column,
    p_value,
    p_words,
    progress,
    rank_p,
)
from fsd.api import fingerprint_of_tokenizer as fingerprint
from pipelines.api import Job, Stated, examine, load_detectors, open_examined, stage

Array = NDArray[Any]
CONTEXT_WORDS = 32
"""Last words of the document that precede its canary when it is scored."""
FURTHER_VIEWS = {"neighbours", "primed", "tuned", *DRAWS}
"""Views that a canary does not have: it has no neighbours, prefix and continuations of its own, and no tuned model."""
ABOUT = ("document", "repetitions", "published", "variant")
"""First columns of the scores; the others are detectors."""
# In place of a number of repetitions: all documents together.
ALL = 0
RANK_COLUMNS = ["detector", "repetitions", "documents", "median_p", "found", "found_low", "found_high", "p"]
"""Columns of the rank tests: `repetitions` is 0 for all documents together, `found` the share of them with p ≤ α."""


def _published(row: Any) -> str:
    if row.repetitions:
        return f"{row.repetitions} ×"
    return "all"


def _corrected(row: Any) -> str:
    # Only the tests of all documents are corrected.
    if row.repetitions:
        return ""
    return p_value(row.p_holm)


# Of several models by one detector, and around these for one model by several.
MODEL_COLUMNS = (
    Column("published", _published),
    Column("documents"),
    p_column("median p", "median_p"),
    Column("found [95 % CI]", lambda row: str(Estimate(row.found, row.found_low, row.found_high))),
    p_column("combined p", "p"),
)
COLUMNS = (Column("detector"), *MODEL_COLUMNS, Column("p (Holm)", _corrected))


def prepare(config: RankConfig) -> Job:
    """Read the folder, and check it against its commitment, and what its variants can show."""
    at_least(1, withheld=config.withheld)
    canaries = files.read(Path(config.folder))
    check_resolution(canaries, config.alpha, config.withheld)
    sealed = canaries.sealed
    # One text a document, as all variants of a canary are about equally long.
    texts = []
    for entry in sealed.documents:
        variant = sealed.candidates(entry)[0]
        texts.append(f"{canaries.contexts[entry.id]} {variant}")
    scored = sum(_scored(sealed.count(entry), config.withheld) for entry in sealed.documents)
    requested = load_detectors(config.detection)
    words = f"{len(texts):,} documents in {config.folder}"
    reads = {"canaries": Stated(words, {"folder": config.folder, "documents": len(texts)})}
    checks = [partial(plan, config, canaries, requested, outline(config.model, ("base",)))]
    work = partial(run, config, canaries, requested)
    experiment = f"fsd-{config.domain}"
    return Job(
        work,
        reads,
        config.model,
        texts=texts,
        passes={"base": scored},
        experiment=experiment,
        api=config.api,
        adapter=config.adapter,
        checks=checks,
    )


def _scored(variants: int, withheld: int | None) -> int:
    """How many variants of a document are scored: the published one, and those to which it is compared."""
    return variants if withheld is None else min(variants, withheld + 1)


def check_resolution(canaries: Canaries, alpha: float, withheld: int | None) -> None:
    """Check that the variants can show a p-value of α: all documents together, or a single one with random canaries."""
    check_level("alpha", alpha)
    sealed = canaries.sealed
    if sealed.kind == "paraphrase":
        # Few paraphrases fit a document, so that a single one can show nothing; together they can.
        finest = math.prod(1 / sealed.count(entry) for entry in sealed.documents)
        limit = f"{finest:.2g}, the smallest p-value that these documents and their variants can show"
    else:
        scored = _scored(sealed.scheme.variants, withheld)
        finest = 1 / scored
        limit = f"1/{scored} = {finest:.2g} with {scored} variants of each canary scored"
    # The slack lets 1/20 reach .05, however both are rounded.
    if finest > alpha * (1 + 1e-9):
        raise UsageError(f"alpha must be at least {limit}; got {alpha:g}")


def run(config: RankConfig, canaries: Canaries, requested: Sequence[Detector]) -> None:
    """Load the model, score, test, track and print."""
    with stage("model"):
        model = open_examined(config, config.folder, adapter=config.adapter)
        # By another tokenizer the variants have different numbers of tokens, and some are likelier for that alone.
        expected = canaries.sealed.tokenizer
        if model.tokenizer and expected and not made_for(model.tokenizer, expected):
            name = config.api.tokenizer or config.model.model
            raise UsageError(
                f"model {name} must have the tokenizer that the canaries were "
                f"made for (hash {expected[:8]}); its own has {fingerprint(model.tokenizer)[:8]}"
            )
        planned = plan(config, canaries, requested, model)
    # The seed serves twice, on purpose: a repetition with the same seed has the same p-values.
    scored = partial(score, canaries, planned.detectors, model.scorers, withheld=config.withheld, seed=config.seed)
    told = partial(report, canaries, config, planned.remarks)
    examine(config, "canary", [config.folder], scored, lambda scores, _: told(scores), method="canary test")


def plan(config: RankConfig, canaries: Canaries, requested: Sequence[Detector], model: Model) -> ScoringPlan:
    """The detectors that can be computed on canaries; a UsageError if one that is named cannot."""
    sealed = canaries.sealed
    # What a detector reads besides would be of the canary without its document.
    unfit = [detector.name for detector in requested if FURTHER_VIEWS.intersection(detector.views)]
    # They tell whether a detector can be computed, which an API has to be asked.
    examples = sealed.candidates(sealed.documents[0])[:2]
    return model.plan(
        requested,
        examples,
        excluded=dict.fromkeys(unfit, "it does not score a text after a context alone"),
        strict=config.detection.named,
        use="computed on canaries",
    )


def report(canaries: Canaries, config: RankConfig, remarks: Sequence[str], scores: pd.DataFrame) -> Report:
    """The tests of all documents together, and by number of publications."""
    results = rank_tests(scores, list(scores.columns[len(ABOUT) :]), alpha=config.alpha, seed=config.seed)
    of_all = together(results)
    # The smallest p-value is that of a choice among detectors: it is told corrected for their number.
    best = str(of_all["p_holm"].idxmin())
    p = float(of_all["p_holm"][best])
    histogram = Picture(
        figures.png(charts.p_value_histogram(best, rank_p_values(scores, best))),
        "Rank p-values of the single documents: the share of variants that score at least as high as the "
        "published one. A model that was not trained on them gives about as many values in each bar (grey line).",
        name="ranks.png",
    )
    table = Table(
        results,
        COLUMNS,
        caption="Rank tests by number of publications.",
        title=f"canaries, found at p ≤ {config.alpha:g}",
        name="results",
        kept=(0, 1, 6, 5, 4),
    )
    findings = [_result(of_all, best, config)]
    if p > config.alpha:
        values, _ = _by_document(scores, best)
        # The level of Holm's first step: the detector was chosen among several by its p-value.
        findings.append(canary_power(values, config.alpha / len(of_all), config.seed))
    metrics = {}
    for name in ("p", "found"):
        for detector, value in of_all[name].items():
            metrics[f"canary_{name}/{detector}"] = value
    findings += _basis(canaries)
    findings += map(Finding, remarks)
    sealed = canaries.sealed
    return Report(
        title="Was it in the training data? Canaries",
        question=f"Was {config.examined} trained on the documents that were published with a canary?",
        findings=findings,
        sections=[Section("Results", tables=[table], pictures=[histogram])],
        facts=[("Model", config.examined), ("Canaries", f"{sealed.kind}, {len(sealed.documents)} documents")],
        changes=["More documents with a canary, or more publications of each, would show a weaker memory."],
        score=f"{best} p {p_value(p)}",
        metrics=metrics,
        reader=_reader(p, canaries, config),
        numbers={"p": p, "found": float(of_all["found"][best])},
        artifacts={"canaries.parquet": scores},
    )


def _result(of_all: pd.DataFrame, best: str, config: RankConfig) -> Finding:
    """The result of all documents together, by the detector that was chosen."""
    # Corrected, as the detector was chosen among several by its p-value.
    p = float(of_all["p_holm"][best])
    evidence = p_words(p)
    if len(of_all) > 1:
        evidence += f", corrected for {len(of_all)} detectors"
    model = config.examined
    meaning = f"No evidence that {model} was trained on the published variants; this does not show that it was not"
    if p <= config.alpha:
        meaning = f"{model} prefers the published variants: it was trained on them, or on something made of them"
    return Finding(f"{of_all['documents'][best]} documents together, {best}: {evidence}. {meaning}")


def _basis(canaries: Canaries) -> list[Finding]:
    """What the p-values rest on."""
    sealed = canaries.sealed
    seal = "the list matches its commitment"
    if sealed.kind != "paraphrase":
        seal += f"; {sealed.scheme.variants:,} variants per document"
    advice = (
        f"sha256 {canaries.sha256} of {SEALED} and in {COMMITMENT}; compare it with the published {COMMITMENT}, as "
        "both files here could have been replaced"
    )
    return [
        Finding("the p-values are exact: which variant is published was drawn at random, and sealed before", FOR),
        Finding(seal, FOR),
        Finding(advice, AGAINST),
    ]


def _reader(p: float, canaries: Canaries, config: RankConfig) -> Reader:
    """The answer for somebody who is no engineer."""
    model = config.examined
    answer = f"No evidence that {model} was trained on the published texts; this does not show that it was not."
    if p <= config.alpha:
        answer = f"{model} was trained on the published texts, or on something made of them."
    chance = f"Chance alone gives a result like this one, or a clearer one, in {100 * p:.2g} of 100 cases."
    limit = f"Evidence is what chance gives in at most {100 * config.alpha:g} of 100 cases; this limit was set before."
    compared = (
        f"Each of {len(canaries.sealed.documents)} documents was published with a random piece of text, drawn among "
        "others that were kept secret. The list was sealed before: its hash is below. A model that never read the "
        "documents prefers the published piece no more often than any other."
    )
    return Reader([answer], [chance, limit], [compared, f"The sealed list has SHA-256 {canaries.sha256}."])


def score(
    canaries: Canaries,
    detectors: Sequence[Detector],
    scorers: Mapping[str, Scorer],
    *,
    withheld: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Score the published variant of every document and the others, each after the end of its document."""
    sealed = canaries.sealed
    rng = np.random.default_rng(seed)
    parts = []
    with progress(len(sealed.documents), "canaries", "document", shown=True) as bar:
        for entry in sealed.documents:
            texts = _variants(sealed.candidates(entry), entry.published, withheld, rng)
            end = _end(canaries.contexts[entry.id])
            readers = {name: _after(end, scorer) for name, scorer in scorers.items()}
            # The frequencies of tokens do not depend on what is before them.
            if "unigram" in scorers:
                readers["unigram"] = scorers["unigram"]
            views = ViewStatistics.compute(texts, detectors, readers, ViewInputs(), states=("base",))
            about = (entry.id, entry.repetitions, np.arange(len(texts)) == 0, texts)
            columns = dict(zip(ABOUT, about, strict=True))
            for detector in detectors:
                columns[detector.name] = views.scores(detector, "base")
            parts.append(pd.DataFrame(columns))
            bar.update()
    return pd.concat(parts, ignore_index=True)


def _variants(candidates: list[str], published: int, withheld: int | None, rng: np.random.Generator) -> list[str]:
    """The variants that are scored, the published one first."""
    variants = [candidates.pop(published)]
    # Without a choice nothing is drawn: that would change what is drawn for the next documents.
    if withheld is not None and withheld < len(candidates):
        chosen = rng.choice(len(candidates), withheld, replace=False)
        candidates = [candidates[index] for index in sorted(chosen)]
    return variants + candidates


def _end(context: str) -> str:
    """The last `CONTEXT_WORDS` words of what precedes a canary, with the blanks after them."""
    text = context.rstrip()
    # The blanks between the words are kept by the group, so that the end reads as it was published.
    pieces = re.split(r"([ \n])", text)
    return "".join(pieces[1 - 2 * CONTEXT_WORDS :]) + context[len(text) :]


def _after(context: str, scorer: Scorer) -> Scorer:
    return lambda prompts: scorer([Prompt(prompt.text, context) for prompt in prompts])


def rank_tests(scores: pd.DataFrame, detectors: Sequence[str], *, alpha: float, seed: int = 0) -> pd.DataFrame:
    """The rank tests of every detector, by number of repetitions if there are several, and of all documents."""
    repetitions = scores.groupby("document")["repetitions"].first().to_numpy()
    # A single level would repeat the line of all documents.
    levels = np.append(np.unique(repetitions), ALL).tolist()
    if len(levels) == 2:
        levels = [ALL]
    rows = []
    for detector in detectors:
        values, published = _by_document(scores, detector)
        p = rank_p_values(scores, detector)
        for level in levels:
            chosen = (repetitions == level) | (level == ALL)
            # 20/1000 and .02 need not be the same float.
            rate = observed_rate(p[chosen] <= alpha + 1e-9)
            combined = combined_p(list(compress(values, chosen)), list(compress(published, chosen)), seed=seed)
            rows.append((detector, level, chosen.sum(), np.median(p[chosen]), *rate, combined))
    table = pd.DataFrame(rows, columns=RANK_COLUMNS)
    # Only the tests of all documents are corrected: those by level describe, and decide nothing.
    corrected = table["detector"].map(holm(dict(zip(detectors, together(table)["p"], strict=True))))
    return table.assign(p_holm=corrected.where(table["repetitions"] == ALL))


def together(results: pd.DataFrame) -> pd.DataFrame:
    """The rank tests of all documents together, by detector."""
    return results[results["repetitions"] == ALL].set_index("detector")


def rank_p_values(scores: pd.DataFrame, detector: str) -> Array:
    """(D,) rank p-value of each document, in the order of their ids."""
    values, published = _by_document(scores, detector)
    return np.array(list(map(rank_p, values, published)))


def _by_document(scores: pd.DataFrame, detector: str) -> tuple[list[Array], list[int]]:
    """Scores of the variants of each document, and which of them was published, in the order of their ids."""
    values = []
    published = []
    for _, part in scores.groupby("document"):
        values.append(part[detector].to_numpy())
        published.append(int(part["published"].argmax()))
    return values, published
