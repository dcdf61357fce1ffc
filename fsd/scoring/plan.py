"""What is going to be computed on texts: the detectors that can be, why not the others, and the forward passes."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fsd import distributed
from fsd.scores import IN_AUDIT, IN_RUN, StatePair
from fsd.scoring.deviation import ScoreTable, score_texts
from fsd.scoring.scorers import STATES
from fsd.token_stats import Prompt, Scorer
from fsd.views import COMMON, FORMS, PAIRS, Detector, Draws, View, ViewInputs, halves, view_in


@dataclass(frozen=True)
class ScoringPlan:
    """Texts, the detectors that can be computed on them and why not the others, and what they are computed with.

    `draws` is how texts are continued, by form.
    """

    texts: Sequence[str]
    detectors: list[Detector]
    left_out: dict[str, str]
    scorers: Mapping[str, Scorer]
    inputs: ViewInputs
    remarks: list[str]
    contexts: Sequence[str]
    draws: Mapping[str, Draws]
    states: StatePair = IN_RUN

    def score(self) -> ScoreTable:
        """Base, tuned and FSD scores of the texts, in every process of the job."""
        scored = score_texts(
            self.texts,
            self.detectors,
            self.scorers,
            self.inputs,
            contexts=self.contexts,
            shown=distributed.is_main_process(),
        )
        return scored.in_audit() if self.states == IN_AUDIT else scored

    @property
    def passes(self) -> dict[str, int]:
        """Reader (base, tuned, reference) → number of texts that it scores; views that detectors share count once."""
        states = [state for state in STATES if state == "base" or state in self.scorers]
        counts = Counter[str]()
        names = {name for detector in self.detectors for name in detector.views}
        views = {view_in(state, name) for name in names for state in states}
        # A pass over two models gives the statistics of each alone, too.
        by_pairs = [half for view in views for half in halves(view)]
        for half in by_pairs:
            counts[half.reader] += len(self.texts)
        for view in views.difference(by_pairs):
            if view.form not in PAIRS:
                counts.update(self._passes_of(view))
        return dict(sorted(counts.items()))

    def _passes_of(self, view: View) -> dict[str, int]:
        """Reader → number of texts that it scores for a view of one model."""
        if view.form in self.draws:
            draws = self.draws[view.form]
            tokens = self._generated_tokens(view.form, draws)
            return {f"{view.reader} generating about {tokens:,} tokens": draws.total * len(self.texts)}
        if view.form == "gradient":
            return {f"{view.reader} with gradients": len(self.texts)}
        # a table is no model
        if view.reader == "unigram":
            return {}
        readers = (view.reader, "reference") if view.form == "unread" else (view.reader,)
        return dict.fromkeys(readers, self._prompts(view.form))

    def _prompts(self, form: str) -> int:
        """The prompts of a form for all texts, each of which has as many as the first one."""
        prompts = len(FORMS[form](Prompt(next(iter(self.texts), "")), self.inputs))
        return prompts if form in COMMON else prompts * len(self.texts)

    def _generated_tokens(self, form: str, draws: Draws) -> int:
        """Tokens of all continuations of a form."""
        from fsd.scoring.api import BYTES_PER_TOKEN

        if draws.tokens:
            return draws.total * draws.tokens * len(self.texts)
        # By default a continuation is as long as the text's own, whose tokens are estimated from its bytes.
        halves = [FORMS[form](Prompt(text), self.inputs)[0] for text in self.texts]
        return draws.total * sum(math.ceil(len(half.text.encode()) / BYTES_PER_TOKEN) for half in halves)
