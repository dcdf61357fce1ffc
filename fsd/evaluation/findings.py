"""A finding: a sentence of a result, and whether it speaks for the result or against it."""

from collections.abc import Iterable
from typing import NamedTuple

FOR = True
AGAINST = False


class Finding(NamedTuple):
    """A sentence of a result; the short form of the terminal shows those with a sign, after ✓ or !."""

    text: str
    sign: bool | None = None  # FOR what speaks for the result, AGAINST what speaks against it or limits it
    short: str = ""  # of the short form; by default the whole sentence


def as_findings(texts: Iterable[str], sign: bool | None = None) -> list[Finding]:
    """The sentences as findings of one sign, or of none."""
    return [Finding(text, sign) for text in texts]
