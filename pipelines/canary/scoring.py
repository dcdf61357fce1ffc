"""Scores of all variants of every canary, and the rank tests on them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fsd.errors import UsageError
from fsd.evaluation.calibration import observed_rate
from fsd.evaluation.intervals import Estimate, holm
from fsd.evidence.canaries import combined_p, rank_p
from fsd.progress import progress
from fsd.scoring.deviation import ViewStatistics
from fsd.token_stats import FloatArray, Prompt, Scorer
from fsd.views import Detector, ViewInputs, usable
from pipelines.canary.files import Canaries

if TYPE_CHECKING:
    import pandas as pd

CONTEXT_WORDS = 32
"""Last words of the document that precede its canary when it is scored."""


@dataclass(frozen=True)
class Level:
    """The documents that were published equally often.

    Attributes:
        repetitions: how often; 0 for all documents together.
        documents: their number D.
        median_p: median of the rank p-values of single documents.
        detected: share of the documents with a p-value at most α, with its interval: the power.
        p: of all of them together.
    """

    repetitions: int
    documents: int
    median_p: float
    detected: Estimate
    p: float


def frame(results: "Mapping[str, Sequence[Level]]") -> "pd.DataFrame":
    """One row per detector and number of publications, 0 for all documents together."""
    import pandas as pd

    holm = corrected(results)
    rows = [
        {
            "detector": name,
            "repetitions": level.repetitions,
            "documents": level.documents,
            "median_p": level.median_p,
            "found": level.detected.value,
            "found_low": level.detected.low,
            "found_high": level.detected.high,
            "p": level.p,
            "p_holm": math.nan if level.repetitions else holm[name],
        }
        for name, levels in results.items()
        for level in levels
    ]
    return pd.DataFrame(rows)


def score(
    canaries: Canaries,
    detectors: Sequence[Detector],
    scorers: Mapping[str, Scorer],
    *,
    withheld: int | None = None,
    state: str = "base",
    seed: int = 0,
) -> "pd.DataFrame":
    """Score the published variant of every document and the others, each after the end of its document.

    Args:
        canaries: the folder.
        detectors: that read one text, with or without a reference model or token frequencies.
        scorers: reader → scorer, see `fsd.scoring.scorers.build_scorers`.
        withheld: other variants to score per document, drawn at random; None for all.
        state: "base", or "tuned" to score the model with its adapter.
        seed: of the draw of the others.

    Returns:
        One row per variant: document, repetitions, published, variant, and a column per detector.
    """
    import pandas as pd

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
    """Check that the variants can show a p-value of α.

    Raises:
        UsageError: if not, with the number that would.
    """
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


def levels(scores: "pd.DataFrame", detector: str, *, alpha: float, seed: int = 0) -> list[Level]:
    """The rank test of one detector by number of repetitions, and last that of all documents.

    Args:
        scores: from `score`.
        detector: name of its column.
        alpha: level of the share of documents that are detected.
        seed: of the combined tests.
    """
    documents = [part for _, part in scores.groupby("document", sort=True)]
    values: list[FloatArray] = [part[detector].to_numpy(float) for part in documents]
    published = [int(np.argmax(part["published"].to_numpy(bool))) for part in documents]
    repetitions = np.array([int(part["repetitions"].iloc[0]) for part in documents])
    p = rank_p_values(scores, detector)
    several = np.unique(repetitions)
    made = []
    for level in [*(several.tolist() if several.size > 1 else []), 0]:
        chosen = np.flatnonzero((repetitions == level) | (level == 0))
        made.append(
            Level(
                repetitions=level,
                documents=chosen.size,
                median_p=float(np.median(p[chosen])),
                detected=observed_rate(p[chosen] <= alpha + 1e-9),
                p=combined_p([values[at] for at in chosen], [published[at] for at in chosen], seed=seed),
            )
        )
    return made


def rank_p_values(scores: "pd.DataFrame", detector: str) -> FloatArray:
    """(D,) rank p-value of each document, in the order of their ids."""
    documents = (part for _, part in scores.groupby("document", sort=True))
    return np.array([rank_p(part[detector].to_numpy(float), int(np.argmax(part["published"]))) for part in documents])


def corrected(results: Mapping[str, Sequence[Level]]) -> dict[str, float]:
    """Detector → combined p-value of all documents, corrected for the number of detectors by Holm's method."""
    return holm({name: rows[-1].p for name, rows in results.items()})


def usable_on_canaries(
    detectors: Sequence[Detector], canaries: Canaries, scorers: Mapping[str, Scorer], *, strict: bool
) -> tuple[list[Detector], list[str]]:
    """The detectors that can be computed on canaries, and a remark for each of the others.

    Those that compare with neighbours, a prefix or the tuned model are left out: a canary has none.

    Raises:
        UsageError: if a detector cannot be computed and `strict`, or none can.
    """
    entry = canaries.sealed.documents[0]
    texts = canaries.sealed.candidates(entry)[:2]
    needed = {"neighbours", "primed", "tuned"}
    apart = [d.name for d in detectors if needed & set(d.views)]
    excluded = dict.fromkeys(apart, "it does not read a text after a context alone")
    computable, left_out = usable(
        detectors, texts, scorers, excluded=excluded, strict=strict, use="computed on canaries"
    )
    return computable, [f"{name} left out: {reason}" for name, reason in left_out.items()]
