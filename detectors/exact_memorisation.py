"""Exact memorisation: a training text consists of the tokens that the model expects."""

from fsd.token_stats import TokenStats

NEEDS = ("top",)
AUTO = False


def exact_memorisation(text: TokenStats) -> float:
    """Share of the tokens that are the most likely ones after the tokens before them, in [0, 1].

    Args:
        text: token statistics under the target model; logp and top are (T,).

    Source: "Memorization without overfitting", arXiv 2205.10770; the metric of OpenUnlearning, arXiv 2506.12618, with
    which it agrees.
    """
    return float(text.predicted.mean())
