"""What is scored of texts: the texts, or of chats the whole and the answers alone, both from one pass."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from fsd.scoring.model import Model
from fsd.scoring.scorers import STATES
from fsd.token_stats import PairStats, Prompt, Prompts, Scorer, TokenStats, scored_prompts
from fsd.views import PAIRS

Statistics = TokenStats | PairStats
TEXT = "text"
ANSWERS = "answers"
WHOLE = "whole"


def scoring(model: Model, part: str) -> Model:
    """The model, scoring this part of chats; texts are scored as they are."""
    if part == TEXT:
        return model
    config = replace(model.config, chats=part)  # type: ignore[arg-type] # one of its two values
    return replace(model, config=config)


def read_once(model: Model) -> Model:
    """The model, whose scorers read each chat whole, once, whatever is scored of it."""
    names = {*STATES, "reference"}
    for state in STATES:
        names.update(f"{state}.{form}" for form in PAIRS)
    scorers = dict(model.scorers)
    for name in names.intersection(scorers):
        scorers[name] = ReadOnce(scorers[name], model.language_model.read)
    return replace(model, scorers=scorers)


@dataclass(eq=False)
class ReadOnce:
    """A scorer that keeps what it has read of whole chats, and gives what is scored of them."""

    scorer: Scorer
    read: Callable[[Prompts], list[Prompt]]
    kept: dict[Prompt, Statistics] = field(default_factory=dict)

    def __call__(self, prompts: Prompts) -> Iterator[Statistics]:
        """Statistics of each prompt, in order."""
        wholes = scored_prompts(prompts, whole=True)
        missing = [whole for whole in dict.fromkeys(wholes) if whole not in self.kept]
        if missing:
            computed = self.scorer(missing)
            self.kept |= zip(missing, computed, strict=True)
        for prompt, whole in zip(prompts, wholes, strict=True):
            statistics = self.kept[whole]
            if prompt != whole:
                statistics = self._part(prompt, whole)
            yield statistics

    def _part(self, prompt: Prompt, whole: Prompt) -> Statistics:
        """The statistics of those tokens of a whole chat that are scored of it."""
        part, every = (written.marked for written in self.read([prompt, whole]))
        assert part is not None
        assert every is not None
        # A template with marks for training may write other tokens.
        if part.ids != every.ids:
            statistics: Statistics = next(iter(self.scorer([prompt])))
            return statistics
        # Nothing predicts the first token, which has no statistics.
        chosen = np.array(part.scored[1:])
        return self.kept[whole].take(chosen).of_text(prompt.text)
