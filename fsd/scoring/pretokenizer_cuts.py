"""Positions at which a text can be cut without changing its tokens, for the tokenizers for which they are known.

A pre-tokenizer cuts a text into pieces by a pattern, and no later step joins two pieces. If no match of the pattern can
contain two neighbouring bytes, the text can be cut between them, provided that the pattern looks ahead of its matches
at whitespace only, which stays together with the word that follows.
"""

import json
import re
import string
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

CUT = 1
"""Flag of two bytes between which a text can be cut."""
MAYBE_SPACE = 2
"""Flag of two bytes that may end whitespace outside ASCII, after which there is no cut."""
INDENT = 4
"""Flag of whitespace and a space: a text can be cut between them if the space is `LAST`."""
LAST = 8
"""Flag of a space followed by no whitespace."""

_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
SEPARATING = frozenset(
    {
        _GPT_2,
        _LLAMA_3,
        _LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}"),
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    }
)
"""Patterns (GPT-2 and NeoX, Llama 3, Qwen, GPT-4o) without a match across a cut, see `_pairs`, and with no look-ahead
but for whitespace."""
PIECE = "^ ?(?:[A-Z]*[a-z]+|[A-Z]+)$"
"""Words that are one match of any of the patterns."""

_DIGITS, _LETTERS, _SPACES = (
    frozenset(letters.encode()) for letters in (string.digits, string.ascii_letters, string.whitespace)
)
_BREAKS = frozenset(b"\r\n")
_MARKS = frozenset(range(128)) - _DIGITS - _LETTERS - _SPACES
_BEYOND = frozenset(range(128, 256))
JOINED = re.compile(r"\S\s")
SPACES_BEYOND = (
    "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode White_Space outside ASCII."""


@dataclass(frozen=True)
class Cuts:
    """The cuts of one tokenizer.

    Attributes:
        flags: (65536,) sums of `CUT`, `MAYBE_SPACE`, `INDENT` and `LAST`, at 256·b + c for a byte b before a byte c.
        pieces: faster tokenizer with the same tokens for words that match `PIECE`, one word a line and "Ġ" for a
            space; None if there is none.
    """

    flags: NDArray[np.uint8]
    pieces: Any

    def words(self, texts: Sequence[bytes]) -> tuple[bytes, NDArray[np.int64]]:
        """The concatenated texts, none of them empty, and the offsets of the words in them, with the end."""
        data = b"".join(texts)
        code = np.frombuffer(data, np.uint8)
        pairs = code[:-1].astype(np.uint16)
        pairs <<= 8
        pairs |= code[1:]
        flags = self.flags[pairs]
        borders = np.cumsum([len(text) for text in texts[:-1]], dtype=np.int64)
        flags[borders - 1] = CUT
        begins = np.empty(code.size, dtype=np.bool_)
        begins[0] = True
        np.bitwise_and(flags, CUT, out=begins[1:].view(np.uint8))
        begins[2:] &= flags[:-1] & MAYBE_SPACE == 0
        begins[1:-1] |= flags[:-1] & INDENT & flags[1:] // (LAST // INDENT) != 0
        begins[borders] = True
        return data, np.append(np.flatnonzero(begins), code.size)


def cuts(backend: Any) -> Cuts | None:
    """The cuts at which a tokenizer gives the same tokens; None if they are not known.

    It must have a pattern of `SEPARATING`, a normaliser that neither adds whitespace nor composes ASCII with what
    precedes it, and added tokens that do not depend on their surroundings. There is no cut within an added token.
    """
    state = json.loads(backend.to_str())
    steps = _steps(state["pre_tokenizer"])
    if state["model"].get("dropout") or not _split(steps) or not _composes(state["normalizer"]):
        return None
    added = state["added_tokens"]
    for token in added:
        plain = state["normalizer"] is None or (token["content"].isascii() and not JOINED.search(token["content"]))
        if token["rstrip"] or token["single_word"] or not plain:
            return None
    flags = _pairs(gpt_2=all(step["type"] == "ByteLevel" or _pattern(step) in (None, _GPT_2) for step in steps))
    for token in added:
        code = token["content"].encode()
        flags[[256 * b + c for b, c in pairwise(code)]] &= MAYBE_SPACE
        flags[256 * ord(" ") + code[0]] &= ~np.uint8(LAST)  # whitespace before an added token stays together
    short = steps[-1]["type"] == "ByteLevel" and not any(
        re.fullmatch(" ?[A-Za-z]*", token["content"]) for token in added
    )
    return Cuts(flags, _of_pieces(backend, state) if short else None)


def _of_pieces(backend: Any, state: dict[str, Any]) -> Any:
    lines = {"type": "CharDelimiterSplit", "delimiter": "\n"}
    bare: dict[str, Any] = {
        "added_tokens": [],
        "normalizer": None,
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    return type(backend).from_str(json.dumps({**state, **bare, "pre_tokenizer": lines}))


def _pairs(*, gpt_2: bool) -> NDArray[np.uint8]:
    """(65536,) flags of two bytes. The second byte of a cut is ASCII, which composes with nothing before it.

    No match continues from a letter or digit to whitespace or a mark (except an apostrophe), from a letter or mark to a
    digit, from a digit to a letter, or from a mark to whitespace other than a line break. With GPT-2's pattern, none
    continues from a mark (except an apostrophe) to a line break or letter either. The last space of a run of whitespace
    belongs to the word that follows, or is a piece of its own before a digit.
    """
    flags = np.zeros((256, 256), dtype=np.uint8)

    def add(flag: int, before: Set[int], after: Set[int]) -> None:
        flags[np.ix_(sorted(before), sorted(after))] |= flag

    ascii_marks = _MARKS - {ord("'")}
    add(CUT, _LETTERS | _DIGITS, _SPACES | ascii_marks)
    add(CUT, _MARKS | _BEYOND, _SPACES - _BREAKS)
    add(CUT, _LETTERS | _MARKS, _DIGITS)
    add(CUT, _DIGITS, _LETTERS)
    if gpt_2:
        add(CUT, ascii_marks, _BREAKS | _LETTERS)
    add(INDENT, _SPACES, {ord(" ")})
    add(LAST, {ord(" ")}, _LETTERS | _DIGITS | _MARKS)
    for space in SPACES_BEYOND:
        before, last = space.encode()[-2:]
        flags[before, last] |= MAYBE_SPACE
    return flags.reshape(-1)


def _steps(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    return step.get("pretokenizers", [step]) if step else []


def _split(steps: Sequence[dict[str, Any]]) -> bool:
    """Whether one step of a pre-tokenizer separates and no other step undoes it."""
    harmless = (
        _separates(step) or step["type"] == "Digits" or (step["type"] == "ByteLevel" and step is steps[-1])
        for step in steps
    )
    return any(map(_separates, steps)) and all(harmless) and not any(step.get("add_prefix_space") for step in steps)


def _separates(step: dict[str, Any]) -> bool:
    if step["type"] == "ByteLevel":
        return bool(step["use_regex"])
    way = (step.get("behavior"), step.get("invert"))
    return _pattern(step) in SEPARATING and way in (("Isolated", False), ("Removed", True))


def _pattern(step: dict[str, Any]) -> str | None:
    return step["pattern"].get("Regex") if step["type"] == "Split" else None


def _composes(normalizer: dict[str, Any] | None) -> bool:
    forms = normalizer.get("normalizers", [normalizer]) if normalizer else []
    return all(form["type"] in ("NFC", "NFD") for form in forms)
