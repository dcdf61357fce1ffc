"""CDD: what a model says to the beginning of a training text varies little."""

import re
from typing import Annotated

from fsd.search_space import Range, Setting
from fsd.token_stats import UNSPACED, Continuations

TOKEN = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")
"""A word or a sign; in scripts without spaces, each character."""
AUTO = ALL = False
ALPHA = Setting(Range(0.0, 0.3, step=0.05), "in [0, 1]", lambda share: 0 <= share <= 1)


def cdd(outputs: Continuations, *, alpha: Annotated[float, ALPHA] = 0.05) -> float:
    """Peak of the distances between samples and greedy output: the share of samples within α · l edits, in [0, 1].

    The edit distance counts tokens, and l is the number of tokens of the longest output. The first half of a text is
    given; 50 samples are drawn at temperature 0.8, and outputs have at most 100 tokens. Many texts score 0.

    Args:
        outputs: of the first half of a text. A chat API does not tell its tokens, so words and signs stand for them.
        alpha: share of the length, in [0, 1].

    Source: "Generalization or memorization: data contamination and trustworthy evaluation for large language models",
    arXiv 2402.15938; code: https://github.com/YihongDong/CDD-TED4LLMs. Unlike there, code fences are kept.
    """
    greedy = TOKEN.findall(outputs.greedy)
    samples = list(map(TOKEN.findall, outputs.samples))
    longest = max(map(len, [greedy, *samples]))
    near = [_within(alpha * longest, greedy, sample) for sample in samples]
    return sum(near) / len(near)


def _within(most: float, greedy: list[str], sample: list[str]) -> bool:
    """Whether the Levenshtein distance of two sequences is at most `most`."""
    row = list(range(len(greedy) + 1))
    for token in sample:
        above = row
        row = [above[0] + 1]
        for i, expected in enumerate(greedy):
            replaced = above[i] + (token != expected)
            inserted = above[i + 1] + 1
            left_out = row[i] + 1
            row.append(min(replaced, inserted, left_out))
        if min(row) > most:  # it never falls again
            return False
    return row[-1] <= most
