"""Words of texts that are compared however they are typed or printed, and runs of those that two texts share."""

import re
import string
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from html import unescape

import numpy as np
import xxhash

from fsd.data.near_duplicates import INVISIBLE, Hashes, words
from fsd.token_stats import BoolArray

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # it is deleted: "don't" is the word "dont"
# The same signs in print. A letter's own marks, as of an accent alone, would part words once they are normalised.
_PRINTED = str.maketrans("‐‑−", "---", "‘’‚‛“”„‟‹›«»′″‴´ʼ") | INVISIBLE
_DASH = "‒–—―⸺⸻"
# "1914--1918", and the same years with any other dash, are those with a hyphen.
_BETWEEN_DIGITS = re.compile(rf"(?<=\d)[-{_DASH}]+(?=\d)")
# These part words, with or without spaces around them: "so--and", "so—and"; "so...", "so…".
_PARTING = re.compile(rf"-{{2,}}|[{_DASH}]|\.{{2,}}")


def normalised(text: str) -> list[str]:
    """The words of a text that are compared; how it is typed or printed makes no difference, nor entities of HTML."""
    text = unescape(text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_PRINTED))
    text = _PARTING.sub(" ", _BETWEEN_DIGITS.sub("", text))
    return words(text.translate(_PUNCTUATION))


def word_numbers(tokens: Sequence[bytes]) -> Hashes:
    """A number for each word, the same for the same word everywhere."""
    return np.fromiter(map(_number, tokens), np.uint64, len(tokens))


@lru_cache(2**20)  # most words of a language are the same few
def _number(word: bytes) -> int:
    return int(xxhash.xxh3_64_intdigest(word))


def runs_of(mask: BoolArray) -> list[list[int]]:
    """First and last + 1 of each run of True."""
    changes = np.diff(np.r_[False, mask, False].astype(np.int8))
    return np.flatnonzero(changes).reshape(-1, 2).tolist()
