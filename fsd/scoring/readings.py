"""What the models say about a set of texts, held in memory: any detector at any setting without a forward pass."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fsd.scoring import deviation as engine
from fsd.scoring.deviation import read
from fsd.token_stats import FloatArray, Prompt, Scorer, TokenStats
from fsd.views import VIEWS, Material, View

STATES = {"base": "target", "tuned": "tuned"}


class Detector(engine.Detector, Protocol):
    """What is needed of a detector here beyond what the engine knows; `detectors.Detector` is one."""

    @property
    def function(self) -> Any: ...  # noqa: D102 - see detectors.Detector
    @property
    def settings(self) -> Mapping[str, Any]: ...  # noqa: D102


class Remembered:
    """A scorer that reads each prompt once, however often it is asked."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.known: dict[Prompt, TokenStats] = {}

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order."""
        new = list(dict.fromkeys(prompt for prompt in prompts if prompt not in self.known))
        if new:
            self.known.update(zip(new, self.scorer(new), strict=True))
        return (self.known[prompt] for prompt in prompts)


@dataclass(frozen=True)
class Readings:
    """Readings of N texts by base and tuned model, and by whatever else detectors read.

    Attributes:
        columns: view → N readings. With 4 numbers a token, 1,000 texts of 150 tokens take 5 MB a view.
    """

    columns: Mapping[View, Sequence[TokenStats | list[TokenStats]]]

    @classmethod
    def make(
        cls,
        texts: Sequence[str],
        detectors: Sequence[Detector],
        scorers: Mapping[str, Scorer],
        material: Material,
        *,
        states: Sequence[str] = ("base", "tuned"),
        known: "Readings | None" = None,
    ) -> "Readings":
        """Read the texts once for all the detectors, in every state that is asked for.

        Args:
            texts: N ≥ 1 texts.
            detectors: what they read is read; they must be usable (see `fsd.scoring.deviation.usable`).
            scorers: by reader.
            material: what forms need besides the text.
            states: of the target.
            known: readings of the same texts, which need not be made again and become part of these.
        """
        names = dict.fromkeys(name for detector in detectors for name in detector.views)
        there = known.columns if known else {}
        views = [v for v in dict.fromkeys(_seen(name, s) for name in names for s in states) if v not in there]
        rows = list(read(texts, views, scorers, material))
        return cls({**there, **{view: [row[view] for row in rows] for view in views}})

    def scores(self, detector: Detector, state: str) -> FloatArray:
        """(N,) scores in state "base", "tuned" or "fsd" (base − tuned, or the score itself of a paired detector).

        Raises:
            UsageError: for a setting out of the detector's range.
            ValueError: if a score is not finite.
        """
        if state == "fsd" and not detector.paired:
            return self.scores(detector, "base") - self.scores(detector, "tuned")
        at = "base" if state == "fsd" else state
        columns = [self.columns[_seen(name, at)] for name in detector.views]
        found = np.array([detector.function(*row, **detector.settings) for row in zip(*columns, strict=True)], float)
        if not np.isfinite(found).all():
            raise ValueError(f"detector {detector.name} must give finite scores, got {found[~np.isfinite(found)][0]}")
        return found


def _seen(name: str, state: str) -> View:
    """The view of that name when the target is in `state`."""
    view = VIEWS[name]
    return View(STATES[state], view.form) if view.reader == "target" else view
