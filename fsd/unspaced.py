"""What a word is, as parts of regular expressions: letters with their marks; in scripts without spaces, a character."""

import re
import unicodedata

KANA = "\u3040-\u30ff"
"""Hiragana and katakana, which tell Japanese from Chinese."""
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Characters of Chinese, and of Japanese beside kana."""
# Scores depend on these units. With the scripts of South-East Asia among them, Thai texts would get other scores
# than those that adapters were calibrated on.
SCORED_UNSPACED = KANA + HAN
"""Characters that detectors and neighbours take as a unit each."""
# Iteration marks and small kana stand between characters, and would else join these to one word.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan; Burmese; Khmer
    "\u3005-\u3007\u31f0-\u31ff" + SCORED_UNSPACED
)
"""Characters that are a word each where texts are compared, counted and cut."""
# `\w` has no vowel signs of Hindi or Tamil, no vowels of Arabic or Hebrew, no accents that stand apart from their
# letter: by it alone, words end in their middle.
_COMBINING = "".join(sign for sign in map(chr, range(0x300, 0x1E950)) if unicodedata.category(sign)[0] == "M")
MARKS = f"{_COMBINING}\u00ad\u200c\u200d\u2060"
"""Characters that belong to the letter before them: all combining marks, and what joins or may part a word."""


def spelled(letters: str) -> str:
    """The regular expression of a word of such letters, with their marks."""
    return f"(?:[{letters}]+[{MARKS}]*)+"


def single(characters: str) -> str:
    """The regular expression of one letter or digit among the characters, with its marks."""
    return rf"(?=\w)[{characters}][{MARKS}]*"


IS_UNSPACED = re.compile(f"[{UNSPACED}]")
IS_KANA = re.compile(f"[{KANA}]")
PIECE = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
"""What spaces separate; in scripts without spaces, each character."""
