"""Scripts that put no spaces between words, as parts of regular expressions: where a character counts as a word."""

import re

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
IS_UNSPACED = re.compile(f"[{UNSPACED}]")
IS_KANA = re.compile(f"[{KANA}]")
PIECE = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
"""What spaces separate; in scripts without spaces, each character."""
