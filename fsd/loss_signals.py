"""How the losses go along a text: 72 signals of CAMIA, each oriented so that members are expected to be lower."""

import numpy as np

from fsd.token_stats import FloatArray, IntArray, TokenStats

CUTS = (None, 200, 300)
"""Tokens of the beginning that a signal is of; None is the whole text."""
LONG_CUTS = (600, 800, 1000)
"""The same for the slope and the entropy, which are of the text followed by its copies."""
ALONG = ("copies", "text")
LENGTH = 8
"""Tokens of the patterns whose recurrence the approximate entropy measures."""
RADIUS = 0.8
"""Distance of patterns that count as equal, in standard deviations."""


def loss_signals(text: TokenStats, *copies: TokenStats, along: str = "copies") -> FloatArray:
    """Level, counts, complexity, repetition and trend of a text's token losses.

    Members are expected to have a low loss, many tokens of low loss, few and regular ups and downs, a loss that falls
    fast, and little to gain from a repetition. Counts are therefore negative.

    Args:
        text: token statistics of the text; token and logp are (T,).
        copies: those of its m copies, (T,) each, each after the text and the copies before it.
        along: what slope and entropy are of: `copies`, the text followed by them, or `text` alone.

    Returns:
        (21 (m + 1) + 9,) the 21 signals of the text, their differences to each copy, three counts against the mean of
        the tokens before, three slopes and three entropies. A text shorter than a cut counts as a whole. They are
        rounded to 9 decimals, so that equal differences of shares are equal.

    Source: "Context-aware membership inference attacks against pre-trained large language models", arXiv 2409.13745,
    and its code, https://github.com/changhongyan123/context_aware_mia, for cuts, thresholds, bins, pattern and radius.
    The share of distinct tokens, which no model changes, is left out. Three copies are tokenised apart, where that code
    has six, and the last token counts.
    """
    logp = text.logp
    levels = _levels(logp, text.token)
    gained = [levels - _levels(copy.logp, copy.token) for copy in copies]
    along_logp = logp
    if along == "copies":
        along_logp = np.concatenate([logp] + [copy.logp for copy in copies])
    parts = [along_logp[:cut] for cut in LONG_CUTS]
    slopes = [_slope(-part) for part in parts]
    entropies = list(map(_approximate_entropy, parts))
    signals = np.concatenate([levels, *gained, _above_means(logp), slopes, entropies])
    # Shares that are equal on paper differ in the last bits, and their ranks would then be a matter of chance.
    return np.round(signals, 9)


def _above_means(logp: FloatArray) -> list[float]:
    """Minus the shares of the tokens that are likelier than the mean of those before, one for each cut."""
    if logp.size == 1:
        return [0.0] * len(CUTS)
    means = np.cumsum(logp) / np.arange(1, logp.size + 1)
    above = logp[1:] > means[:-1]
    # The first token has none before it, so a cut holds one comparison less.
    return [-above[: cut and cut - 1].mean() for cut in CUTS]


def _levels(logp: FloatArray, token: IntArray) -> FloatArray:
    """(21,) loss and perplexity, both also by the share of distinct tokens, counts, and Lempel-Ziv complexity."""
    signals: list[float] = []
    for cut in CUTS:
        part = logp[:cut]
        diversity = np.unique(token[:cut]).size / part.size
        loss = -part.mean()
        perplexity = np.exp(loss)
        above = (part > part.mean()).mean()
        signals += [loss, perplexity, loss / diversity, perplexity / diversity, -above]
    beginning = logp[:200]
    signals += [-(beginning >= least).mean() for least in (-1, -2, -3)]
    signals += [_lempel_ziv(beginning, bins) for bins in (3, 4, 5)]
    return np.array(signals)


def _lempel_ziv(values: FloatArray, bins: int) -> float:
    """Distinct words of the values in bins, each word the shortest that is new, by the number of values."""
    # Binned twice, as in the paper's code: on a grid from the least value to 0, and its ranks into a few symbols.
    ranks = np.digitize(values, np.linspace(values.min(), 0, 100), right=True)
    edges = np.linspace(ranks.min(), ranks.max(), bins + 1)[1:]
    symbols = np.searchsorted(edges, ranks).astype(np.uint8).tobytes()
    words: set[bytes] = set()
    begin = 0
    for end in range(1, len(symbols) + 1):
        word = symbols[begin:end]
        if word not in words:
            words.add(word)
            begin = end
    return len(words) / len(symbols)


def _slope(values: FloatArray) -> float:
    """Slope of the least-squares line, per token; 0 for a single value."""
    position = np.arange(values.size) - (values.size - 1) / 2
    return float(position @ values / ((position @ position) or 1.0))


def _approximate_entropy(values: FloatArray) -> float:
    """How often patterns that recur go on in another way, in nats; 0 for fewer values than a pattern needs."""
    if values.size <= LENGTH + 1:
        return 0.0
    near = np.abs(values[:, None] - values) <= RADIUS * values.std()
    phi = []
    for length in (LENGTH, LENGTH + 1):
        count = values.size - length + 1
        # Two patterns are equal where all of their values are near: a diagonal walk through the matrix of values.
        is_same = np.ones((count, count), dtype=bool)
        for i in range(length):
            is_same &= near[i : i + count, i : i + count]
        phi.append(np.log(is_same.mean(0)).mean())
    return float(abs(phi[0] - phi[1]))
