"""Fine-tuned Score Deviation, FSD(x) = S(x; f_θ) − S(x; f_θ'): every detector's score before and after fine-tuning.

Fine-tuning on unseen non-members raises the score S of other non-members and leaves that of members nearly unchanged
(FSD paper, eq. 5, oriented so that members score higher). States are "base", "tuned" and "fsd", their difference.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fsd.errors import UsageError
from fsd.progress import bar_title, progress
from fsd.scores import (
    ALL_STATES,
    BASE,
    CALIBRATED,
    FSD,
    IN_AUDIT,
    IN_RUN,
    STATES,
    TUNED,
    Score,
    ScoreColumns,
    StatePair,
    rows_of,
)
from fsd.token_stats import AnyTexts, FloatArray, Prompt, Prompts, Scorers, as_prompt, chats_of, score_rows, texts_of
from fsd.views import FORMS, NO_INPUTS, Detector, Detectors, View, ViewInputs, not_of_chats, usable

if TYPE_CHECKING:
    import pandas as pd

# Texts whose token statistics are in memory at once.
CHUNK = 1024


@dataclass
class ScoreTable:
    """Scores of N texts, (N,) each, and `fallbacks`: (score, name) → number of texts whose score is that fallback.

    `states` are those that are compared.

    A paired detector has its `FSD` alone. Where the base score has settings of its own, the tuned score is subtracted
    from another one.
    """

    columns: ScoreColumns = field(default_factory=dict)
    fallbacks: Counter[tuple[Score, str]] = field(default_factory=Counter)
    states: StatePair = IN_RUN

    def frame(self) -> "pd.DataFrame":
        """N rows, columns `<detector>.base`, `<detector>.tuned` and `<detector>.fsd`, as far as they were computed."""
        import pandas as pd

        return pd.DataFrame({str(score): column for score, column in self.columns.items()})

    def take(self, rows: slice | Sequence[int]) -> "ScoreTable":
        """The scores of some of the texts."""
        return replace(self, columns=rows_of(self.columns, rows))

    def in_audit(self) -> "ScoreTable":
        """The same scores under their names in an audit, where fine-tuned model and base have changed places."""
        names = {BASE: TUNED, TUNED: BASE, FSD: CALIBRATED}
        renamed = {score: score._replace(state=names[score.state]) for score in self.columns}
        detectors = [score.detector for score in self.columns]

        def place(score: Score) -> tuple[int, int]:
            return detectors.index(score.detector), ALL_STATES.index(renamed[score].state)

        table = ScoreTable(states=IN_AUDIT)
        for score in sorted(self.columns, key=place):
            table.columns[renamed[score]] = self.columns[score]
        for (score, name), count in self.fallbacks.items():
            table.fallbacks[renamed[score], name] = count
        return table


@dataclass(frozen=True)
class ViewStatistics:
    """View → statistics of N texts (lists for forms of several prompts), for detectors at any setting."""

    columns: Mapping[View, Sequence[Any]]

    @classmethod
    def compute(
        cls,
        texts: AnyTexts,
        detectors: Detectors,
        scorers: Scorers,
        inputs: ViewInputs,
        *,
        states: Sequence[str] = ("base", "tuned"),
        reused: "ViewStatistics | None" = None,
    ) -> "ViewStatistics":
        """Compute every view that the detectors need in the states, once for all of them, beyond those `reused`."""
        columns = dict(reused.columns) if reused else {}
        views = [view for view in needed_views(detectors, states) if view not in columns]
        prompts = list(map(as_prompt, texts))
        # Base and tuned model read the same copies of a text, which a masked model may have made at some cost.
        copies = {}
        for name in dict.fromkeys(view.form for view in views):
            form = FORMS[name]
            if not form.common:
                copies[name] = [form.prompts(prompt, inputs) for prompt in prompts]
        for view in views:
            # A view of two models may have given it already.
            if view in columns:
                continue
            form = view.record
            scorer = scorers[view.scorer]
            with bar_title(view.form):
                if form.common:
                    columns[view] = [getattr(inputs, view.form).score_with(scorer)] * len(prompts)
                    continue
                rows = score_rows(scorer, copies[view.form])
            # A detector that reads copies reads the text, too.
            if form.copies:
                _with_unchanged(rows, copies[view.form], prompts, columns[view._replace(form="plain")])
            columns[view] = rows if form.several else [statistics for (statistics,) in rows]
            columns = _halves_of(view, columns[view]) | columns
        return cls(columns)

    def scores(self, detector: Detector, state: str) -> FloatArray:
        """(N,) scores for "base", "tuned" or "fsd": base − tuned, or the score itself of a paired detector."""
        if state == "base":
            return self._scores(detector.for_base, "base")
        # Both sides of a difference have the same settings, so not those of the base score.
        if state == "fsd" and not detector.paired:
            return self._scores(detector, "base") - self._scores(detector, "tuned")
        return self._scores(detector, state)

    def _scores(self, detector: Detector, state: str) -> FloatArray:
        return np.array(list(map(detector, self._rows(detector, state))), float)

    def fallbacks(self, detector: Detector, state: str) -> Counter[str]:
        """Name of a fallback → number of texts whose score in that state is this fallback."""
        if state == "base":
            detector = detector.for_base
        names = (detector.fallback_of(views) for views in self._rows(detector, state))
        return Counter(name for name in names if name is not None)

    def _rows(self, detector: Detector, state: str) -> list[dict[str, Any]]:
        """The detector's views of each text, by parameter name."""
        state = "base" if state == "fsd" else state
        columns = [self.columns[View.named(name).in_state(state)] for name in detector.views]
        return [dict(zip(detector.views, row, strict=True)) for row in zip(*columns, strict=True)]


def _with_unchanged(rows: list[list[Any]], copies: Sequence[list[Prompt]], prompts: Prompts, texts: Any) -> None:
    """Put the statistics of a text in the place of those of a copy that is the text itself.

    A second reading beside other texts differs by rounding, which would rank texts whose copies cannot differ.
    """
    for row, of_row, prompt, text in zip(rows, copies, prompts, texts, strict=True):
        for place, copy in enumerate(of_row):
            if copy == prompt:
                row[place] = text


def _halves_of(view: View, pairs: Sequence[Any]) -> dict[View, list[Any]]:
    """The statistics of each model alone that a view of two models gives; none for other views."""
    # A text that is longer than one of the contexts is read otherwise by a model alone.
    if not (view.halves and all(pair.alone for pair in pairs)):
        return {}
    target, reference = view.halves
    return {target: [pair.target for pair in pairs], reference: [pair.reference for pair in pairs]}


def needed_views(detectors: Detectors, states: Sequence[str]) -> list[View]:
    """The views of the detectors in the states, each once: those of two models, then the others as first needed."""
    needed: dict[View, None] = {}
    for detector in detectors:
        # A paired detector reads both states itself, and has one score.
        for state in ("base",) if detector.paired else states:
            needed |= dict.fromkeys(View.named(name).in_state(state) for name in detector.views)
    views = [view for view in needed if view.reader != "tuned" or "tuned" in states]
    # A pass over two models gives the statistics of each alone, too; and texts come before their copies.
    return sorted(views, key=lambda view: (not view.halves, view.record.copies))


def score_texts(
    texts: AnyTexts, detectors: Detectors, scorers: Scorers, inputs: ViewInputs = NO_INPUTS, *, shown: bool = False
) -> ScoreTable:
    """Base, tuned and FSD score of every text by every detector, `CHUNK` texts at a time; or base alone."""
    if not texts:
        raise UsageError("scoring must have at least one text; got none")
    prompts = list(map(as_prompt, texts))
    excluded = not_of_chats(detectors) if chats_of(prompts) else {}
    strings = texts_of(prompts)
    usable(detectors, strings, scorers, inputs, excluded=excluded, strict=True)
    states = ("base", "tuned") if "tuned" in scorers else ("base",)
    computed = _computed_scores(detectors, states)
    count = len(texts)
    parts = defaultdict(list)
    fallbacks = Counter[tuple[Score, str]]()
    with progress(count, "all texts", "text", shown=shown and count > CHUNK) as bar:
        for begin in range(0, count, CHUNK):
            chunk = prompts[begin : begin + CHUNK]
            statistics = ViewStatistics.compute(chunk, detectors, scorers, inputs, states=states)
            for score, detector in computed.items():
                parts[score].append(statistics.scores(detector, score.state))
                for name, texts_with_it in statistics.fallbacks(detector, score.state).items():
                    fallbacks[score, name] += texts_with_it
            bar.update(len(chunk))
    values = {score: np.concatenate(arrays) for score, arrays in parts.items()}
    return ScoreTable(_ordered(values, detectors, states), fallbacks)


def _ordered(values: ScoreColumns, detectors: Detectors, states: Sequence[str]) -> ScoreColumns:
    """The computed scores and the differences of others, detectors that have both kinds of score first."""
    columns: ScoreColumns = {}
    for detector in sorted(detectors, key=lambda detector: detector.paired):
        for state in STATES:
            score = Score(detector.name, state)
            if score in values:
                columns[score] = values[score]
            elif state == FSD and "tuned" in states:
                # Both sides have the same settings, so that it is the difference of what was computed.
                base = values[score._replace(state=BASE)]
                columns[score] = base - values[score._replace(state=TUNED)]
    return columns


def _computed_scores(detectors: Detectors, states: Sequence[str]) -> dict[Score, Detector]:
    """The scores that are no difference of others, with their detectors."""
    computed: dict[Score, Detector] = {}
    for detector in detectors:
        wanted = [FSD] if detector.paired else list(states)
        # The base score has other settings than the FSD, so the FSD is not the difference of base and tuned score.
        if detector.base_settings and not detector.paired and "tuned" in states:
            wanted.append(FSD)
        computed |= {Score(detector.name, state): detector for state in wanted}
    return computed
