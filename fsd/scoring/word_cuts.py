"""Where a text can be cut so that its words, tokenised one by one, have the tokens of the whole text.

This is known for the tokenizers of a few families, whose patterns are compared letter by letter. A cut is found by two
neighbouring bytes alone, so that a table finds the cuts of a whole corpus in numpy.
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

from fsd.files import JSON
from fsd.token_stats import IntArray

Flags = NDArray[np.uint8]
# A component of a tokenizer, as in its file.
State = JSON

# Flag of two bytes between which a text can be cut.
CUT = 1
# Flag of two bytes that may end whitespace outside ASCII, after which there is no cut.
MAYBE_SPACE = 2

_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_QWEN = _LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")
_GPT_4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Patterns (GPT-2 and NeoX, Llama 3, Qwen, GPT-4o) without a match across a cut, see `_pairs`, and with no look-ahead
# but for whitespace.
SEPARATING = frozenset({_GPT_2, _LLAMA_3, _QWEN, _GPT_4O})
# Words that are one match of any of the patterns.
PIECE = "^ ?(?:[A-Z]*[a-z]+|[A-Z]+)$"

_DIGITS = frozenset(string.digits.encode())
_LETTERS = frozenset(string.ascii_letters.encode())
_SPACES = frozenset(string.whitespace.encode())
_BREAKS = frozenset(b"\r\n")
_MARKS = frozenset(range(128)) - _DIGITS - _LETTERS - _SPACES
_BEYOND = frozenset(range(128, 256))
# Unicode White_Space outside ASCII.
SPACES_BEYOND = (
    "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)


@dataclass(frozen=True)
class Cuts:
    """The cuts of one tokenizer."""

    flags: Flags  # (65536,) sums of `CUT` and `MAYBE_SPACE`, at 256·b + c for a byte b before a byte c
    pieces: Any  # a faster tokenizer with the same tokens for words that match `PIECE`: a word a line, "Ġ" for a space

    def words(self, texts: Sequence[bytes]) -> tuple[bytes, IntArray]:
        """The concatenated texts, none of them empty, and the offsets of the words in them, with the end."""
        data = b"".join(texts)
        code = np.frombuffer(data, np.uint8)
        # Shifted and joined in place: a corpus is large, and further copies of it would cost as much as the table.
        pairs = code[:-1].astype(np.uint16)
        pairs <<= 8
        pairs |= code[1:]
        flags = self.flags[pairs]
        borders = np.cumsum(list(map(len, texts[:-1])), dtype=np.int64)
        # The end of one text and the begin of the next may look like whitespace together.
        flags[borders - 1] = CUT
        begins = np.empty(code.size, dtype=np.bool_)
        begins[0] = True
        np.bitwise_and(flags, CUT, out=begins[1:].view(np.uint8))
        # Right after what may be whitespace there is no cut: a pattern may join it with what follows.
        begins[2:] &= flags[:-1] & MAYBE_SPACE == 0
        begins[borders] = True
        return data, np.append(np.flatnonzero(begins), code.size)


def cuts(backend: Any) -> Cuts | None:
    """The cuts at which a tokenizer gives the same tokens; None if they are not known.

    It must have a pattern of `SEPARATING`, a normaliser that neither adds whitespace nor composes ASCII with what
    precedes it, and added tokens that do not depend on their surroundings, within which there is no cut.
    """
    state = json.loads(backend.to_str())
    steps = _steps(state["pre_tokenizer"], "pretokenizers")
    forms = _steps(state["normalizer"], "normalizers")
    # With dropout the same word would have other tokens each time.
    if state["model"].get("dropout") or not _splits_at_cuts(steps):
        return None
    if not {form["type"] for form in forms} <= {"NFC", "NFD"}:
        return None
    patterns = {_pattern(step) for step in steps}
    flags = _pairs(gpt_2=patterns <= {None, _GPT_2})
    # Without the byte alphabet a space is no "Ġ".
    by_pieces = steps[-1]["type"] == "ByteLevel"
    for token in state["added_tokens"]:
        if not _stands_alone(token, normalised=bool(forms)):
            return None
        content = token["content"]
        for left, right in pairwise(content.encode()):
            flags[256 * left + right] &= MAYBE_SPACE
        # An added token may be one of the words.
        if re.fullmatch(" ?[A-Za-z]*", content):
            by_pieces = False
    pieces = _piece_tokenizer(type(backend), state) if by_pieces else None
    return Cuts(flags, pieces)


def _piece_tokenizer(backend: Any, state: State) -> Any:
    """A tokenizer of lines, each of which is one piece, so that no pattern has to be matched."""
    bare = dict.fromkeys(("normalizer", "post_processor", "truncation", "padding"))
    lines = {"type": "CharDelimiterSplit", "delimiter": "\n"}
    of_lines = {"added_tokens": [], "pre_tokenizer": lines}
    return backend.from_str(json.dumps(state | bare | of_lines))


def _steps(component: State | None, parts: str) -> list[State]:
    """The steps of a component: its parts, itself, or none."""
    return component.get(parts, [component]) if component else []


def _splits_at_cuts(steps: Sequence[State]) -> bool:
    """Whether pre-tokenising parts a text at every cut and does nothing else that a cut could change."""
    for step in steps:
        kind = step["type"]
        # ByteLevel without its own pattern renames bytes, so it must be last: no pattern would know the new names.
        renames = kind == "ByteLevel" and step is steps[-1]
        harmless = _separates(step) or renames or kind == "Digits"
        if step.get("add_prefix_space") or not harmless:
            return False
    return any(map(_separates, steps))


def _separates(step: State) -> bool:
    if step["type"] == "ByteLevel":
        return bool(step["use_regex"])
    # What matches is kept apart, or all but what matches is taken away.
    behaviour = (step.get("behavior"), step.get("invert"))
    separating = behaviour in (("Isolated", False), ("Removed", True))
    return separating and _pattern(step) in SEPARATING


def _pattern(step: State) -> str | None:
    return step["pattern"].get("Regex") if step["type"] == "Split" else None


def _stands_alone(token: State, *, normalised: bool) -> bool:
    """Whether an added token is found in the words of a text as in the whole text."""
    # With `rstrip` the token takes the whitespace after it, where the text is cut. With `lstrip` it takes what stands
    # before it, in the same word, as cuts are made before whitespace. A `single_word` depends on its neighbours.
    if token["rstrip"] or token["single_word"]:
        return False
    content = token["content"]
    # A normaliser may change characters by their neighbours, which a cut inside the token would part: beyond ASCII it
    # composes them, and whitespace inside the token is a place to cut.
    return not normalised or (content.isascii() and not re.search(r"\S\s", content))


def _pairs(*, gpt_2: bool) -> Flags:
    """(65536,) flags of two bytes. The second byte of a cut is ASCII, which composes with nothing before it.

    No match continues from a letter or digit to whitespace or a mark (except an apostrophe), from a letter or mark to a
    digit, from a digit to a letter, or from a mark to whitespace other than a line break. With GPT-2's pattern, none
    continues from a mark (except an apostrophe) to a line break or letter either.
    """
    flags = np.zeros((256, 256), dtype=np.uint8)

    def add(left: Set[int], right: Set[int]) -> None:
        pairs = np.ix_(list(left), list(right))
        flags[pairs] = CUT

    # An apostrophe belongs to what follows it: "'s" is one match.
    marks = _MARKS - {ord("'")}
    add(_LETTERS | _DIGITS, _SPACES | marks)
    add(_MARKS | _BEYOND, _SPACES - _BREAKS)
    add(_LETTERS | _MARKS, _DIGITS)
    add(_DIGITS, _LETTERS)
    if gpt_2:
        add(marks, _BREAKS | _LETTERS)
    # Other characters end in the same two bytes. They lose a cut, which costs time and changes no token.
    for space in SPACES_BEYOND:
        left, right = space.encode()[-2:]
        flags[left, right] |= MAYBE_SPACE
    return flags.reshape(-1)
