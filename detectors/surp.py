"""SURP: tokens where the model is sure and yet wrong surprise it less in a text that it has read."""

import numpy as np

from fsd.errors import UsageError
from fsd.search_space import Range
from fsd.token_stats import FloatArray, TokenStats

SEARCH = {"entropy": Range(0.5, 10.0, step=0.5), "k": Range(10.0, 100.0, step=10.0)}
NEEDS = ("mean",)


def surp(text: TokenStats, *, entropy: float = 2.0, k: float = 40.0) -> float:
    """Mean log-probability, nats, of the surprising tokens S_e ∩ S_p.

    S_e = {t: −mean_t < entropy}, where the model is sure; S_p = {t: logp_t < k-th percentile of logp}, where
    the token is unlikely for this text. An empty set has no mean: then the mean over S_p, or if that is empty
    too (as for one token), the lowest token. A constant instead would drown the deviation.

    Args:
        text: the target's reading.
        entropy: ε_e, nats, above 0.
        k: percentile, in (0, 100], interpolated linearly.

    Raises:
        UsageError: if a setting is out of range.

    Source: "Adaptive pre-training data detection for large language models via surprising tokens" (2024).
    """
    return float(_select(text, entropy, k)[0].mean())


def fallback(text: TokenStats, *, entropy: float, k: float) -> str | None:
    """Which set the score had to take instead of S_e ∩ S_p: "S_p only", "lowest token", or None."""
    return _select(text, entropy, k)[1]


def _select(text: TokenStats, entropy: float, k: float) -> tuple[FloatArray, str | None]:
    if not entropy > 0:
        raise UsageError(f"surp.entropy must be above 0; got {entropy!r}")
    if not 0 < k <= 100:
        raise UsageError(f"surp.k must be in (0, 100]; got {k!r}")
    ordered = np.sort(text.logp)
    unlikely = text.logp < _percentile(ordered, k)
    both = text.logp[unlikely & (text.mean > -entropy)]
    if both.size:
        return both, None
    return (text.logp[unlikely], "S_p only") if unlikely.any() else (ordered[:1], "lowest token")


def _percentile(ordered: FloatArray, k: float) -> float:
    # np.percentile to the bit, its rounding included, for a tenth of its time: the comparison is strict.
    at = (ordered.size - 1) * (k / 100)
    low = int(at)
    a, b = float(ordered[low]), float(ordered[min(low + 1, ordered.size - 1)])
    return a + (b - a) * (at - low) if at - low < 0.5 else b - (b - a) * (1 - (at - low))
