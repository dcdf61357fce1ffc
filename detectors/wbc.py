"""WBC: windows of tokens vote on whether the model finds them likelier than a reference model does."""

import numpy as np

from fsd.errors import UsageError
from fsd.search_space import Choice
from fsd.token_stats import TokenStats, check_same_tokens

SEARCH = {"most": Choice((5, 10, 20, 40))}
NEEDS = ("token",)


def wbc(
    text: TokenStats,
    reference: TokenStats,
    *,
    least: int = 2,
    most: int = 40,
    sizes: int = 10,
) -> float:
    """Share of the windows of consecutive tokens whose loss is lower under the target model, averaged over sizes.

    A few tokens with large differences dominate the mean over all tokens, in members and in others. A window has one
    vote, whatever the size of its difference. An audit of a fine-tuned model has its base as the reference.

    Args:
        text: token statistics under the target model; token and logp are (T,).
        reference: the same tokens under the reference model, which must have the same tokenizer.
        least: smallest window, in tokens.
        most: largest window, in tokens; those longer than the text are left out.
        sizes: number of window sizes, which are spaced geometrically and rounded.

    Raises:
        UsageError: if a setting is below 1, or `least` above `most`.
        ValueError: if the two inputs have different tokens.

    Source: "Window-based membership inference attacks against fine-tuned large language models", arXiv 2601.02751.
    """
    if not 1 <= least <= most or sizes < 1:
        raise UsageError(f"wbc must have 1 <= least <= most and sizes >= 1; got {least}, {most} and {sizes}")
    check_same_tokens(text, reference)
    sums = np.concatenate([[0.0], np.cumsum(text.logp - reference.logp)])
    spaced = {round(size) for size in np.geomspace(least, most, int(sizes)).tolist()}
    fitting = sorted(size for size in spaced if size < sums.size) or [sums.size - 1]
    return float(np.mean([np.mean(sums[size:] > sums[:-size]) for size in fitting]))
