"""CAMIA: how the losses go along a text and its repetition, ranked among those of known non-members."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from fsd.loss_signals import ALONG, loss_signals
from fsd.search_space import among
from fsd.token_stats import Exemplars, TokenStats

NEEDS = ("token",)
AUTO = False
COMBINATIONS = ("edgington", "fisher", "pearson", "george")


def camia(
    text: TokenStats,
    repeated: Sequence[TokenStats],
    nonmembers: Exemplars,
    *,
    combination: Annotated[str, among(COMBINATIONS)] = "edgington",
    along: Annotated[str, among(ALONG)] = "copies",
) -> float:
    """Combination of the p-values of 72 signals of the losses, each the rank of x among K known non-members.

    p = (#{known < x} + ½ #{known = x} + ½) / (K + 1), where each signal is expected to be lower for members; see
    `fsd.loss_signals`. The score is the mean over the signals of −p (Edgington), −ln p (Fisher), ln(1 − p) (Pearson) or
    ln((1 − p) / p) (George). The known non-members are unseen texts, at most 150, always by the base model, so that the
    FSD is the fall of the p-values by fine-tuning. It costs two forward passes, over two and three copies of x.

    Args:
        text: token statistics under the target model; token and logp are (T,).
        repeated: those of the second and the third copy of the text, each after the copies before it.
        nonmembers: the same of known non-members.
        combination: `edgington`, `fisher`, `pearson` or `george`.
        along: what slope and entropy are of, the text with its `copies`, as in the paper's code, or the `text` alone.

    Source: "Context-aware membership inference attacks against pre-trained large language models", arXiv 2409.13745;
    OLMo-Detect has the two `along` as two methods. The directions follow other implementations, and are not fitted.
    """
    signals = loss_signals(text, *repeated, along=along)
    of_nonmembers = nonmembers.of(loss_signals, along=along)
    # Ties count half. The other half keeps p from 0 and from 1, where the logarithms are infinite.
    ranks = (of_nonmembers < signals).sum(0) + (of_nonmembers == signals).sum(0) / 2
    p = (ranks + 0.5) / (len(of_nonmembers) + 1)
    fisher = -np.log(p)
    pearson = np.log1p(-p)
    combinations = {"edgington": -p, "fisher": fisher, "pearson": pearson, "george": pearson + fisher}
    return float(combinations[combination].mean())
