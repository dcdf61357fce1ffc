"""PAC: swapping words drives the likelihoods of a training text apart more than those of another text."""

from collections.abc import Sequence
from typing import Annotated

from fsd.search_space import Range, Setting, Share, is_share
from fsd.token_stats import FloatArray, TokenStats, lowest_mean

UNCHANGED = "no two words of the text can change places; its score is 0"
AUTO = False
HIGH = Setting(Range(0.05, 0.5, step=0.05), "in (0, 1]", is_share)


def pac(
    text: TokenStats, swapped: Sequence[TokenStats], *, low: Share = 0.3, high: Annotated[float, HIGH] = 0.05
) -> float:
    """Mean polarised distance of the copies with swapped words minus that of the text, in nats.

    The polarised distance is the mean of the n highest log-probabilities, n = max(1, int(high·T)), minus that of the
    max(1, int(low·T)) lowest. A training text has few tokens that the model did not expect, until its words change
    places. A text of which no two words differ has the score 0. The paper's PAC is the negative of this score, and
    lower for members. Each copy costs a forward pass.

    Args:
        text: token statistics under the target model; logp is (T,).
        swapped: those of m ≥ 1 copies, 5 by default, in each of which int(0.3·words) random pairs of words are swapped.
        low: share of the lowest log-probabilities, in (0, 1].
        high: share of the highest, in (0, 1].

    Raises:
        ValueError: without a copy.

    Source: "Data contamination calibration for black-box LLMs", arXiv 2405.11930; defaults and sign are those of its
    code, https://github.com/yyy01/PAC.
    """
    if not swapped:
        raise ValueError(f"pac needs at least one copy of the text {text.text[:40]!r}, got none")
    distance = _distance(text.logp, low, high)
    # One by one, so that a copy that is the text itself adds exactly 0.
    return sum(_distance(copy.logp, low, high) - distance for copy in swapped) / len(swapped)


def fallback(text: TokenStats, swapped: Sequence[TokenStats], *, low: float, high: float) -> str | None:
    """Why every copy is the text itself; None if one is another."""
    if all(copy is text for copy in swapped):
        return UNCHANGED
    return None


def _distance(logp: FloatArray, low: float, high: float) -> float:
    return -lowest_mean(-logp, high) - lowest_mean(logp, low)
