"""InfoRMIA: a token's log-ratio to a reference model counts beyond what any token there would have."""

from fsd.errors import UsageError
from fsd.search_space import Choice, Range
from fsd.token_stats import PairStats, lowest_mean

SEARCH = {"k": Range(0.05, 1.0, step=0.05), "under": Choice(("target", "reference"))}


def info_rmia(difference: PairStats, *, k: float = 1.0, under: str = "target") -> float:
    """Mean of the n lowest Δ_{x_t} − E_v[Δ_v], in nats; Δ_v = log p(v) − log q(v), n = max(1, int(k·T)).

    Where target and reference differ in everything, as after training on other texts of the kind, the log-ratio of
    every token moves. The expectation at each position, a divergence of the two distributions, takes that out.

    Args:
        difference: statistics under the target model p and the reference model q, (T,), which must have the same
            vocabulary.
        k: share of the tokens, in (0, 1]; 1 is the mean over all.
        under: whose distribution v is drawn from. With `target`, Δ is reduced by the divergence of p from q; with
            `reference`, as in the paper, it is raised by that of q from p.

    Raises:
        UsageError: if k is not in (0, 1], or `under` another word.

    Source: "(Token-level) InfoRMIA: stronger membership inference and memorization assessment for LLMs", arXiv
    2510.05582; the expectation under the target is this project's.
    """
    expectations = {"target": difference.mean, "reference": difference.reference_mean}
    if under not in expectations:
        raise UsageError(f"info_rmia.under must be target or reference; got {under!r}")
    return lowest_mean(difference.ratio - expectations[under], k, "info_rmia.k")
