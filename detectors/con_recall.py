"""Con-ReCall: a prefix of members helps with another member, one of non-members disturbs it."""

import math
from typing import Annotated

from fsd.search_space import Range, Setting
from fsd.token_stats import TokenStats, loss_ratio

AUTO = False
GAMMA = Setting(Range(0.1, 1.0, step=0.1), "finite", math.isfinite)


def con_recall(
    text: TokenStats, primed: TokenStats, member_primed: TokenStats, *, gamma: Annotated[float, GAMMA] = 0.5
) -> float:
    """Difference of two relative losses, (loss(x | P) − γ·loss(x | P_members)) / loss(x), without a unit.

    P is the prefix of non-members of `recall`, with γ = 0 the same score. P_members are known members of other groups
    than x: members of validation, whose labels a run may use. Without known members the detector is refused. It costs
    two forward passes, over prefix and text.

    Args:
        text: token statistics under the target model; logp is (T,), in nats.
        primed: the same tokens conditioned on P.
        member_primed: the same tokens conditioned on P_members.
        gamma: weight of the member prefix; the paper's code reports 0.1 to 1.0 without a default, ours is the middle.

    Raises:
        ValueError: if loss(x) is zero.

    Source: "Con-ReCall: detecting pre-training data in LLMs via contrastive decoding", arXiv 2409.03363, and its code,
    https://github.com/WangCheng0116/CON-RECALL.
    """
    return loss_ratio(primed, text) - gamma * loss_ratio(member_primed, text)
