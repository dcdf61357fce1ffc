"""FSD(x) = S(x; f_θ) − S(x; f_θ'): every detector's score before and after fine-tuning, from shared readings."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fsd.errors import UsageError
from fsd.progress import progress
from fsd.token_stats import Scorer, Scores, TokenStats
from fsd.views import FORMS, LISTS, VIEWS, Material, View, unavailable

CHUNK = 1024
"""Texts whose readings stand in memory at once."""


class Detector(Protocol):
    """What the engine knows of a detector; `detectors.Detector` is one."""

    @property
    def name(self) -> str: ...  # noqa: D102 - see detectors.Detector
    @property
    def views(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def paired(self) -> bool: ...  # noqa: D102
    def __call__(self, readings: Mapping[str, Any]) -> float: ...  # noqa: D102
    def fallback_of(self, readings: Mapping[str, Any]) -> str | None: ...  # noqa: D102


@dataclass
class Deviation:
    """Scores of N texts: by the base model, by the tuned one, and their difference.

    Attributes:
        base: detector → (N,); a paired detector has none.
        tuned: detector → (N,); a paired detector has none.
        fsd: detector → (N,) base − tuned, or the score itself of a paired detector; empty if only the base
            was asked.
        fallbacks: (detector, state, name of the fallback) → texts that took it.
    """

    base: Scores = field(default_factory=dict)
    tuned: Scores = field(default_factory=dict)
    fsd: Scores = field(default_factory=dict)
    fallbacks: Counter[tuple[str, str, str]] = field(default_factory=Counter)


def deviation(base: Scores, tuned: Scores) -> Scores:
    """FSD of each detector: base − tuned (FSD paper eq. 5, oriented so that members score higher).

    Fine-tuning on unseen non-members raises the score of other non-members and leaves members nearly alone, so
    that members keep the higher difference.

    Args:
        base: detector → (N,) scores of the base model.
        tuned: the same detectors' scores of the fine-tuned model.
    """
    return {name: base[name] - tuned[name] for name in base}


def usable(
    detectors: Sequence[Detector], texts: Sequence[str], scorers: Mapping[str, Scorer], material: Material
) -> tuple[list[Detector], dict[str, str]]:
    """The detectors that can be computed here, and for the others the reason why not, in a few words."""
    kept, left_out = [], {}
    for detector in detectors:
        reasons = (unavailable(view, texts, list(scorers), material) for view in detector.views)
        reason = next((r for r in reasons if r), None) or _lacking(detector, scorers)
        if reason:
            left_out[detector.name] = reason
        else:
            kept.append(detector)
    return kept, left_out


def _lacking(detector: Detector, scorers: Mapping[str, Scorer]) -> str | None:
    """Why the target's readings are not enough for the detector: an API's hold log-probabilities alone."""
    lacks: frozenset[str] = getattr(scorers.get("target"), "lacks", frozenset())
    absent = [name for name in getattr(detector, "needs", ()) if name in lacks]
    return f"the API does not give what it reads: {', '.join(absent)}" if absent else None


def evaluate(
    texts: Sequence[str],
    detectors: Sequence[Detector],
    scorers: Mapping[str, Scorer],
    material: Material | None = None,
    *,
    shown: bool = False,
) -> Deviation:
    """Base, tuned and FSD score of every text by every detector.

    Each needed reading (a model state and a form of the text) is made once for all detectors, `CHUNK` texts at
    a time, so that memory does not grow with their number.

    Args:
        texts: N ≥ 1 texts.
        detectors: those to compute; see `usable`.
        scorers: `target`, and `tuned` for deviations, and what else the detectors read.
        material: what forms need besides the text.
        shown: whether progress over more than `CHUNK` texts is shown.

    Raises:
        UsageError: for no texts, or a detector that needs a scorer or material that is not given.
    """
    if not texts:
        raise UsageError("scoring must have at least one text; got none")
    material = material or Material()
    _, left_out = usable(detectors, texts, scorers, material)
    if left_out:
        name, reason = next(iter(left_out.items()))
        raise UsageError(f"detector {name} cannot be computed here: {reason}")
    states = ("target", "tuned") if "tuned" in scorers else ("target",)
    answer = Deviation()
    columns: dict[tuple[str, str], list[float]] = {}
    with progress(len(texts), "all texts", "text", shown=shown and len(texts) > CHUNK) as bar:
        for chunk in (texts[i : i + CHUNK] for i in range(0, len(texts), CHUNK)):
            for readings in read(chunk, _needed(detectors, states), scorers, material):
                _score(detectors, states, readings, columns, answer.fallbacks)
            bar.update(len(chunk))
    scores = {key: np.asarray(values) for key, values in columns.items()}
    answer.base = {name: column for (name, state), column in scores.items() if state == "target"}
    answer.tuned = {name: column for (name, state), column in scores.items() if state == "tuned"}
    paired = {name: column for (name, state), column in scores.items() if state == "pair"}
    if answer.tuned:
        answer.fsd = deviation(answer.base, answer.tuned) | paired
    return answer


def read(
    texts: Sequence[str], views: Sequence[View], scorers: Mapping[str, Scorer], material: Material
) -> Iterator[dict[View, TokenStats | list[TokenStats]]]:
    """The readings of each text: what every needed scorer says about every needed form of it."""
    columns: dict[View, list[TokenStats | list[TokenStats]]] = {}
    forms = {form: [FORMS[form](text, material) for text in texts] for form in {view.form for view in views}}
    for view in views:
        prompts = forms[view.form]
        stats = iter(scorers[view.reader]([prompt for some in prompts for prompt in some]))
        grouped = [[next(stats) for _ in some] for some in prompts]
        columns[view] = [some if view.form in LISTS else some[0] for some in grouped]
    for i in range(len(texts)):
        yield {view: column[i] for view, column in columns.items()}


def _view(name: str, state: str) -> View:
    """The view as it is when the target model is in `state`."""
    view = VIEWS[name]
    return View(state, view.form) if view.reader == "target" else view


def _detector_states(detector: Detector, states: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(column name, state of the target) for each score that a detector gives."""
    return (("pair", "target"),) if detector.paired else tuple((state, state) for state in states)


def _needed(detectors: Sequence[Detector], states: Sequence[str]) -> list[View]:
    needed = {
        _view(name, state): None
        for detector in detectors
        for _, state in _detector_states(detector, states)
        for name in detector.views
    }
    return list(needed)


def _score(
    detectors: Sequence[Detector],
    states: Sequence[str],
    readings: Mapping[View, TokenStats | list[TokenStats]],
    columns: dict[tuple[str, str], list[float]],
    fallbacks: Counter[tuple[str, str, str]],
) -> None:
    """Append one text's score by each detector in each state."""
    for detector in detectors:
        for column, state in _detector_states(detector, states):
            views = {name: readings[_view(name, state)] for name in detector.views}
            columns.setdefault((detector.name, column), []).append(detector(views))
            fallback = detector.fallback_of(views)
            if fallback is not None:
                fallbacks[detector.name, column, fallback] += 1
