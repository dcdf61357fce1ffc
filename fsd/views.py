"""The readings of a text that a detector may ask for by naming them in its signature.

A view is a *reader* (which model or table reads) and a *form* (what it is given to read). The engine computes
each needed (reader, form) pair once for all detectors together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fsd.token_stats import Prompt


class View(NamedTuple):
    """`reader` is one of target, tuned, reference, unigram; `form` is a key of `FORMS`."""

    reader: str
    form: str


@dataclass(frozen=True)
class Material:
    """What forms need besides the text itself.

    Attributes:
        prefix: non-member texts in one string, conditioned on by the form `primed` (ReCaLL's P).
        neighbours: gives the perturbed copies of a text.
    """

    prefix: str = ""
    neighbours: Callable[[str], Sequence[str]] | None = None


def _plain(text: str, _: Material) -> list[Prompt]:
    return [Prompt(text)]


def _lower(text: str, _: Material) -> list[Prompt]:
    return [Prompt(text.lower())]


def _primed(text: str, material: Material) -> list[Prompt]:
    return [Prompt(text, context=material.prefix)]


def _neighbours(text: str, material: Material) -> list[Prompt]:
    assert material.neighbours is not None  # `unavailable` speaks first
    return [Prompt(neighbour) for neighbour in material.neighbours(text)]


FORMS: dict[str, Callable[[str, Material], list[Prompt]]] = {
    "plain": _plain,
    "lower": _lower,
    "primed": _primed,
    "neighbours": _neighbours,
}

VIEWS: dict[str, View] = {
    "text": View("target", "plain"),
    "tuned": View("tuned", "plain"),
    "lower": View("target", "lower"),
    "primed": View("target", "primed"),
    "neighbours": View("target", "neighbours"),
    "reference": View("reference", "plain"),
    "unigram": View("unigram", "plain"),
}
"""Parameter name of a detector → what it is given: one `TokenStats`, or a list of them for `neighbours`."""

LISTS = frozenset({"neighbours"})
"""Forms that read several prompts per text and hand the detector a list."""


def _has_case(texts: Sequence[str]) -> bool:
    letters = cased = 0
    for text in texts:
        letters += sum(map(str.isalpha, text))
        cased += sum(c.lower() != c.upper() for c in text)
    return cased > letters / 2


def unavailable(view: str, texts: Sequence[str], readers: Sequence[str], material: Material) -> str | None:
    """Why `view` cannot be read here, in a few words, or None if it can.

    Args:
        view: a key of `VIEWS`.
        texts: the texts to be scored.
        readers: names of the scorers at hand.
        material: what the forms have to work with.
    """
    reader, form = VIEWS[view]
    if reader not in readers:
        return f"no {reader} {'table' if reader == 'unigram' else 'model'} is given"
    if form == "primed" and not material.prefix:
        return "no prefix of non-member texts is given"
    if form == "neighbours" and material.neighbours is None:
        return "no neighbour model is given"
    if form == "lower" and not _has_case(texts):
        return "the texts' script has no upper and lower case"
    return None
