"""Prompts → token statistics: one forward pass per prompt, shared by all detectors.

The vocabulary never stands in memory for a whole batch: the output embedding is applied to a chunk of tokens at
a time, and mean and standard deviation of log p come out of one exponential per logit.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fsd.batches import Plan, Window, windows
from fsd.errors import UsageError
from fsd.models import LanguageModel
from fsd.progress import progress
from fsd.stats import STD_FLOOR, Prompt, TokenStats

CHUNK_BYTES = {"cpu": 2**26, "cuda": 2**27}
"""Size of float32 logits made at once: enough rows for one reading of the output embedding to pay."""
BLOCK_BYTES = {"cpu": 2**20, "cuda": 2**27}
"""Size of float32 logits reduced at once: what stays in a core's cache."""
LOG2_E = 1 / math.log(2)
BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}
"""Padded tokens per forward pass unless told otherwise; on a CPU, more gains nothing (see docs/performance.md)."""
WHOLE_LOGITS_BYTES = 2**30
"""Most float32 logits of a batch where a model insists on making them all at once."""
PADDING = 0.03
"""Largest share of padding in a batch."""
ROUND = 32
"""Batches after which finished texts are handed on."""


def fitting(order: Sequence[Window], begin: int, max_tokens: int) -> int:
    """End of the longest batch order[begin:end] with rows × longest row ≤ `max_tokens` and little padding.

    Args:
        order: windows, the longest first.
        begin: where the batch begins; that window is in it, whatever its length.
        max_tokens: padded tokens of a batch.
    """
    longest, used, end = order[begin].size, 0, begin
    while end < len(order):
        used += order[end].size
        padded = (end + 1 - begin) * longest
        if end > begin and (padded > max_tokens or used < (1 - PADDING) * padded):
            break
        end += 1
    return end


def token_statistics(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """logp, mean and std of each row, float32, from one exponential per logit.

    With l = (logits − max) log₂ e and Z = Σ 2^l: log₂ p_v = l_v − log₂ Z, so that mean = (Σ l 2^l)/Z − log₂ Z, and the
    variance, which no shift changes, is (Σ l² 2^l)/Z − ((Σ l 2^l)/Z)²; all in bits until the end, since 2^l is the
    cheapest exponential. A second pass around the mean would cost as much again; l is relative to the maximum, so
    what cancels is of the size of the spread itself.

    Args:
        logits: (n, V) of any float type; overwritten if it is float32.
        target: (n,) token ids.

    Returns:
        (3, n) logp, mean, std in nats; std ≥ `STD_FLOOR`.
    """
    logits = logits.float()
    bits = torch.add(logits.amax(-1, keepdim=True) * -LOG2_E, logits, alpha=LOG2_E, out=logits)
    hit = bits.gather(-1, target[:, None]).squeeze(-1)
    weight = bits.exp2()
    total = weight.sum(-1)
    weight *= bits
    first = weight.sum(-1) / total
    weight *= bits
    second = weight.sum(-1) / total
    log_total = total.log2()
    std = (second - first.square()).clamp_min(0).sqrt()
    nats = torch.stack([hit - log_total, first - log_total, std]) / LOG2_E
    nats[2].clamp_min_(STD_FLOOR)
    return nats


class Reduction:
    """Hidden states → statistics, a chunk of tokens at a time, in one piece of memory used again and again.

    Fresh memory for every chunk of logits would cost as much as the statistics themselves.

    Args:
        head: the output embedding; None if the states are logits already.
    """

    def __init__(self, head: Any) -> None:
        self.head = head
        self.buffer: torch.Tensor | None = None

    def __call__(self, states: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """(3, N) statistics of (N, D) hidden states or (N, V) logits and their (N,) targets."""
        kind = states.device.type
        width = 4 * (states.shape[-1] if self.head is None else self.head.weight.shape[0])
        most = max(1, CHUNK_BYTES.get(kind, CHUNK_BYTES["cuda"]) // width)
        rows = -(-len(states) // -(-len(states) // most))  # chunks of one size
        block = max(1, BLOCK_BYTES.get(kind, BLOCK_BYTES["cuda"]) // width)
        parts = []
        for piece, wanted in zip(states.split(rows), target.split(rows), strict=True):
            logits = self._logits(piece)
            pairs = zip(logits.split(block), wanted.to(logits.device).split(block), strict=True)
            parts += [token_statistics(some, ids) for some, ids in pairs]
        return torch.cat(parts, dim=1)

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        head = self.head
        if head is None:
            return states
        if type(head) is not torch.nn.Linear or head.bias is not None or hasattr(head, "_hf_hook"):
            logits: torch.Tensor = head(states)
            return logits
        shape = len(states), head.weight.shape[0]
        if self.buffer is None or len(self.buffer) < shape[0]:
            self.buffer = states.new_empty(shape)
        return torch.mm(states, head.weight.t(), out=self.buffer[: shape[0]])


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


class ModelScorer:
    """Reads prompts with one state of a language model: adapter off (base) or on (tuned).

    Args:
        language_model: the model, loaded once for both states.
        tuned: whether its adapter is on.
        max_batch_tokens: padded tokens per forward pass, at least those of the longest text; None takes what suits
            the device, and halves it whenever memory runs out.
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
        self.limit = max_batch_tokens
        kind = language_model.device.type
        self.max_batch_tokens = max_batch_tokens or BATCH_TOKENS.get(kind, BATCH_TOKENS["cuda"])
        if max_batch_tokens is None and not language_model.split_head:
            vocabulary = language_model.base.get_input_embeddings().weight.shape[0]
            self.max_batch_tokens = min(self.max_batch_tokens, max(1, WHOLE_LOGITS_BYTES // (4 * vocabulary)))

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order; a prompt that comes twice is read once.

        Raises:
            UsageError: for a text of no tokens, one that is longer than a batch may be or than memory allows, or
                numbers that are not finite.
        """
        distinct = list(dict.fromkeys(prompts))
        if distinct:
            answers = dict(self.as_read(distinct))
            yield from (answers[prompt] for prompt in prompts)

    def as_read(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, TokenStats]]:
        """Each of N ≥ 1 distinct prompts with its statistics, in the order in which they are ready.

        Raises:
            UsageError: as above.
        """
        plan = self.plan(prompts)
        rounds = (plan.batches[i : i + ROUND] for i in range(0, len(plan.batches), ROUND))
        with self.bar(plan) as bar:
            yield from plan.finished(pair for some in rounds for pair in self.columns(plan, some, bar))

    def plan(self, prompts: Sequence[Prompt]) -> Plan:
        """The forward passes that N ≥ 1 distinct prompts take."""
        ids, firsts = self._tokens(prompts)
        context = self.language_model.context
        places = enumerate(zip(ids, firsts, strict=True))
        spans = [span for i, (row, first) in places for span in windows(i, len(row) - 1, first, context)]
        order = sorted(spans, key=lambda span: (-span.size, span.prompt, span.begin))
        if self.limit is not None and order[0].size > self.limit:
            raise UsageError(
                f"max-batch-tokens must be at least {order[0].size}, the length of the longest text; got {self.limit}"
            )
        batches, begin = [], 0
        while begin < len(order):
            end = fitting(order, begin, self.max_batch_tokens)
            batches.append(order[begin:end])
            begin = end
        return Plan(prompts, ids, firsts, batches)

    def bar(self, plan: Plan) -> Any:
        """Progress over the tokens of a plan."""
        return progress(plan.tokens, self.description, "tok", shown=bool(self.description))

    def columns(
        self, plan: Plan, batches: Sequence[Sequence[Window]], bar: Any
    ) -> list[tuple[Window, NDArray[np.float64]]]:
        """The windows of some of a plan's batches, each with the (3, n) statistics of its scored positions."""
        found = []
        with self.language_model.state(tuned=self.tuned) as network:
            reduction = Reduction(network.get_output_embeddings() if self.language_model.split_head else None)
            for batch in batches:
                for span, values in self._windows(network, reduction, batch, plan.ids):
                    found.append((span, values))
                    bar.update(span.size)
        return found

    def _windows(
        self, network: Any, reduction: Reduction, order: Sequence[Window], ids: Sequence[list[int]]
    ) -> Iterator[tuple[Window, NDArray[np.float64]]]:
        """Each window of a batch with its statistics; what is too much for the memory is done again in halves."""
        begin = 0
        while begin < len(order):
            end = fitting(order, begin, self.max_batch_tokens)
            batch = order[begin:end]
            try:
                values = self._forward(network, reduction, batch, ids)
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                values = None  # the error holds the tensors alive until this block is left
            if values is None:
                self._back_off(batch)
                continue
            yield from zip(batch, values, strict=True)
            begin = end

    def _back_off(self, batch: Sequence[Window]) -> None:
        if len(batch) == 1:
            raise UsageError(
                f"a text of {batch[0].size} tokens must fit the memory of {self.language_model.device} together "
                "with the model; it does not: take a smaller model, another dtype or device, or shorter texts"
            )
        self.max_batch_tokens = batch[0].size * (len(batch) // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _tokens(self, prompts: Sequence[Prompt]) -> tuple[list[list[int]], list[int]]:
        """Ids of start token + context + text of each prompt, and the position that predicts the text's first token.

        Context and text are tokenised apart, so that a text has the same tokens with and without a context.
        """
        model = self.language_model
        contexts = list(dict.fromkeys(prompt.context for prompt in prompts if prompt.context))
        context_ids = dict(zip(contexts, model.tokens(contexts), strict=True)) if contexts else {}
        heads = [[model.start, *context_ids.get(prompt.context, [])] for prompt in prompts]
        texts = model.tokens([prompt.text for prompt in prompts])
        return [head + text for head, text in zip(heads, texts, strict=True)], [len(head) - 1 for head in heads]

    def _forward(
        self, network: Any, reduction: Reduction, batch: Sequence[Window], ids: Sequence[list[int]]
    ) -> list[NDArray[np.float64]]:
        """(3, n) statistics of the scored positions of each window of a batch."""
        device = self.language_model.device
        x = torch.full((len(batch), batch[0].size), self.language_model.start, dtype=torch.long)
        scored = torch.zeros(x.shape, dtype=torch.bool)
        targets: list[int] = []
        for r, span in enumerate(batch):
            row = ids[span.prompt]
            x[r, : span.size] = torch.tensor(row[span.begin : span.end])
            scored[r, span.first - span.begin : span.size] = True
            targets += row[span.first + 1 : span.end + 1]
        # Padding stands on the right, where a causal model cannot look, so no attention mask is needed.
        x, target = x.to(device), torch.tensor(targets, device=device)
        if self.language_model.split_head:
            states = network.get_decoder()(input_ids=x, use_cache=False).last_hidden_state
        else:
            states = network(input_ids=x, use_cache=False).logits
        values = reduction(states[scored.to(states.device)], target).double().cpu().numpy()
        if not np.isfinite(values).all():
            raise UsageError(
                f"model {self.language_model.identity.id!r} must give finite log-probabilities; it does not in "
                f"{self.language_model.precision}: take another dtype"
            )
        return np.split(values, np.cumsum([span.end - span.first for span in batch])[:-1], axis=1)
