"""Views of a text: the token statistics that a detector asks for by naming them in its signature.

A view is a *reader* (the model or table that scores) and a *form* (what of the text it scores). Each needed
(reader, form) pair is computed once for all detectors together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fsd.token_stats import Prompt


class View(NamedTuple):
    """`reader` is one of base, tuned, reference, unigram; `form` is a key of `FORMS`."""

    reader: str
    form: str


@dataclass(frozen=True)
class ViewInputs:
    """What forms need besides the text itself.

    Attributes:
        prefix: non-member texts in one string, the context of the form `primed` (ReCaLL's P).
        neighbours: text → its perturbed copies.
    """

    prefix: str = ""
    neighbours: Callable[[str], Sequence[str]] | None = None


def _neighbours(text: str, inputs: ViewInputs) -> list[Prompt]:
    assert inputs.neighbours is not None  # checked earlier by `unavailable`
    return [Prompt(neighbour) for neighbour in inputs.neighbours(text)]


FORMS: dict[str, Callable[[str, ViewInputs], list[Prompt]]] = {
    "plain": lambda text, _: [Prompt(text)],
    "lower": lambda text, _: [Prompt(text.lower())],
    "primed": lambda text, inputs: [Prompt(text, context=inputs.prefix)],
    "neighbours": _neighbours,
}

VIEWS: dict[str, View] = {
    "text": View("base", "plain"),
    "tuned": View("tuned", "plain"),
    "lower": View("base", "lower"),
    "primed": View("base", "primed"),
    "neighbours": View("base", "neighbours"),
    "reference": View("reference", "plain"),
    "unigram": View("unigram", "plain"),
}
"""Parameter name of a detector → its view for base scores; for tuned scores the tuned model takes the base's place.

The argument is one `TokenStats`, or a list of them for `neighbours`."""

LISTS = frozenset({"neighbours"})
"""Forms of several prompts per text, for which the detector receives a list."""


def view_in(state: str, name: str) -> View:
    """The view of that name for scores in a state of the model, "base" or "tuned"."""
    view = VIEWS[name]
    return View(state, view.form) if view.reader == "base" else view


def _has_case(texts: Sequence[str]) -> bool:
    letters = cased = 0
    for text in texts:
        letters += sum(map(str.isalpha, text))
        cased += sum(c.lower() != c.upper() for c in text)
    return cased > letters / 2


def unavailable(view: str, texts: Sequence[str], readers: Sequence[str], inputs: ViewInputs) -> str | None:
    """Why `view` cannot be computed, in a few words; None if it can.

    Args:
        view: a key of `VIEWS`.
        texts: the texts to be scored.
        readers: names of the available scorers.
        inputs: what the forms need besides the texts.
    """
    reader, form = VIEWS[view]
    if reader not in readers:
        return f"no {reader} {'table' if reader == 'unigram' else 'model'} is given"
    if form == "primed" and not inputs.prefix:
        return "no prefix of non-member texts is given"
    if form == "neighbours" and inputs.neighbours is None:
        return "no neighbour model is given"
    if form == "lower" and not _has_case(texts):
        return "the texts' script has no upper and lower case"
    return None
