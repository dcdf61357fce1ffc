"""Scores of all variants of every canary, and the rank tests on them."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fsd.errors import UsageError
from fsd.evaluation.calibration import observed_rate
from fsd.evaluation.intervals import holm
from fsd.evidence.canaries import combined_p, rank_p
from fsd.progress import progress
from fsd.scoring.deviation import ViewStatistics
from fsd.token_stats import FloatArray, Prompt, Scorer
from fsd.views import Detector, ViewInputs
from pipelines.canary.files import Canaries

CONTEXT_WORDS = 32
"""Last words of the document that precede its canary when it is scored."""
FURTHER_VIEWS = {"neighbours", "primed", "tuned"}
"""Views that a canary does not have: it has no neighbours, no prefix of its own, and no tuned model."""


def score(
    canaries: Canaries,
    detectors: Sequence[Detector],
    scorers: Mapping[str, Scorer],
    *,
    withheld: int | None = None,
    state: str = "base",
    seed: int = 0,
) -> pd.DataFrame:
    """Score the published variant of every document and the others, each after the end of its document."""
    parts = []
    rng = np.random.default_rng(seed)
    with progress(len(canaries.sealed.documents), "canaries", "document", shown=True) as bar:
        for entry in canaries.sealed.documents:
            candidates = canaries.sealed.candidates(entry)
            others = [at for at in range(len(candidates)) if at != entry.published]
            if withheld is not None and withheld < len(others):
                others = sorted(rng.choice(others, withheld, replace=False).tolist())
            texts = [candidates[at] for at in (entry.published, *others)]
            readers = after(_end(canaries.contexts[entry.id]), scorers)
            views = ViewStatistics.compute(texts, detectors, readers, ViewInputs(), states=(state,))
            part = pd.DataFrame({"document": entry.id, "repetitions": entry.repetitions, "variant": texts})
            part.insert(2, "published", [True, *(False for _ in others)])
            parts.append(part.assign(**{d.name: views.scores(d, state) for d in detectors}))
            bar.update()
    return pd.concat(parts, ignore_index=True)


def after(context: str, scorers: Mapping[str, Scorer]) -> dict[str, Scorer]:
    """The scorers with a context before every text."""

    def reading(scorer: Scorer) -> Scorer:
        return lambda prompts: scorer([Prompt(prompt.text, context) for prompt in prompts])

    return {name: scorer if name == "unigram" else reading(scorer) for name, scorer in scorers.items()}


def _end(text: str) -> str:
    """The last words of a text, with the white space at its end."""
    body = text.rstrip()
    start = len(body)
    for _ in range(CONTEXT_WORDS):
        start = max(body.rfind(" ", 0, start), body.rfind("\n", 0, start))
        if start < 0:
            return text
    return text[start + 1 :]


def check_resolution(canaries: Canaries, alpha: float, withheld: int | None) -> None:
    """Check that the variants can show a p-value of α."""
    if not 0 < alpha < 1:
        raise UsageError(f"alpha must be between 0 and 1; got {alpha:g}")
    sealed = canaries.sealed
    if sealed.kind == "paraphrase":
        finest = float(np.prod([1 / len(entry.variants) for entry in sealed.documents]))
        if finest > alpha:
            raise UsageError(
                f"alpha must be at least {finest:.2g}, the smallest p-value that these documents and their variants "
                f"can show; got {alpha:g}"
            )
        return
    scored = sealed.scheme.variants if withheld is None else min(withheld + 1, sealed.scheme.variants)
    if scored * alpha < 1 - 1e-9:
        raise UsageError(
            f"alpha must be at least 1/{scored} = {1 / scored:.2g} with {scored} variants of each canary scored; got "
            f"{alpha:g}"
        )


def rank_tests(scores: pd.DataFrame, detectors: Sequence[str], *, alpha: float, seed: int = 0) -> pd.DataFrame:
    """The rank tests of every detector, by number of repetitions if there are several, and of all documents."""
    documents = [part for _, part in scores.groupby("document", sort=True)]
    published = [int(np.argmax(part["published"].to_numpy(bool))) for part in documents]
    repetitions = np.array([int(part["repetitions"].iloc[0]) for part in documents])
    several = np.unique(repetitions)
    rows, last = [], {}
    for detector in detectors:
        values = [part[detector].to_numpy(float) for part in documents]
        p = rank_p_values(scores, detector)
        for level in [*(several.tolist() if several.size > 1 else []), 0]:
            chosen = np.flatnonzero((repetitions == level) | (level == 0))
            found = observed_rate(p[chosen] <= alpha + 1e-9)
            last[detector] = combined_p([values[at] for at in chosen], [published[at] for at in chosen], seed=seed)
            rows.append((detector, level, chosen.size, float(np.median(p[chosen])), *found, last[detector]))
    names = ["detector", "repetitions", "documents", "median_p", "found", "found_low", "found_high", "p"]
    corrected = holm(last)
    return pd.DataFrame(rows, columns=names).assign(
        p_holm=[math.nan if level else corrected[detector] for detector, level, *_ in rows]
    )


def rank_p_values(scores: pd.DataFrame, detector: str) -> FloatArray:
    """(D,) rank p-value of each document, in the order of their ids."""
    documents = (part for _, part in scores.groupby("document", sort=True))
    return np.array([rank_p(part[detector].to_numpy(float), int(np.argmax(part["published"]))) for part in documents])
