"""A model's probability of generating given tokens, under a way of sampling."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from extensions.extract.extraction import Array
from fsd.api import BATCH_TOKENS, LanguageModel, Sampling, UsageError, device_limit, progress, start_token


def log_probability(sampling: Sampling, logits: Tensor, target: Tensor) -> Tensor:
    """(n,) nats with which each target is drawn by (n, V) logits; equals of the k-th are among the k."""
    if sampling.temperature == 0:
        return torch.where(logits.argmax(-1) == target, 0.0, -torch.inf)
    scaled = logits / sampling.temperature
    hit = scaled.gather(-1, target[:, None]).squeeze(-1)
    if sampling.top_k is None or sampling.top_k >= logits.shape[-1]:
        return hit - scaled.logsumexp(-1)
    least = scaled.topk(sampling.top_k).values[:, -1:]
    kept = scaled.masked_fill(scaled < least, -torch.inf)
    return torch.where(hit >= least.squeeze(-1), hit - kept.logsumexp(-1), -torch.inf)


def check_length(length: int, context: int) -> None:
    """Refuse passages of more tokens than a model reads at once."""
    if length > context:
        raise UsageError(f"prefix and suffix must fit the model's context of {context} tokens together; got {length}")


def suffix_log_probabilities(
    language_model: LanguageModel, windows: Array, prefix: int, samplings: Sequence[Sampling]
) -> Array:
    """(S, W) nats of generating the end of W windows after their first `prefix` tokens, in each of S ways of sampling.

    One forward pass serves all; −∞ where a sampling cannot generate the tokens.
    """
    count, length = windows.shape
    check_length(length, language_model.context)
    device = language_model.device
    rows = max(1, device_limit(BATCH_TOKENS, device) // length)
    nats = np.empty((len(samplings), count))
    ids = torch.from_numpy(windows.astype(np.int64))
    # Not the padding of a tokenizer without a start token.
    start = torch.full((rows, 1), start_token(language_model.tokenizer, language_model.identity.id))
    with language_model.state(tuned=False) as network, progress(count * length, "extraction", "token") as bar:
        for begin in range(0, count, rows):
            batch = ids[begin : begin + rows]
            x = torch.cat([start[: len(batch)], batch[:, :-1]], dim=1).to(device)
            # one more logit than tokens to predict is never read, so the positions from `prefix` on are enough
            logits = network(input_ids=x, use_cache=False, logits_to_keep=length - prefix).logits.float()
            target = batch[:, prefix:].to(logits.device).flatten()
            flat = logits.flatten(0, 1)
            for row, sampling in enumerate(samplings):
                logp = log_probability(sampling, flat, target).view(len(batch), -1)
                nats[row, begin : begin + len(batch)] = logp.double().sum(-1).cpu().numpy()
            bar.update(batch.numel())
    return nats
