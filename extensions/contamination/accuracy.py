"""Accuracy of a task of lm-evaluation-harness on its items that are judged seen, and on the others."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fsd.api import AGAINST, SLACK, Corpus, Estimate, Finding, Question, Scorer, Table, observed_rate, plain, score_rows

SIDES = {"seen": "items judged seen", "others": "other items"}
"""Name of a side in numbers → on the page."""
EASY = (
    "An item that is easy for the model scores high too, seen or not: a higher accuracy of the items judged seen does "
    "not by itself show that having seen them helped."
)


def accuracy(
    suspect: Corpus, questions: Sequence[Question], family_p: Sequence[float], level: float, scorer: Scorer
) -> dict[str, float]:
    """Ask the questions, and compare the items judged seen with the others; empty if none can be marked.

    An item is judged seen if the p-value of its family, by its rank among those of the known non-members, is at most
    `level`. `family_p` are those of the families of `suspect`. Gives the number of items of each side, as `seen_items`,
    and if there are any, the share that is answered rightly with its 95 % interval: `seen`, `seen_low`, `seen_high`.
    """
    answers = score_rows(scorer, [question.prompts for question in questions])
    marks = {}
    for question, of_question in zip(questions, answers, strict=True):
        marks[question.origin_url] = question.mark(of_question)
    # A text of the task that cannot be scored, or an answer that cannot be marked, is on neither side.
    right = np.array([marks.get(document.origin_url, np.nan) for document in suspect])
    is_marked = ~np.isnan(right)
    is_seen = np.asarray(family_p)[suspect.family] <= level * (1 + SLACK)
    numbers: dict[str, float] = {}
    if not is_marked.any():
        return numbers
    for side, chosen in (("seen", is_marked & is_seen), ("others", is_marked & ~is_seen)):
        numbers[f"{side}_items"] = int(chosen.sum())
        if chosen.any():
            numbers |= with_ends(side, observed_rate(right[chosen] > 0, suspect.family[chosen].tolist()))
    return numbers


def with_ends(name: str, estimate: Estimate) -> dict[str, float]:
    """An estimate as it is tracked: the number, and the ends of its interval."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def interval(numbers: Mapping[str, float], name: str) -> str:
    """An estimate that was tracked; a dash if there is none."""
    ends = [numbers.get(f"{name}{end}", np.nan) for end in ("", "_low", "_high")]
    if pd.isna(ends).any():
        return "–"
    return str(Estimate(*ends))


def of_side(numbers: Mapping[str, float], name: str) -> str:
    """The accuracy of a side and, in brackets, the number of items."""
    items = numbers.get(f"{name}_items", np.nan)
    if np.isnan(items):
        return "–"
    return f"{interval(numbers, name)} ({items:.0f})"


def table(numbers: Mapping[str, float]) -> Table:
    """One line a side."""
    lines = []
    for side, title in SIDES.items():
        lines.append([title, str(numbers[f"{side}_items"]), interval(numbers, side)])
    return plain(["items", "number", "accuracy [95 % CI]"], lines, caption=EASY, title="accuracy")


def finding(numbers: Mapping[str, float], level: float) -> Finding:
    """Both sides in a sentence, with what chance alone would judge seen."""
    chance = level * sum(numbers[f"{side}_items"] for side in SIDES)
    return Finding(
        f"accuracy as lm-eval counts it: {of_side(numbers, 'seen')} on items judged seen, "
        f"{of_side(numbers, 'others')} on the others; of unseen items alone about {chance:.0f} would be judged seen, "
        "and easy ones are likelier to be",
        AGAINST,
    )
