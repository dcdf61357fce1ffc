"""Combined score: the log-ratio to a reference model, Min-K%++ and FSD, added up."""

from typing import Annotated

from fsd.search_space import Range, Setting, Share
from fsd.token_stats import TokenStats, check_same_tokens, lowest_mean

NEEDS = ("token", "mean", "std")


def _weight(search: Range) -> Setting:
    return Setting(search, "at least 0 and finite", lambda weight: 0 <= weight < float("inf"))


def combined(
    text: TokenStats,
    tuned: TokenStats,
    reference: TokenStats,
    *,
    k: Share = 0.2,
    a: Annotated[float, _weight(Range(0.0, 2.0, step=0.25))] = 0.5,
    b: Annotated[float, _weight(Range(0.0, 8.0, step=1.0))] = 4.0,
) -> float:
    """min_k_reference + a·min_k_pp + b·(mean log-probability under the base model − under the fine-tuned model).

    The first two are the k lowest of the log-ratios to a reference model and of the standardised log-probabilities: no
    token of a text that was trained on is unlikely by either. The third is the FSD of `loss`, which is higher for texts
    of the members' period than for later ones. The default weights bring the three, whose spread over texts is about .2
    to .5 nats, .2 to .3 and .01 to .04 nats, to the same order. The score needs no label and no other text. Like FSD,
    it is one score of the pair of models; there is no base score.

    Args:
        text: token statistics under the base model; token, logp, mean and std are (T,), and std is above 0.
        tuned: the same tokens under the fine-tuned model.
        reference: the same tokens under the reference model, which must have the same tokenizer.
        k: share of the tokens, in (0, 1].
        a: weight of `min_k_pp`, at least 0, in nats.
        b: weight of the FSD of `loss`, at least 0; with a = b = 0 the score is `min_k_reference`.

    Raises:
        ValueError: if the inputs have different tokens.

    Source: this project, from FSD (arXiv 2410.10880), reference models (arXiv 2012.07805) and Min-K%++ (arXiv
    2404.02936); the weights were chosen on corpora other than those of docs/lab.md, which measures it.
    """
    check_same_tokens(text, tuned)
    check_same_tokens(text, reference)
    ratio = lowest_mean(text.logp - reference.logp, k)
    standardised = lowest_mean((text.logp - text.mean) / text.std, k)
    return ratio + a * standardised + b * float((text.logp - tuned.logp).mean())
