"""Reference: what a second, weaker model finds hard is no news."""

from fsd.search_space import Choice
from fsd.token_stats import TokenStats, loss_ratio

SEARCH = {"difference": Choice((False, True))}


def reference(text: TokenStats, reference: TokenStats, *, difference: bool = False) -> float:
    """Loss of the text against its loss under a reference model: −loss(x) / loss_ref(x).

    The reference model (usually a smaller one of the same family) measures how hard the text is in general;
    what the target knows beyond that, it may know from having read it. The two models may have different
    tokenizers.

    Args:
        text: the target's reading.
        reference: the reference model's reading.
        difference: mean logp − mean logp_ref, nats, instead of the ratio of log-perplexities. The reference
            term is the same under the base and the tuned model, so this form's deviation is that of `loss`.

    Raises:
        ValueError: if the ratio is asked for and loss_ref(x) is zero.

    Source: Carlini et al. 2021, "Extracting training data from large language models"; ratio as in the DC-PDD
    paper, A.1.
    """
    if difference:
        return float(text.logp.mean()) - float(reference.logp.mean())
    return -loss_ratio(text, reference)
