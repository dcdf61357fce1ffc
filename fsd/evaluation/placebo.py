"""The same job with a model that saw neither side: what of a result is not membership."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from fsd.evaluation.intervals import Estimate
from fsd.evaluation.metrics import Comparison, compare, evaluate
from fsd.token_stats import Scores


@dataclass(frozen=True)
class Placebo:
    """A detector's FSD where the same job was done with a model that saw neither side.

    Attributes:
        auc: of it on the same texts.
        lead: of the FSD of the model that is asked over it.
    """

    auc: Estimate
    lead: Comparison


def placebo_effect(
    labels: ArrayLike,
    placebo: Scores,
    fsd: Scores,
    groups: Sequence[Hashable] | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Placebo]:
    """What the placebo reaches, and the lead over it, for every detector that both hold.

    Args:
        labels: (N,).
        placebo: detector → (N,) deviations of a model that saw neither side.
        fsd: detector → (N,) deviations of the model that is asked, on the same texts.
        groups: (N,) or None.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        UsageError: with fewer than two groups on either side.
    """
    shared = {name: values for name, values in placebo.items() if name in fsd}
    reached = evaluate(labels, shared, groups, resamples=resamples, seed=seed)
    leads = compare(labels, shared, fsd, groups, resamples=resamples, seed=seed)
    return {name: Placebo(reached[name].auc, leads[name]) for name in shared}
