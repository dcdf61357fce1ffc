"""Loss: a model that has read a text is less surprised by it."""

from fsd.token_stats import TokenStats


def loss(text: TokenStats) -> float:
    """Mean log-probability of the tokens, nats: mean_t logp_t, i.e. minus the language-modelling loss.

    Source: Yeom et al. 2018, "Privacy risk in machine learning", §3; FSD paper, Table 1 ("Loss").
    """
    return float(text.logp.mean())
