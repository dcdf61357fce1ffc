"""InfoRMIA: a token's log-ratio to a reference model counts beyond what any token there would have."""

from typing import Annotated

from fsd.search_space import Choice, Share, among
from fsd.token_stats import PairStats, lowest_mean

MODELS = ("target", "reference")
UNDER = among(MODELS, Choice(MODELS))


def info_rmia(difference: PairStats, *, k: Share = 1.0, under: Annotated[str, UNDER] = "target") -> float:
    """Mean of the n lowest Δ_{x_t} − E_v[Δ_v], in nats; Δ_v = log p(v) − log q(v), n = max(1, int(k·T)).

    Where target and reference differ in everything, as after training on other texts of the kind, the log-ratio of
    every token moves. The expectation at each position, a divergence of the two distributions, takes that out.

    Args:
        difference: statistics under the target model p and the reference model q, (T,), which must have the same
            vocabulary.
        k: share of the tokens, in (0, 1]; 1 is the mean over all.
        under: whose distribution v is drawn from. With `target`, Δ is reduced by the divergence of p from q; with
            `reference`, as in the paper, it is raised by that of q from p.

    Source: "(Token-level) InfoRMIA: stronger membership inference and memorization assessment for LLMs", arXiv
    2510.05582; the expectation under the target is this project's.
    """
    expectations = {"target": difference.mean, "reference": difference.reference_mean}
    return lowest_mean(difference.ratio - expectations[under], k)
