"""Prompts → token statistics: one forward pass per prompt, shared by all detectors."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fsd.errors import UsageError
from fsd.models.language_model import LanguageModel
from fsd.progress import progress
from fsd.scoring.batching import Plan, Window, windows
from fsd.scoring.logit_statistics import Reduction
from fsd.token_stats import Prompt, TokenStats

T = TypeVar("T")

BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}
"""Padded tokens per forward pass unless told otherwise; on a CPU, more gains nothing (see docs/performance.md)."""
WHOLE_LOGITS_BYTES = 2**30
"""Most float32 logits of a batch where a model insists on making them all at once."""
PADDING = 0.03
"""Largest share of padding in a batch."""


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


def one_ahead(begun: Iterable[T]) -> Iterator[T]:
    """The same items, each once the next one has been begun: a device works on while the last result is fetched."""
    last: list[T] = []
    for item in begun:
        yield from last
        last = [item]
    yield from last


def _sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor on a device; to a card without waiting for what it is still at work on."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


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

    batches_per_round = 32
    """Batches after which finished texts are handed on."""

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
        step = self.batches_per_round
        rounds = (plan.batches[i : i + step] for i in range(0, len(plan.batches), step))
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
            begun = (pair for batch in batches for pair in self._begun(network, reduction, batch, plan.ids))
            for windows_, values in one_ahead(begun):
                found += self._fetched(windows_, values)
                bar.update(sum(span.size for span in windows_))
        return found

    def _begun(
        self, network: Any, reduction: Reduction, order: Sequence[Window], ids: Sequence[list[int]]
    ) -> Iterator[tuple[Sequence[Window], torch.Tensor]]:
        """Windows of a batch with their statistics, (3, n) on a device that may still be at work on them.

        What is too much for the memory is done again in halves.
        """
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
            yield batch, values
            begin = end

    def _fetched(self, batch: Sequence[Window], statistics: torch.Tensor) -> list[tuple[Window, NDArray[np.float64]]]:
        """Windows with their statistics, off the device."""
        values = statistics.double().cpu().numpy()
        if not np.isfinite(values).all():
            raise UsageError(
                f"model {self.language_model.identity.id!r} must give finite log-probabilities; it does not in "
                f"{self.language_model.precision}: take another dtype"
            )
        parts = np.split(values, np.cumsum([span.end - span.first for span in batch])[:-1], axis=1)
        return list(zip(batch, parts, strict=True))

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
    ) -> torch.Tensor:
        """(3, n) statistics of the scored positions of the windows of a batch, one window after the other."""
        device = self.language_model.device
        width = batch[0].size
        x = torch.full((len(batch), width), self.language_model.start, dtype=torch.long)
        scored: list[int] = []
        targets: list[int] = []
        for r, span in enumerate(batch):
            row = ids[span.prompt]
            x[r, : span.size] = torch.tensor(row[span.begin : span.end])
            scored += range(r * width + span.first - span.begin, r * width + span.size)
            targets += row[span.first + 1 : span.end + 1]
        # Padding stands on the right, where a causal model cannot look, so no attention mask is needed.
        x, places, target = (_sent(part, device) for part in (x, torch.tensor(scored), torch.tensor(targets)))
        if self.language_model.split_head:
            states = network.get_decoder()(input_ids=x, use_cache=False).last_hidden_state
        else:
            states = network(input_ids=x, use_cache=False).logits
        return reduction(states.flatten(0, 1).index_select(0, places.to(states.device)), target)
