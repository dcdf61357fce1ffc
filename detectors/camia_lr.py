"""CAMIA with labels: a logistic regression on its 72 signals, fitted to texts of which it is known what they are."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from fsd.loss_signals import ALONG, loss_signals
from fsd.search_space import Setting, among
from fsd.token_stats import Exemplars, FloatArray, TokenStats

NEEDS = ("token",)
AUTO = False


def camia_lr(
    text: TokenStats,
    repeated: Sequence[TokenStats],
    labelled: Exemplars,
    *,
    components: Annotated[int, Setting(None, "0 to 72", lambda count: 0 <= count <= 72)] = 0,
    along: Annotated[str, among(ALONG)] = "copies",
) -> float:
    """Log-odds of membership by a logistic regression on 72 signals of the losses, which are scaled to [0, 1].

    w, with the intercept, minimises ½‖w‖² + the sum of log-losses, where members and non-members count alike. Fitted
    are at most 150 validation texts of a label, by the base model; for a validation text, by which detectors are
    chosen, without its family. It costs two forward passes, over two and three copies of x.

    Args:
        text: token statistics under the target model; token and logp are (T,).
        repeated: those of the second and the third copy of the text, each after the copies before it.
        labelled: the same of texts with known labels.
        components: principal components of the scaled signals that take their place; 0 for none.
        along: what slope and entropy are of, as in `camia`.

    Source: arXiv 2409.13745, appendix B; https://github.com/ted-tennis/OLMo-Detect: scale, penalty, 0 or 10 components.
    """
    weights = labelled.fitted(_weights, text.text, loss_signals, int(components), along=along)
    return float(np.append(loss_signals(text, *repeated, along=along), 1) @ weights)


def _weights(signals: FloatArray, members: FloatArray, components: int) -> FloatArray:
    """(F + 1,) weights of the F signals and the intercept, by Newton's method, which takes eight steps or fewer."""
    span = np.ptp(signals, 0)
    origin = signals.min(0)
    scale = np.diag(1 / np.where(span > 0, span, 1))  # a constant signal stays as it is
    if components:
        origin = signals.mean(0)
        scale = scale @ np.linalg.svd((signals - origin) @ scale, full_matrices=False).Vh[:components].T
    inputs = np.column_stack([(signals - origin) @ scale, np.ones(len(signals))])
    counts = np.where(members, 0.5 / members.mean(), 0.5 / (1 - members.mean()))
    fitted = np.zeros(inputs.shape[1])
    for _ in range(15):
        p = 1 / (1 + np.exp(-inputs @ fitted))
        curvature = np.eye(fitted.size) + (inputs.T * (counts * p * (1 - p))) @ inputs
        fitted -= np.linalg.solve(curvature, fitted + inputs.T @ (counts * (p - members)))
    direction = scale @ fitted[:-1]
    return np.append(direction, fitted[-1] - origin @ direction)
