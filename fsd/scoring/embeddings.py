"""Embeddings of texts by a language model: the mean of the last hidden states over the text's tokens."""

from collections.abc import Sequence

import numpy as np
import torch

from fsd.models.language_model import LanguageModel
from fsd.token_stats import FloatArray


def embeddings(language_model: LanguageModel, texts: Sequence[str], *, tuned: bool) -> FloatArray:
    """Embed each text, cut to the model's context.

    Args:
        language_model: with an adapter if `tuned`.
        texts: N texts.
        tuned: whether the adapter is on.

    Returns:
        (N, D), in the order of the texts.
    """
    rows = [ids[: language_model.context - 1] for ids in language_model.tokens(texts)]
    vectors = []
    with language_model.state(tuned=tuned) as network:
        for row in rows:
            x = torch.tensor([[language_model.start, *row]], device=language_model.device)
            states = network.get_decoder()(input_ids=x, use_cache=False).last_hidden_state
            vectors.append(states[0, 1:].double().mean(0).cpu().numpy())
    return np.stack(vectors)
