"""What is going to be computed on texts: the detectors that can be, why not the others, and the forward passes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fsd import distributed
from fsd.scores import IN_AUDIT, IN_RUN, StatePair
from fsd.scoring.deviation import ScoreTable, needed_views, score_texts
from fsd.scoring.scorers import STATES
from fsd.scoring.services import about_tokens
from fsd.token_stats import Prompt, Prompts, Scorers
from fsd.views import FORMS, Detector, Draws, View, ViewInputs


@dataclass(frozen=True)
class ScoringPlan:
    """Texts, the detectors that can be computed on them and why not the others, and what they are computed with.

    `draws` is how texts are continued, by form.
    """

    prompts: Prompts
    detectors: list[Detector]
    left_out: dict[str, str]
    scorers: Scorers
    inputs: ViewInputs
    remarks: list[str]
    draws: Mapping[str, Draws]
    states: StatePair = IN_RUN

    def score(self) -> ScoreTable:
        """Base, tuned and FSD scores of the texts, in every process of the job."""
        scored = score_texts(
            self.prompts, self.detectors, self.scorers, self.inputs, shown=distributed.is_main_process()
        )
        if self.states == IN_AUDIT:
            return scored.in_audit()
        return scored

    @property
    def asked(self) -> dict[str, dict[Prompt, None]]:
        """Scorer of the base model → the prompts that it reads, each once, even if two views of a text are the same."""
        asked: dict[str, dict[Prompt, None]] = {}
        names: set[str] = set()
        for detector in self.detectors:
            names.update(detector.views)
        for view in sorted(map(View.named, names)):
            if view.reader == "base":
                prompts = asked.setdefault(view.scorer, {})
                for prompt in self.prompts:
                    prompts.update(dict.fromkeys(view.record.prompts(prompt, self.inputs)))
        return asked

    @property
    def passes(self) -> dict[str, int]:
        """Reader (base, tuned, reference) → number of texts that it scores; views that detectors share count once."""
        states = STATES if "tuned" in self.scorers else ("base",)
        views = needed_views(self.detectors, states)
        # A pass over two models gives the statistics of each alone, too.
        covered: set[View] = set()
        for view in views:
            covered.update(view.halves)
        counts = Counter[str]()
        for view in views:
            if view not in covered:
                counts.update(self._passes_of(view))
        return dict(sorted(counts.items()))

    def _passes_of(self, view: View) -> dict[str, int]:
        """Reader → number of texts that it scores for a view."""
        form = view.form
        reader = view.reader
        texts = len(self.prompts)
        if form in self.draws:
            draws = self.draws[form]
            tokens = self._generated_tokens(form, draws)
            return {f"{reader} generating about {tokens:,} tokens": draws.total * texts}
        if view.record.gradient:
            return {f"{reader} with gradients": texts}
        # A table is no model.
        if reader == "unigram":
            return {}
        readers = [half.reader for half in view.scored.halves] or [reader]
        return dict.fromkeys(readers, self._prompts(form))

    def _prompts(self, form: str) -> int:
        """The prompts of a form for all texts, each of which has as many as any other."""
        example = next(iter(self.prompts), Prompt(""))
        prompts = len(FORMS[form].prompts(example, self.inputs))
        if FORMS[form].common:
            return prompts
        return prompts * len(self.prompts)

    def _generated_tokens(self, form: str, draws: Draws) -> int:
        """Tokens of all continuations of a form."""
        if draws.tokens:
            return draws.total * draws.tokens * len(self.prompts)
        tokens = 0
        for prompt in self.prompts:
            # By default a continuation is as long as the text's own, whose tokens are estimated from its bytes.
            continued = FORMS[form].prompts(prompt, self.inputs)[0]
            tokens += about_tokens(continued.text)
        return draws.total * tokens
