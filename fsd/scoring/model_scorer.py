"""Prompts → token statistics by a language model: one forward pass per prompt, shared by all detectors."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from fsd.errors import UsageError
from fsd.models.language_model import LanguageModel, rope_switch
from fsd.progress import progress
from fsd.scoring.batching import Plan, Window, batched, windows
from fsd.scoring.logit_statistics import Reduction
from fsd.token_stats import FloatArray, Prompt, TokenStats

T = TypeVar("T")

BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}
"""Default padded tokens per forward pass; on a CPU, more gains nothing (see docs/performance.md)."""
WHOLE_LOGITS_BYTES = 2**30
"""Largest float32 logits of a batch for models that compute them all at once."""


def one_ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, each after the next one was started: the device computes while the last result is fetched."""
    last: list[T] = []
    for item in items:
        yield from last
        last = [item]
    yield from last


def _to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor on a device; a GPU is not synchronised."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


class ModelScorer:
    """Token statistics by one state of a language model: adapter off (base) or on (tuned).

    `max_batch_tokens` is the largest number of padded tokens per forward pass, at least that of the longest text; None
    takes the default of the device, which is halved whenever memory runs out. `description` labels the progress bar.
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
        self.alike = rope_switch(language_model.base.config)
        kind = language_model.device.type
        self.max_batch_tokens = max_batch_tokens or BATCH_TOKENS.get(kind, BATCH_TOKENS["cuda"])
        if max_batch_tokens is None and not language_model.split_head:
            vocabulary = language_model.base.get_input_embeddings().weight.shape[0]
            self.max_batch_tokens = min(self.max_batch_tokens, max(1, WHOLE_LOGITS_BYTES // (4 * vocabulary)))

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order; repeated prompts are computed once."""
        distinct = list(dict.fromkeys(prompts))
        if distinct:
            answers = dict(self.as_read(distinct))
            yield from (answers[prompt] for prompt in prompts)

    def as_read(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, TokenStats]]:
        """Each of N ≥ 1 distinct prompts with its statistics, in the order in which they are ready."""
        plan = self.plan(prompts)
        step = self.batches_per_round
        rounds = (plan.batches[i : i + step] for i in range(0, len(plan.batches), step))
        with progress(plan.tokens, self.description, "tok", shown=bool(self.description)) as bar:
            yield from plan.finished(pair for some in rounds for pair in self.columns(plan, some, bar))

    def plan(self, prompts: Sequence[Prompt]) -> Plan:
        """The forward passes that N ≥ 1 distinct prompts take."""
        ids, firsts = self._tokens(prompts)
        context = self.language_model.context
        places = enumerate(zip(ids, firsts, strict=True))
        order = sorted(
            (window for i, (row, first) in places for window in windows(i, len(row) - 1, first, context)),
            key=lambda window: (-window.size, window.prompt, window.begin),
        )
        if self.limit is not None and order[0].size > self.limit:
            raise UsageError(
                f"max-batch-tokens must be at least {order[0].size}, the length of the longest text; got {self.limit}"
            )
        return Plan(prompts, ids, firsts, batched(order, self.max_batch_tokens, self.alike))

    def columns(self, plan: Plan, batches: Sequence[Sequence[Window]], bar: Any) -> list[tuple[Window, FloatArray]]:
        """The windows of some of a plan's batches, each with (3, n) statistics of its scored positions."""
        columns: list[tuple[Window, FloatArray]] = []
        with self.language_model.state(tuned=self.tuned) as network:
            reduction = Reduction(network.get_output_embeddings() if self.language_model.split_head else None)
            started = (pair for batch in batches for pair in self._started(network, reduction, batch, plan.ids))
            for batch, values in one_ahead(started):
                columns += self._fetched(batch, values)
                bar.update(sum(window.size for window in batch))
        return columns

    def _started(
        self, network: Any, reduction: Reduction, order: Sequence[Window], ids: Sequence[list[int]]
    ) -> Iterator[tuple[Sequence[Window], torch.Tensor]]:
        """Windows with their (3, n) statistics on the device, which may still be computing them.

        A batch that exceeds the memory is split in halves and repeated.
        """
        done = 0
        for batch in batched(order, self.max_batch_tokens, self.alike):
            try:
                values = self._forward(network, reduction, batch, ids)
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                values = None  # the error holds the tensors alive until this block is left
            if values is None:
                self._back_off(batch)
                yield from self._started(network, reduction, order[done:], ids)
                return
            yield batch, values
            done += len(batch)

    def _fetched(self, batch: Sequence[Window], statistics: torch.Tensor) -> list[tuple[Window, FloatArray]]:
        """Windows with their (3, n) statistics as float64 arrays."""
        values = statistics.double().cpu().numpy()
        if not np.isfinite(values).all():
            raise UsageError(
                f"model {self.language_model.identity.id!r} must give finite log-probabilities; it does not in "
                f"{self.language_model.precision}: take another dtype"
            )
        parts = np.split(values, np.cumsum([window.end - window.first for window in batch])[:-1], axis=1)
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

        Context and text are tokenised separately, so that a text has the same tokens with and without a context.
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
        """(3, n) statistics of the scored positions of a batch, window by window."""
        device = self.language_model.device
        width = batch[0].size
        x = torch.full((len(batch), width), self.language_model.start, dtype=torch.long)
        scored: list[int] = []
        targets: list[int] = []
        for r, window in enumerate(batch):
            row = ids[window.prompt]
            x[r, : window.size] = torch.tensor(row[window.begin : window.end])
            scored += range(r * width + window.first - window.begin, r * width + window.size)
            targets += row[window.first + 1 : window.end + 1]
        # Padding is on the right, where a causal model cannot look, so no attention mask is needed.
        x, places, target = (_to_device(part, device) for part in (x, torch.tensor(scored), torch.tensor(targets)))
        if self.language_model.split_head:
            states = network.get_decoder()(input_ids=x, use_cache=False).last_hidden_state
        else:
            states = network(input_ids=x, use_cache=False).logits
        return reduction(states.flatten(0, 1).index_select(0, places.to(states.device)), target)
