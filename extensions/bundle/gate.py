"""The gate: conditions on the numbers of an answer, under which the command ends with exit status 1."""

import math
import operator
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fsd.api import UsageError, one_of

NUMBERS = {
    "run": {
        "auc": "area under the ROC curve of the best score",
        "low": "lower end of its 95 % interval",
        "high": "upper end of its 95 % interval",
        "blind": "the same area of a classifier that never sees the model",
        "control": "the same area of the control model",
        "found": "share of the training texts found at 5 % false calls",
    },
    "adapter-audit": {
        "auc": "area under the ROC curve of the best score",
        "low": "lower end of its 95 % interval",
        "high": "upper end of its 95 % interval",
        "blind": "the same area of a classifier that never sees the model",
        "base": "the same area of the base model, which never saw the fine-tuning data",
        "found": "share of the fine-tuning texts found at 5 % false calls",
        "called": "texts without a label that are called fine-tuning data",
        "share": "share of the judged texts that are called",
    },
    "contamination": {
        "p": "smallest p-value, corrected for the number of tests",
        "share": "estimated share of the data set that was trained on",
        "blind": "area under the ROC curve of a classifier that never sees the model",
    },
    "detect": {
        "found": "texts called members",
        "share": "share of the judged texts that are called",
        "judged": "texts with a verdict",
        "selected": "texts selected at the false discovery rate",
        "p": "p-value of all texts together, with --known",
    },
    "overlap": {
        "found": "texts that share n-grams with the corpus",
        "texts": "share of the texts that do",
        "share": "share of the n-grams that occur in the corpus",
        "longest": "words of the longest passage",
    },
    "extract": {
        "share": "share of the work that can be extracted at p ≥ 0.1 %",
        "control": "the same share of the control",
        "highest": "probability of the most probable passage",
        "words": "with prompts: most words of a work in a row that were returned",
        "words_control": "the same of the control works",
        "p": "with prompts: rank of the work among the control works, as a p-value, corrected for the number of works",
    },
    "canary test": {
        "p": "smallest p-value of all documents, corrected for the number of detectors",
        "found": "share of the documents found at the level alpha",
    },
}
"""Command → name of a number of its answer → what it is."""
SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
FORM = re.compile(r"\s*([a-z_]+)\s*(<=|>=|<|>)\s*(\S+)\s*")


class Condition(NamedTuple):
    """A condition under which an answer fails."""

    name: str
    sign: str
    limit: float

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.limit:g}"

    def failure(self, numbers: Mapping[str, float | None]) -> str:
        """How an answer with these numbers fails; "" if it does not."""
        number = numbers.get(self.name)
        # An answer that has no such number must not pass for a good one.
        if number is None or math.isnan(number):
            return f"the answer has no number {self.name}, so that `{self}` cannot be decided"
        if SIGNS[self.sign](number, self.limit):
            return f"{self.name} is {number:.4g}; the limit is `{self}`"
        return ""


def parse(command: str, text: str) -> Condition:
    """A condition as it is typed; a UsageError for one that no answer of the command can meet."""
    parts = FORM.fullmatch(text)
    if not parts:
        raise UsageError(f'fail-if must look like "auc > .55", with {", ".join(SIGNS)}; got {text!r}')
    name, sign, limit = parts.groups()
    if name not in NUMBERS[command]:
        raise UsageError(one_of(f"fail-if of fsd {command}", NUMBERS[command], name))
    try:
        number = float(limit)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"fail-if must compare with a finite number; got {text!r}")
    return Condition(name, sign, number)


def failures(command: str, numbers: Mapping[str, float | None], asked: Mapping[str, Any]) -> list[str]:
    """How an answer with these numbers fails the conditions that are asked."""
    reasons = [parse(command, text).failure(numbers) for text in asked.get("fail_if", ())]
    return list(filter(None, reasons))
