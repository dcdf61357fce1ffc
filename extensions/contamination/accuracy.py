"""Accuracy of a task of lm-evaluation-harness on its items that are judged seen, and on the others."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fsd.data.corpus import Corpus
from fsd.evaluation.findings import AGAINST, Finding
from fsd.plugs import Question
from fsd.reporting.report import Table, plain
from fsd.statistics.intervals import Estimate, observed_rate
from fsd.statistics.multiplicity import SLACK
from fsd.token_stats import BoolArray, IntArray, Scorer, score_rows

PREFIX = "contamination_accuracy"
SIDES = {"seen": "items judged seen", "others": "other items"}
"""Name of a side in numbers → on the page."""
EASY = (
    "An item that is easy for the model scores high too, seen or not: a higher accuracy of the items judged seen does "
    "not by itself show that having seen them helped."
)


class Side(NamedTuple):
    """Items of one side: their number, and the share that is answered rightly, if there are any."""

    items: int
    accuracy: Estimate | None

    def __str__(self) -> str:
        """The accuracy and, in brackets, the number of items."""
        return f"{self.accuracy or '–'} ({self.items})"


class Accuracy(NamedTuple):
    """Accuracy on the items that are judged seen, and on the others."""

    seen: Side
    others: Side

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers under the names by which they are tracked."""
        numbers = {}
        for name, side in self._asdict().items():
            numbers[f"{PREFIX}/{name}_items"] = side.items
            if side.accuracy:
                numbers[f"{PREFIX}/{name}"] = side.accuracy.value
                numbers[f"{PREFIX}/{name}_low"] = side.accuracy.low
                numbers[f"{PREFIX}/{name}_high"] = side.accuracy.high
        return numbers

    @property
    def table(self) -> Table:
        """One line a side."""
        lines = []
        for name, side in self._asdict().items():
            lines.append([SIDES[name], str(side.items), str(side.accuracy or "–")])
        return plain(["items", "number", "accuracy [95 % CI]"], lines, caption=EASY, title="accuracy", name="")

    def finding(self, level: float) -> Finding:
        """Both sides in a sentence, with what chance alone would judge seen."""
        chance = level * (self.seen.items + self.others.items)
        return Finding(
            f"accuracy as lm-eval counts it: {self.seen} on items judged seen, {self.others} on the others; of unseen "
            f"items alone about {chance:.0f} would be judged seen, and easy ones are likelier to be",
            AGAINST,
        )


def tracked(metrics: Mapping[str, float]) -> Accuracy | None:
    """The accuracy that `Accuracy.metrics` left; None where none was computed."""
    if f"{PREFIX}/seen_items" not in metrics:
        return None
    return Accuracy(_tracked_side(metrics, "seen"), _tracked_side(metrics, "others"))


def _tracked_side(metrics: Mapping[str, float], side: str) -> Side:
    name = f"{PREFIX}/{side}"
    items = int(metrics[f"{name}_items"])
    # A side without items has no accuracy.
    if not items:
        return Side(0, None)
    return Side(items, Estimate(metrics[name], metrics[f"{name}_low"], metrics[f"{name}_high"]))


def accuracy(
    suspect: Corpus, questions: Sequence[Question], family_p: Sequence[float], level: float, scorer: Scorer
) -> Accuracy | None:
    """Ask the questions, and compare the items judged seen with the others; None if none can be marked.

    An item is judged seen if the p-value of its family, by its rank among those of the known non-members, is at most
    `level`. `family_p` are those of the families of `suspect`.
    """
    marks = mark(questions, scorer)
    # A text of the task that cannot be scored, or an answer that cannot be marked, is on neither side.
    marked = [place for place, document in enumerate(suspect) if document.origin_url in marks]
    if not marked:
        return None
    right = np.array([marks[suspect[place].origin_url] for place in marked])
    family = suspect.family[marked]
    is_seen = np.asarray(family_p)[family] <= level * (1 + SLACK)
    return Accuracy(_side(right, family, is_seen), _side(right, family, ~is_seen))


def _side(right: BoolArray, family: IntArray, chosen: BoolArray) -> Side:
    if not chosen.any():
        return Side(0, None)
    return Side(int(chosen.sum()), observed_rate(right[chosen], family[chosen].tolist()))


def mark(questions: Sequence[Question], scorer: Scorer) -> dict[str, bool]:
    """Origin of each question that can be marked → whether the model answers it rightly."""
    marks = {}
    answers = score_rows(scorer, [question.prompts for question in questions])
    for question, of_question in zip(questions, answers, strict=True):
        value = question.mark(of_question)
        if not np.isnan(value):
            marks[question.origin_url] = bool(value)
    return marks
