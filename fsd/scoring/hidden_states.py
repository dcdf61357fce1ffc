"""How a language model represents whole texts: the mean of its hidden states over the tokens."""

from collections.abc import Sequence

import numpy as np
import torch

from fsd.models.language_model import LanguageModel
from fsd.scoring.batching import Window, batched
from fsd.scoring.model_scorer import BATCH_TOKENS
from fsd.token_stats import FloatArray


def hidden_states(
    language_model: LanguageModel, texts: Sequence[str], *, depth: float = 0.5, tuned: bool = False
) -> FloatArray:
    """Compute the mean hidden state of each text.

    Layers in the middle say most about what a text is like, the last ones about the next token
    (https://arxiv.org/abs/2502.02013).

    Args:
        language_model: with an adapter if `tuned`.
        texts: (N,) texts; of a text longer than the context the beginning counts.
        depth: share of the layers below the states; 1 is after the last layer.
        tuned: whether the adapter is on.

    Returns:
        (N, D) means over the tokens after the start token.

    Raises:
        UsageError: for a text without a token.
    """
    rows = [[language_model.start, *ids][: language_model.context] for ids in language_model.tokens(texts)]
    order = sorted((Window(at, 0, len(row), 0) for at, row in enumerate(rows)), key=lambda window: -window.size)
    limit = BATCH_TOKENS.get(language_model.device.type, BATCH_TOKENS["cuda"])
    means: dict[int, FloatArray] = {}
    with language_model.state(tuned=tuned) as network:
        body = network.get_decoder() if language_model.split_head else network
        for batch in batched(order, limit):
            x = torch.full((len(batch), batch[0].size), language_model.start)
            for row, window in enumerate(batch):
                x[row, : window.size] = torch.tensor(rows[window.prompt])
            layers = body(x.to(language_model.device), use_cache=False, output_hidden_states=True).hidden_states
            states = layers[min(int(depth * len(layers)), len(layers) - 1)].float().cpu()
            for row, window in enumerate(batch):
                means[window.prompt] = states[row, 1 : window.size].mean(dim=0).double().numpy()
    return np.array([means[at] for at in range(len(texts))])
