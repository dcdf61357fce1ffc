"""How a text is written, apart from its words: letter case, digits, punctuation, layout; and edits that keep the words.

A language model reads capitals or missing punctuation as other tokens. A score of such a text has another distribution,
although its words are those of the benchmark.
"""

import random
import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np

from fsd.data.documents import Texts
from fsd.token_stats import FloatArray
from fsd.unspaced import spelled

MEASURES = (
    "capital letters",
    "words with a capital",
    "digits",
    "punctuation",
    "white space",
    "line breaks",
    "wide gaps",
    "repeated phrases",
    "open ends",
    "open beginnings",
)
"""Names of the measures of `writing`, in their order."""
CHARACTERS = 20_000
"""Beginning of a text that is measured."""
PHRASE = 4
"""Words of a phrase that counts as repeated when it occurs again."""

_GAP = re.compile(r"\s+")
_WORD = re.compile(spelled(r"^\W\d_"))
_CLOSING = "\"'”’»)]} \t\n"
"""Signs that may follow the end of a last sentence."""


def writing(texts: Texts) -> FloatArray:
    """(N, 10) shares from 0 to 1 that say how each of N texts is written, one column for each of `MEASURES`.

    A share of nothing, such as that of capitals in a script without case, is 0.
    """
    rows = [_shares(text[:CHARACTERS], complete=len(text) <= CHARACTERS) for text in texts]
    return np.array(rows, dtype=np.float64).reshape(len(texts), len(MEASURES))


def _shares(text: str, *, complete: bool) -> list[float]:
    # A text has few distinct signs: each is looked at once.
    signs = Counter(text)
    upper = _number(signs, str.isupper)
    lower = _number(signs, str.islower)
    visible = len(text) - _number(signs, str.isspace)
    digits = _number(signs, str.isdigit)
    punctuation = _number(signs, lambda sign: unicodedata.category(sign)[0] in "PS")
    words = _WORD.findall(text)
    cased = [word for word in words if word[0].isupper() or word[0].islower()]
    capitalised = sum(word[0].isupper() for word in cased)
    gaps = _GAP.findall(text.strip())
    broken = sum("\n" in gap or "\r" in gap for gap in gaps)
    wide = sum(len(gap) > 1 for gap in gaps)
    # the end of a text that is longer than what is measured is not its end
    end = ""
    if complete:
        end = text.rstrip(_CLOSING)[-1:]
    opening = "".join(words[:1])[:1]
    return [
        _share(upper, upper + lower),
        _share(capitalised, len(cased)),
        _share(digits, visible),
        _share(punctuation, visible),
        _share(len(text) - visible, len(text)),
        _share(broken, len(gaps)),
        _share(wide, len(gaps)),
        _repeated(words),
        # A vowel sign at the end belongs to a letter.
        float(end != "" and unicodedata.category(end)[0] in "LMN"),
        float(opening.islower()),
    ]


def _number(signs: Counter[str], is_counted: Callable[[str], bool]) -> int:
    """The number of signs of a kind in a text."""
    return sum(count for sign, count in signs.items() if is_counted(sign))


def _share(part: int, whole: int) -> float:
    if whole:
        return part / whole
    return 0.0


def _repeated(words: Sequence[str]) -> float:
    """Share of the phrases of a text that occurred before in it."""
    shifted = (words[start:] for start in range(PHRASE))
    phrases = list(zip(*shifted, strict=False))
    return _share(len(phrases) - len(set(phrases)), len(phrases))


def spread_out(shares: FloatArray) -> FloatArray:
    """Shares on a scale on which their spread depends little on their size (arcsine of the square root)."""
    return np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0)))


# Edits that keep the words

LICENCE = (
    "Permission is hereby granted, free of charge, to any person obtaining a copy of this work, to deal in it without "
    "restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense "
    "and sell copies of it, subject to the following conditions: the above copyright notice and this permission notice "
    "shall be included in all copies or substantial portions of the work. It is provided as it is, without warranty of "
    "any kind, express or implied."
)
"""A notice such as stands in front of many texts."""
ERRORS = 0.05
"""Share of the letters that `typing errors` exchange for another letter."""
LINE = 40
"""Characters of a line of `other line breaks`."""

Edit = Callable[[str, str], str]
"""A text and another one of its kind → the edited text."""


def _halves(text: str) -> tuple[str, str]:
    """The text in two, between words where it has spaces."""
    middle = max(1, len(text) // 2)  # one character is not cut
    space = text.find(" ", middle)
    if space < 0:
        return text[:middle], text[middle:]
    return text[:space], text[space:]


def _half_in_capitals(text: str, _: str) -> str:
    begin, end = _halves(text)
    return begin.upper() + end


def _title_case(text: str, _: str) -> str:
    return _WORD.sub(lambda word: word[0].capitalize(), text)


def _without_punctuation(text: str, _: str) -> str:
    return "".join(sign for sign in text if unicodedata.category(sign)[0] != "P")


def _other_line_breaks(text: str, _: str) -> str:
    if "\n" in text.strip():
        return " ".join(text.split())
    return "\n".join(textwrap.wrap(text, LINE))


def _typing_errors(text: str, _: str) -> str:
    rng = random.Random(0)
    letters = list(filter(str.isalpha, text))
    typed = []
    for sign in text:
        if sign.isalpha() and rng.random() < ERRORS:
            typed.append(rng.choice(letters))
        else:
            typed.append(sign)
    return "".join(typed)


EDITS: MappingProxyType[str, Edit] = MappingProxyType(
    {
        "capitals": lambda text, _: text.upper(),
        "half in capitals": _half_in_capitals,
        "title case": _title_case,
        "no punctuation": _without_punctuation,
        "other line breaks": _other_line_breaks,
        "first half": lambda text, _: _halves(text)[0],
        "doubled": lambda text, _: f"{text}\n\n{text}",
        "two texts joined": lambda text, further: f"{text}\n\n{further}",
        "a licence in front": lambda text, _: f"{LICENCE}\n\n{text}",
        "typing errors": _typing_errors,
    }
)
"""Name → an edit that keeps the words, or most of them."""


def edited(texts: Texts) -> dict[str, list[str]]:
    """Edit → the N texts after it; one that leaves every text as it is, such as capitals in Chinese, is left out."""
    shifted = list(texts[1:])
    shifted += texts[:1]
    results = {}
    for name, edit in EDITS.items():
        changed = list(map(edit, texts, shifted))
        if changed != list(texts):
            results[name] = changed
    return results
