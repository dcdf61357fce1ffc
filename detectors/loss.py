"""Loss: a model assigns a higher likelihood to its training data."""

from fsd.token_stats import TokenStats


def loss(text: TokenStats) -> float:
    """Mean log-probability of the tokens, in nats: mean_t logp_t, which is minus the language-modelling loss.

    Args:
        text: token statistics under the target model; logp is (T,).

    Source: "Privacy risk in machine learning: analyzing the connection to overfitting", arXiv 1709.01604, §3; the
    baseline "Loss" of FSD, arXiv 2410.10880, Table 1.
    """
    return float(text.logp.mean())
