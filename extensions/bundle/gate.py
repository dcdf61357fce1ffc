"""The gate: conditions on the numbers of an answer, under which the command ends with exit status 1."""

import math
import operator
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fsd.api import UsageError, one_of
from pipelines.api import evidences

SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
FORM = re.compile(r"\s*([a-z_]+)\s*(<=|>=|<|>)\s*(-?\d*\.?\d+)\s*")


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
    numbers = evidences()[command].numbers
    if name not in numbers:
        raise UsageError(one_of(f"fail-if of fsd {command}", numbers, name))
    return Condition(name, sign, float(limit))


def failures(command: str, numbers: Mapping[str, float | None], asked: Mapping[str, Any]) -> list[str]:
    """How an answer with these numbers fails the conditions that are asked."""
    reasons = [parse(command, text).failure(numbers) for text in asked.get("fail_if", ())]
    return list(filter(None, reasons))
