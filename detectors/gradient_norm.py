"""Gradient norm: training stops changing the weights for a text that the model has learned."""

from typing import Annotated

from fsd.search_space import Choice, among
from fsd.token_stats import GradientNorms

NORMS = ("l1", "l2", "max")
AUTO = False


def gradient_norm(gradient: GradientNorms, *, norm: Annotated[str, among(NORMS, Choice(NORMS))] = "l2") -> float:
    """Negative norm of the gradient of the loss by the model's own weights: −‖∇_θ loss(x)‖_p.

    The norm is that of all weights as one vector. Its FSD compares the norms before and after fine-tuning, both by the
    weights of the base. It costs one forward and one backward pass, and needs a local model that is not quantized.

    Args:
        gradient: the norms for the text; the loss is the mean over its tokens.
        norm: `l1`, `l2` or `max`, i.e. p = 1, 2 or ∞; the paper reports all three, the default is ours.

    Source: "Pandora's white-box: precise training data detection and extraction in large language models", arXiv
    2402.17012. MIMIR and OpenUnlearning average the norms of single weight tensors instead.
    """
    return -gradient[NORMS.index(norm)]
