"""Fine-tuned Score Deviation, FSD(x) = S(x; f_θ) − S(x; f_θ'): every detector's score before and after fine-tuning.

Fine-tuning on unseen non-members raises the score S of other non-members and leaves that of members nearly unchanged
(FSD paper, eq. 5, oriented so that members score higher). States are "base", "tuned" and "fsd", their difference.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fsd.errors import UsageError
from fsd.progress import labelled, progress
from fsd.token_stats import FloatArray, Prompt, Scorer, Scores
from fsd.views import COMMON, FORMS, LISTS, Detector, View, ViewInputs, scorer_of, usable, view_in

if TYPE_CHECKING:
    import pandas as pd

CHUNK = 1024
"""Texts whose token statistics are in memory at once."""


@dataclass
class Deviation:
    """Detector → (N,) scores of N texts by the base and the tuned model, and their difference.

    A paired detector has `fsd` alone. Where the base score has settings of its own, `tuned` is subtracted from another
    one. `fallbacks` counts the texts whose score is a fallback, by detector, state and name.
    """

    base: Scores = field(default_factory=dict)
    tuned: Scores = field(default_factory=dict)
    fsd: Scores = field(default_factory=dict)
    fallbacks: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def frame(self) -> "pd.DataFrame":
        """N rows, columns `<detector>.base`, `<detector>.tuned` and `<detector>.fsd`, as far as they were computed."""
        import pandas as pd

        states = {"base": self.base, "tuned": self.tuned, "fsd": self.fsd}
        return pd.DataFrame(
            {
                f"{name}.{state}": scores[name]
                for name in self.fsd or self.base
                for state, scores in states.items()
                if name in scores
            }
        )


@dataclass(frozen=True)
class ViewStatistics:
    """View → statistics of N texts (lists for the forms in `LISTS`), for detectors at any setting."""

    columns: Mapping[View, Sequence[Any]]

    @classmethod
    def compute(
        cls,
        texts: Sequence[str | Prompt],
        detectors: Sequence[Detector],
        scorers: Mapping[str, Scorer],
        inputs: ViewInputs,
        *,
        states: Sequence[str] = ("base", "tuned"),
        known: "ViewStatistics | None" = None,
    ) -> "ViewStatistics":
        """Compute every view that the detectors need in the states, once for all of them, beyond those `known`."""
        columns = dict(known.columns) if known else {}
        needed = (
            view_in(state, name)
            for detector in detectors
            for state in (("base",) if detector.paired else states)
            for name in detector.views
        )
        views = [v for v in dict.fromkeys(needed) if v not in columns and (v.reader != "tuned" or "tuned" in states)]
        given = [Prompt(text) if isinstance(text, str) else text for text in texts]
        own = {view.form for view in views} - COMMON
        forms = {form: [FORMS[form](prompt, inputs) for prompt in given] for form in own}
        for view in views:
            scorer = scorers[scorer_of(view)]
            with labelled(view.form):
                if view.form in COMMON:
                    columns[view] = [getattr(inputs, view.form).scored(scorer)] * len(given)
                    continue
                prompts = forms[view.form]
                stats = iter(scorer([prompt for of_text in prompts for prompt in of_text]))
                grouped = [[next(stats) for _ in of_text] for of_text in prompts]
            columns[view] = grouped if view.form in LISTS else [one for (one,) in grouped]
        return cls(columns)

    def scores(self, detector: Detector, state: str) -> FloatArray:
        """(N,) scores for "base", "tuned" or "fsd": base − tuned, or the score itself of a paired detector."""
        if state == "base":
            return self._scores(detector.for_base, "base")
        if state == "fsd" and not detector.paired:
            return self._scores(detector, "base") - self._scores(detector, "tuned")
        return self._scores(detector, state)

    def _scores(self, detector: Detector, state: str) -> FloatArray:
        return np.array([detector(views) for views in self._rows(detector, state)], float)

    def fallbacks(self, detector: Detector, state: str) -> Counter[str]:
        """Name of a fallback → number of texts whose score in that state is this fallback."""
        detector = detector.for_base if state == "base" else detector
        names = (detector.fallback_of(views) for views in self._rows(detector, state))
        return Counter(name for name in names if name is not None)

    def _rows(self, detector: Detector, state: str) -> list[dict[str, Any]]:
        """The detector's views of each text, by parameter name."""
        columns = [self.columns[view_in("base" if state == "fsd" else state, name)] for name in detector.views]
        return [dict(zip(detector.views, row, strict=True)) for row in zip(*columns, strict=True)]


def evaluate(
    texts: Sequence[str],
    detectors: Sequence[Detector],
    scorers: Mapping[str, Scorer],
    inputs: ViewInputs | None = None,
    *,
    contexts: Sequence[str] = (),
    shown: bool = False,
) -> Deviation:
    """Base, tuned and FSD score of every text by every detector, `CHUNK` texts at a time; or base alone."""
    if not texts:
        raise UsageError("scoring must have at least one text; got none")
    inputs = inputs or ViewInputs()
    usable(detectors, texts, scorers, inputs, strict=True)
    states = ("base", "tuned") if "tuned" in scorers else ("base",)
    computed: list[tuple[Detector, str]] = []
    for detector in detectors:  # "fsd" is computed where it is not the difference of the other scores
        unpaired = (*states, "fsd") if detector.base_settings and "tuned" in states else states
        computed += [(detector, state) for state in (("fsd",) if detector.paired else unpaired)]
    parts: defaultdict[tuple[str, str], list[FloatArray]] = defaultdict(list)
    deviation = Deviation()
    with progress(len(texts), "all texts", "text", shown=shown and len(texts) > CHUNK) as bar:
        prompts = list(map(Prompt, texts, contexts or [""] * len(texts)))
        for chunk in (prompts[i : i + CHUNK] for i in range(0, len(prompts), CHUNK)):
            statistics = ViewStatistics.compute(chunk, detectors, scorers, inputs, states=states)
            for detector, state in computed:
                parts[state, detector.name].append(statistics.scores(detector, state))
                for fallback, count in statistics.fallbacks(detector, state).items():
                    deviation.fallbacks[detector.name, state, fallback] += count
            bar.update(len(chunk))
    for (state, name), arrays in parts.items():
        getattr(deviation, state)[name] = np.concatenate(arrays)
    differences = {name: deviation.base[name] - deviation.tuned[name] for name in deviation.tuned}
    deviation.fsd = differences | deviation.fsd
    return deviation
