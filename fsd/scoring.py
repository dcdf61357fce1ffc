"""Prompts → token statistics: one forward pass per prompt, shared by all detectors.

The vocabulary never stands in memory for a whole batch: the output embedding is applied to a chunk of tokens at
a time, and mean and standard deviation of log p come out of one exponential per logit.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fsd.errors import UsageError
from fsd.models import LanguageModel
from fsd.progress import progress
from fsd.stats import STD_FLOOR, Prompt, TokenStats

CHUNK_BYTES = {"cpu": 2**22, "cuda": 2**28}
"""Size of a chunk of float32 logits: what stays in a core's cache, what keeps a GPU busy."""
BATCH_TOKENS = {"cpu": 2048, "cuda": 16384}


class _Window(NamedTuple):
    """Inputs ids[begin:end] of one prompt; positions from `first` on predict a token that is to be scored."""

    prompt: int
    begin: int
    end: int
    first: int


def windows(prompt: int, length: int, first: int, context: int) -> Iterator[_Window]:
    """Windows that score every position from `first` to `length` once, each with as much context as fits.

    Args:
        prompt: index of the prompt.
        length: number of input positions; position t predicts token t + 1.
        first: first position whose prediction is scored.
        context: most positions that one forward pass may read.

    Yields:
        A single window where the text fits; else windows that overlap by at least half a context.
    """
    if length <= context:
        yield _Window(prompt, 0, length, first)
        return
    done = first
    end = max(min(context, length), first + 1)
    while done < length:
        yield _Window(prompt, max(0, end - context), end, done)
        done = end
        end = min(length, end + max(1, context // 2))


def batches(spans: Sequence[_Window], max_tokens: int) -> Iterator[list[_Window]]:
    """Windows sorted by length and packed so that rows × longest row ≤ `max_tokens`; a longer window goes alone."""
    batch: list[_Window] = []
    for span in sorted(spans, key=lambda s: (s.begin - s.end, s.prompt, s.begin)):
        longest = batch[0].end - batch[0].begin if batch else 0
        if batch and (len(batch) + 1) * longest > max_tokens:
            yield batch
            batch = []
        batch.append(span)
    if batch:
        yield batch


def token_statistics(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """logp, mean and std of each row, float32, from one exponential per logit.

    With l = logits − max and Z = Σ exp l: log p_v = l_v − log Z, so that mean = (Σ l exp l)/Z − log Z, and the
    variance, which no shift changes, is (Σ l² exp l)/Z − ((Σ l exp l)/Z)². A second pass around the mean would
    cost as much again; l is relative to the maximum, so what cancels is of the size of the spread itself.

    Args:
        logits: (n, V) of any float type; overwritten if it is float32.
        target: (n,) token ids.

    Returns:
        (3, n) logp, mean, std in nats; std ≥ `STD_FLOOR`.
    """
    shifted = logits.float()
    shifted -= shifted.amax(-1, keepdim=True)
    hit = shifted.gather(-1, target[:, None]).squeeze(-1)
    weight = shifted.exp()
    total = weight.sum(-1)
    weight *= shifted
    first = weight.sum(-1) / total
    weight *= shifted
    second = weight.sum(-1) / total
    log_total = total.log()
    std = (second - first.square()).clamp_min(0).sqrt().clamp_min(STD_FLOOR)
    return torch.stack([hit - log_total, first - log_total, std])


class ModelScorer:
    """Reads prompts with one state of a language model: adapter off (base) or on (tuned).

    Args:
        language_model: the model, loaded once for both states.
        tuned: whether its adapter is on.
        max_batch_tokens: padded tokens per forward pass; None takes what suits the device.
        description: what the progress bar says; empty for none.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        *,
        tuned: bool = False,
        max_batch_tokens: int | None = None,
        description: str = "",
    ) -> None:
        if max_batch_tokens is not None and max_batch_tokens < 1:
            raise UsageError(f"max-batch-tokens must be at least 1; got {max_batch_tokens}")
        self.language_model = language_model
        self.tuned = tuned
        self.description = description
        kind = language_model.device.type
        self.max_batch_tokens = max_batch_tokens or BATCH_TOKENS.get(kind, BATCH_TOKENS["cuda"])

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order.

        Raises:
            UsageError: for a text of no tokens.
        """
        if not prompts:
            return
        ids, firsts = self._tokens(prompts)
        sums = [np.empty((3, len(row) - 1 - first), dtype=np.float64) for row, first in zip(ids, firsts, strict=True)]
        context = self.language_model.context
        spans = [
            span
            for i, (row, first) in enumerate(zip(ids, firsts, strict=True))
            for span in windows(i, len(row) - 1, first, context)
        ]
        tokens = sum(span.end - span.begin for span in spans)
        bar = progress(tokens, self.description, "tok", shown=bool(self.description))
        with bar, self.language_model.state(tuned=self.tuned) as network:
            for batch in batches(spans, self.max_batch_tokens):
                values = self._forward(network, batch, ids)
                for span, columns in zip(batch, values, strict=True):
                    start = span.first - firsts[span.prompt]
                    sums[span.prompt][:, start : start + columns.shape[1]] = columns
                bar.update(sum(span.end - span.begin for span in batch))
        for prompt, row, first, (logp, mean, std) in zip(prompts, ids, firsts, sums, strict=True):
            yield TokenStats(prompt.text, np.asarray(row[first + 1 :], dtype=np.int64), logp, mean, std)

    def _tokens(self, prompts: Sequence[Prompt]) -> tuple[list[list[int]], list[int]]:
        """Ids of start token + context + text of each prompt, and the position that predicts the text's first token."""
        model = self.language_model
        contexts = list({prompt.context for prompt in prompts if prompt.context})
        context_ids = dict(zip(contexts, model.tokens(contexts), strict=True)) if contexts else {}
        heads = [[model.start, *context_ids.get(prompt.context, [])] for prompt in prompts]
        texts = model.tokens([prompt.text for prompt in prompts])
        return [head + text for head, text in zip(heads, texts, strict=True)], [len(head) - 1 for head in heads]

    def _forward(self, network: Any, batch: list[_Window], ids: list[list[int]]) -> list[np.ndarray[Any, Any]]:
        """(3, n) statistics of the scored positions of each window of a batch."""
        device = self.language_model.device
        longest = batch[0].end - batch[0].begin
        x = torch.full((len(batch), longest), self.language_model.start, dtype=torch.long)
        scored = torch.zeros((len(batch), longest), dtype=torch.bool)
        targets: list[int] = []
        for r, span in enumerate(batch):
            row = ids[span.prompt]
            x[r, : span.end - span.begin] = torch.tensor(row[span.begin : span.end])
            scored[r, span.first - span.begin : span.end - span.begin] = True
            targets += row[span.first + 1 : span.end + 1]
        # Padding stands on the right, where a causal model cannot look, so no attention mask is needed.
        x, scored = x.to(device), scored.to(device)
        target = torch.tensor(targets, device=device)
        if self.language_model.split_head:
            hidden = network.get_decoder()(input_ids=x, use_cache=False).last_hidden_state[scored]
            values = _chunked(hidden, network.get_output_embeddings(), target)
        else:
            values = _chunked(network(input_ids=x, use_cache=False).logits[scored], None, target)
        sizes = [span.end - span.first for span in batch]
        return np.split(values.double().cpu().numpy(), np.cumsum(sizes)[:-1], axis=1)


def _chunked(states: torch.Tensor, head: Any, target: torch.Tensor) -> torch.Tensor:
    """(3, N) statistics of (N, D) hidden states, or of (N, V) logits where `head` is None, a chunk at a time."""
    vocabulary = states.shape[-1] if head is None else head.weight.shape[0]
    budget = CHUNK_BYTES.get(states.device.type, CHUNK_BYTES["cuda"])
    rows = max(1, budget // (4 * vocabulary))
    parts = [
        token_statistics(piece if head is None else head(piece), wanted)
        for piece, wanted in zip(states.split(rows), target.to(states.device).split(rows), strict=True)
    ]
    return torch.cat(parts, dim=1)
