"""Reference: the loss relative to that of a second model, which measures the difficulty of the text."""

import math
from typing import Annotated

from fsd.search_space import Choice, Setting
from fsd.token_stats import TokenStats, loss_ratio


def reference(
    text: TokenStats,
    reference: TokenStats,
    *,
    difference: Annotated[bool, Setting(Choice((False, True)))] = False,
    log: bool = True,
) -> float:
    """Negative ratio of the losses under the target and the reference model: −loss(x) / loss_ref(x), without a unit.

    The reference model, usually a smaller one of the same family, measures how difficult the text is in general. The
    two models may have different tokenizers.

    Args:
        text: token statistics under the target model; logp is (T,), in nats.
        reference: token statistics under the reference model.
        difference: use mean logp − mean logp_ref, in nats, in place of the ratio. The reference term is the same for
            the base and the fine-tuned model, so that the FSD of this variant equals the FSD of `loss`.
        log: compare the log-perplexities (losses); off, the perplexities, as in the text of DC-PDD (arXiv 2409.14781,
            A.1): −exp(loss(x)) / exp(loss_ref(x)), or the negative difference, whose FSD equals that of `perplexity`.

    Raises:
        ValueError: if loss_ref(x) is zero, `difference` is off and `log` is on.

    Source: "Extracting training data from large language models", arXiv 2012.07805; the ratio is that of DC-PDD, arXiv
    2409.14781, A.1, with losses in place of perplexities.
    """
    if not difference:
        return -loss_ratio(text, reference, log=log)
    mean = float(text.logp.mean())
    reference_mean = float(reference.logp.mean())
    if log:
        return mean - reference_mean
    return math.exp(-reference_mean) - math.exp(-mean)
