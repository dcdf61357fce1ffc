"""Which score to trust within one period, from what is known before any label: which scores can be computed at all.

The order is the one that the laboratory found there, where membership is all that differs (docs/lab.md): a reference
model with the tokenizer of the target helps more than fine-tuning does, and both together help most. It was found on
small targets; on a real model, with its earlier checkpoint as the reference, the plain ratio to the reference was
better (docs/contrasts.md). Against later texts scores differ in more than membership, and none is advised.
"""

from collections.abc import Collection
from typing import NamedTuple

ORDER = (
    (
        "combined.fsd",
        "it was best on small targets of our own only; if the reference is an earlier checkpoint or a near relative of "
        "the model, trust reference, base score",
    ),
    ("min_k_reference.base", "it compares each token with a reference model; fine-tuning would add to it"),
    ("min_k_pp.base", "no reference model with the same tokenizer is given, which would tell more (--reference-model)"),
    ("min_k.base", "neither a reference model nor the whole distribution of the next token is given"),
    ("loss.base", "nothing better can be computed"),
)
"""Score, the best first, and the reason to take it."""


class Advice(NamedTuple):
    """A score and the reason to trust it.

    Attributes:
        score: `<detector>.base` or `<detector>.fsd`.
        reason: in a few words.
    """

    score: str
    reason: str

    def __str__(self) -> str:
        """One line for the terminal and the report."""
        detector, _, state = self.score.rpartition(".")
        which = f"{detector}{' FSD' if state == 'fsd' else ', base score'}"
        return (
            f"advice without labels, within one period: trust {which}: {self.reason}; against later texts no score is "
            "advised"
        )


def advise(scores: Collection[str]) -> Advice | None:
    """The score to trust within one period, of those computed; None if none of those in `ORDER` was.

    Args:
        scores: names as `loss.base` and `combined.fsd`.
    """
    return next((Advice(score, reason) for score, reason in ORDER if score in scores), None)
