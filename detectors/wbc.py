"""WBC: windows of tokens vote on whether the model finds them likelier than a reference model does."""

from typing import Annotated

from fsd.search_space import Setting, are_sizes
from fsd.token_stats import WINDOW_SIZES, TokenStats, check_same_tokens, window_votes

NEEDS = ("token",)
SIZES = Setting(None, "whole numbers of at least 1", lambda sizes: bool(sizes) and are_sizes(sizes))


def wbc(text: TokenStats, reference: TokenStats, *, sizes: Annotated[tuple[int, ...], SIZES] = WINDOW_SIZES) -> float:
    """Share of the windows of consecutive tokens whose loss is lower under the target model, averaged over sizes.

    A few tokens with large differences dominate the mean over all tokens, in members and in others. A window has one
    vote, whatever the size of its difference. An audit of a fine-tuned model has its base as the reference.

    Args:
        text: token statistics under the target model; token and logp are (T,).
        reference: the same tokens under the reference model, which must have the same tokenizer.
        sizes: sizes of windows, in tokens. The default is that of the authors' configuration and appendix; eq. 12 of
            the paper gives 2, 3, 4, 5, 8, 11, 15, 21, 29, 40. A text shorter than a window is counted whole, once for
            each such size, as in the authors' code.

    Raises:
        ValueError: if the two inputs have different tokens.

    Source: "Window-based membership inference attacks against fine-tuned large language models", arXiv 2601.02751.
    """
    check_same_tokens(text, reference)
    return window_votes(text.logp - reference.logp, sizes)
