"""Prompts → token statistics by a language model: one forward pass per prompt, shared by all detectors."""

import functools
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from fsd.distributed import from_main, gather, is_main_process, num_processes, process_index
from fsd.errors import UsageError, at_least, first_line
from fsd.models.language_model import LanguageModel, rope_switch
from fsd.progress import progress
from fsd.token_stats import STD_FLOOR, FloatArray, Prompt, Scorer, TokenStats

PADDING = 0.03
"""Largest share of padding in a batch."""
SHARED = 64
"""Least number of ids that windows share before what is scored, for which their keys and values are computed once."""


class Window(NamedTuple):
    """Input ids[begin:end] of a prompt, scored from `first` on, after `past` ids that all windows of a batch share."""

    prompt: int
    begin: int
    end: int
    first: int
    past: int = 0

    @property
    def size(self) -> int:
        """Number of input positions."""
        return self.end - self.begin


def windows(prompt: int, length: int, first: int, context: int) -> Iterator[Window]:
    """Windows that score each position from `first` to `length` once, with at least half a context before it."""
    step = max(1, context // 2)
    done, end = first, min(length, max(context, first + step))
    while done < length:
        yield Window(prompt, max(0, end - context), end, done)
        done, end = end, min(length, end + step)


def _after_prefix(window: Window) -> Window:
    return window._replace(begin=window.first, past=window.first - window.begin)


def batched(order: Sequence[Window], max_tokens: int, alike: int | None = None) -> list[Sequence[Window]]:
    """Windows, the longest first, in batches of at most `max_tokens`; those longer than `alike` with equals only."""
    batches: list[Sequence[Window]] = []
    begin = 0
    while begin < len(order):
        longest, used, end = order[begin].size, 0, begin
        while end < len(order):
            used += order[end].size
            padded = (end + 1 - begin) * longest
            apart = alike is not None and longest > alike and order[end].size < longest
            if end > begin and (apart or padded > max_tokens or used < (1 - PADDING) * padded):
                break
            end += 1
        batches.append(order[begin:end])
        begin = end
    return batches


Statistics = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(n, V) logits and (n,) targets → (4, n) logp, mean, std, top in nats."""

CHUNK_BYTES = {"cpu": 2**26, "cuda": 2**28}
"""Size of the logits computed at once: enough rows to be worth one read of the output embedding."""
BLOCK_BYTES = {"cpu": 2**20, "cuda": 2**26}
"""Size of the float32 logits that torch reduces at once; on a CPU it fits into a core's cache."""
LOG2_E = 1 / math.log(2)
LEAST = -200.0
"""Lower bound of logits relative to the largest, in bits; below it, their weight in float32 is zero."""
TOLERANCE = 1e-4
"""Largest accepted difference between kernel and torch, in nats."""


def token_statistics(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """logp, mean, std and top of each row, (4, n) nats, from (n, V) logits, overwritten if float32, and (n,) targets.

    With l = (logits − max) log₂ e and Z = Σ 2^l: log₂ p_v = l_v − log₂ Z, mean = (Σ l 2^l)/Z − log₂ Z, and the
    variance, which no shift changes, is (Σ l² 2^l)/Z − ((Σ l 2^l)/Z)²: one exponential per logit, in bits, and no
    second pass around the mean, since the terms that cancel are of the size of the spread. A logit of −∞ adds nothing.
    """
    logits = logits.float()
    largest = logits.amax(-1, keepdim=True)
    shift = largest * -LOG2_E
    top = torch.add(shift, largest, alpha=LOG2_E).squeeze(-1)
    bits = torch.add(shift, logits, alpha=LOG2_E, out=logits)
    hit = bits.gather(-1, target[:, None]).squeeze(-1)
    weight = bits.clamp_min_(LEAST).exp2()
    total = weight.sum(-1)
    weight *= bits
    first = weight.sum(-1) / total
    weight *= bits
    second = weight.sum(-1) / total
    log_total = total.log2()
    std = (second - first.square()).clamp_min(0).sqrt()
    nats = torch.stack([hit - log_total, first - log_total, std, top - log_total]) / LOG2_E
    nats[2].clamp_min_(STD_FLOOR)
    return nats


@functools.cache
def statistics_for(device: torch.device, dtype: torch.dtype, vocabulary: int) -> Statistics:
    """The kernel if it compiles and agrees with torch, else torch and a line that says why."""
    if device.type != "cuda":
        return token_statistics
    reason = "Triton is not installed"
    if find_spec("triton") is not None:
        try:
            from fsd.scoring import triton_kernel

            logits = (4 * torch.randn(2, vocabulary, generator=torch.Generator().manual_seed(0))).to(device, dtype)
            target = torch.tensor([0, vocabulary - 1]).to(device)
            ours, plain = (of(logits.clone(), target) for of in (triton_kernel.token_statistics, token_statistics))
            difference = float((ours - plain).abs().max())
            if difference <= TOLERANCE:
                return triton_kernel.token_statistics
            reason = f"its numbers differ by {difference:.1e} nats"
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # compilers and drivers fail in many ways; torch gives the same, more slowly
            reason = first_line(error)
    print(f"token statistics are computed by torch, without the Triton kernel: {reason}", file=sys.stderr)
    return token_statistics


class Reduction(threading.local):
    """Hidden states → statistics, a chunk at a time in one buffer of each thread: new memory would cost as much."""

    def __init__(self, head: Any) -> None:
        self.head = head
        self.buffer: torch.Tensor | None = None

    def __call__(self, states: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """(4, N) statistics of (N, D) hidden states or (N, V) logits and their (N,) targets."""
        kind = states.device.type
        vocabulary = states.shape[-1] if self.head is None else self.head.weight.shape[0]
        most = max(1, CHUNK_BYTES.get(kind, CHUNK_BYTES["cuda"]) // (states.element_size() * vocabulary))
        rows = -(-len(states) // -(-len(states) // most))  # chunks of one size
        parts = []
        for chunk, ids in zip(states.split(rows), target.split(rows), strict=True):
            logits = self._logits(chunk)
            parts.append(self._reduce(logits, ids.to(logits.device)))
        return torch.cat(parts, dim=1)

    @staticmethod
    def _reduce(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        statistics = statistics_for(logits.device, logits.dtype, logits.shape[-1])
        if statistics is not token_statistics:
            return statistics(logits, target)
        kind = logits.device.type
        block = max(1, BLOCK_BYTES.get(kind, BLOCK_BYTES["cuda"]) // (4 * logits.shape[-1]))
        pairs = zip(logits.split(block), target.split(block), strict=True)
        return torch.cat([statistics(rows, ids) for rows, ids in pairs], dim=1)

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


T = TypeVar("T")

BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}
"""Default padded tokens per forward pass; on a CPU, more gains nothing (see docs/performance.md)."""
WHOLE_LOGITS_BYTES = 2**30
"""Largest float32 logits of a batch for models that compute them all at once."""
WORKERS = 8
"""Most batches at a time on a CPU, each on its share of the threads, which small matrices keep busy better than all."""


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


@dataclass(eq=False)
class ModelScorer:
    """Token statistics by one state of a language model: adapter off (base) or on (tuned)."""

    language_model: LanguageModel
    _: KW_ONLY
    tuned: bool = False
    max_batch_tokens: int | None = None  # padded ones of a pass, at least the longest text; None: fit for the device
    description: str = ""  # of the progress bar
    batches_per_round: ClassVar = 32  # after which finished texts are handed on

    def __post_init__(self) -> None:
        at_least(1, **{"max-batch-tokens": self.max_batch_tokens})
        self.prepared = False  # by a pass of its own, in which some networks change themselves
        self.alike = rope_switch(self.language_model.base.config)
        kind = self.language_model.device.type
        self.budget = self.max_batch_tokens or BATCH_TOKENS.get(kind, BATCH_TOKENS["cuda"])
        if self.max_batch_tokens is None and not self.language_model.split_head:
            vocabulary = self.language_model.base.get_input_embeddings().weight.shape[0]
            self.budget = min(self.budget, max(1, WHOLE_LOGITS_BYTES // (4 * vocabulary)))

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order; repeated prompts are computed once."""
        distinct = list(dict.fromkeys(prompts))
        if distinct:
            answers = dict(self.as_read(distinct))
            yield from (answers[prompt] for prompt in prompts)

    def as_read(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, TokenStats]]:
        """Each of N ≥ 1 distinct prompts with its statistics, in the order in which they are ready."""
        self.prepared = False  # training may have come between
        ids, firsts = self._tokens(prompts)
        batches = self.batches(ids, firsts)
        tokens = sum(window.size for batch in batches for window in batch)
        waiting: dict[int, tuple[FloatArray, int]] = {}
        with progress(tokens, self.description, "tok", shown=bool(self.description)) as bar:
            for at in range(0, len(batches), self.batches_per_round):
                for window, values in self.columns(ids, batches[at : at + self.batches_per_round], bar):
                    i, first = window.prompt, firsts[window.prompt]
                    size = len(ids[i]) - 1 - first
                    statistics, missing = waiting.get(i) or (np.empty((4, size)), size)
                    statistics[:, window.first - first : window.end - first] = values
                    waiting[i] = statistics, missing - values.shape[1]
                    if missing == values.shape[1]:
                        del waiting[i]
                        token = np.asarray(ids[i][first + 1 :], dtype=np.int64)
                        yield prompts[i], TokenStats(prompts[i].text, token, *statistics)

    def batches(self, ids: Sequence[list[int]], firsts: Sequence[int]) -> list[Sequence[Window]]:
        """The forward passes of prompts of which `firsts` are the positions that predict the first token to score."""
        context = self.language_model.context
        places = enumerate(zip(ids, firsts, strict=True))
        order = sorted(
            (window for i, (row, first) in places for window in windows(i, len(row) - 1, first, context)),
            key=lambda window: (-window.size, window.prompt, window.begin),
        )
        if self.max_batch_tokens is not None and order[0].size > self.max_batch_tokens:
            raise UsageError(
                f"max-batch-tokens must be at least {order[0].size}, the length of the longest text; got "
                f"{self.max_batch_tokens}"
            )
        groups: dict[tuple[int, ...], list[Window]] = {}
        for window in order:
            prefix = tuple(ids[window.prompt][window.begin : window.first])
            groups.setdefault(prefix if len(prefix) >= SHARED else (), []).append(window)
        apart = [group for prefix, group in groups.items() if prefix and len(group) > 1]
        if not apart or not self._shares(apart[0][:2], ids):
            return batched(order, self.budget, self.alike)
        shared = {window for group in apart for window in group}
        orders = [[w for w in order if w not in shared], *(list(map(_after_prefix, group)) for group in apart)]
        return [batch for part in orders for batch in batched(part, self.budget)]

    def _shares(self, pair: Sequence[Window], ids: Sequence[list[int]]) -> bool:
        """Whether two windows get the same numbers with the keys and values of their prefix computed before."""
        if self.alike is not None or hasattr(self.language_model.base, "hf_device_map"):
            return False
        try:
            with self.language_model.state(tuned=self.tuned) as network:
                reduction = Reduction(network.get_output_embeddings() if self.language_model.split_head else None)
                whole, after = (
                    self._forward(network, reduction, part, ids) for part in (pair, list(map(_after_prefix, pair)))
                )
        except Exception:  # a network without keys and values, or one that keeps them otherwise
            return False
        return float((whole - after).abs().max()) <= TOLERANCE

    def columns(
        self, ids: Sequence[list[int]], batches: Sequence[Sequence[Window]], bar: Any
    ) -> list[tuple[Window, FloatArray]]:
        """The windows of some batches, each with (4, n) statistics of its scored positions."""
        columns: list[tuple[Window, FloatArray]] = []
        with self.language_model.state(tuned=self.tuned) as network:
            reduction = Reduction(network.get_output_embeddings() if self.language_model.split_head else None)
            for batch, statistics in one_ahead(self._computed(network, reduction, batches, ids)):
                values = statistics.double().cpu().numpy()
                if not np.isfinite(values).all():
                    raise UsageError(
                        f"model {self.language_model.identity.id!r} must give finite log-probabilities; it does not in "
                        f"{self.language_model.precision}: take another dtype"
                    )
                sizes = [window.end - window.first for window in batch]
                columns += zip(batch, np.split(values, np.cumsum(sizes)[:-1], axis=1), strict=True)
                bar.update(sum(window.size for window in batch))
        return columns

    def _computed(
        self, network: Any, reduction: Reduction, batches: Sequence[Sequence[Window]], ids: Sequence[list[int]]
    ) -> Iterator[tuple[Sequence[Window], torch.Tensor]]:
        """The parts of batches as `_started` gives them, in order; on a CPU several batches at a time."""
        threads = torch.get_num_threads()
        # Hooks that move weights, and position encodings that a pass changes, are of one thread.
        single = self.alike is not None or hasattr(network, "hf_device_map")
        workers = min(threads, WORKERS) if self.language_model.device.type == "cpu" and not single else 1
        started = functools.partial(self._started, network, reduction, ids=ids)
        apart = len(batches) if workers == 1 else int(not self.prepared)
        for batch in batches[:apart]:
            yield from started(batch)
        self.prepared = True
        if apart >= len(batches):
            return
        scored = torch.inference_mode()(lambda batch: list(started(batch)))
        try:
            with ThreadPoolExecutor(workers, "scoring", torch.set_num_threads, (threads // workers,)) as pool:
                for parts in pool.map(scored, batches[apart:]):
                    yield from parts
        finally:
            torch.set_num_threads(threads)

    def _started(
        self, network: Any, reduction: Reduction, order: Sequence[Window], ids: Sequence[list[int]]
    ) -> Iterator[tuple[Sequence[Window], torch.Tensor]]:
        """Windows with their (4, n) statistics, perhaps still computed; a batch beyond the memory is halved."""
        done = 0
        for batch in batched(order, self.budget, self.alike):
            try:
                values = self._forward(network, reduction, batch, ids)
            except RuntimeError as error:
                if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
                    raise
                values = None  # the error holds the tensors alive until this block is left
            if values is None:
                if len(batch) == 1:
                    raise UsageError(
                        f"a text of {batch[0].size} tokens must fit the memory of {self.language_model.device} "
                        "together with the model; it does not: take a smaller model, another dtype or device, or "
                        "shorter texts"
                    )
                self.budget = batch[0].size * (len(batch) // 2)
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                yield from self._started(network, reduction, order[done:], ids)
                return
            yield batch, values
            done += len(batch)

    def _tokens(self, prompts: Sequence[Prompt]) -> tuple[list[list[int]], list[int]]:
        """Ids of start token + context + text of each prompt, tokenised apart, and the position before the text."""
        model = self.language_model
        contexts = list(dict.fromkeys(prompt.context for prompt in prompts if prompt.context))
        context_ids = dict(zip(contexts, model.tokens(contexts), strict=True)) if contexts else {}
        heads = [[model.start, *context_ids.get(prompt.context, [])] for prompt in prompts]
        texts = model.tokens([prompt.text for prompt in prompts])
        return [head + text for head, text in zip(heads, texts, strict=True)], [len(head) - 1 for head in heads]

    def _forward(
        self, network: Any, reduction: Reduction, batch: Sequence[Window], ids: Sequence[list[int]]
    ) -> torch.Tensor:
        """(4, n) statistics of the scored positions of a batch, window by window."""
        device = self.language_model.device
        width = batch[0].size
        inputs = [torch.tensor(ids[window.prompt][window.begin : window.end]) for window in batch]
        scored: list[int] = []
        targets: list[int] = []
        for r, window in enumerate(batch):
            scored += range(r * width + window.first - window.begin, r * width + window.size)
            targets += ids[window.prompt][window.first + 1 : window.end + 1]
        # Padding is on the right, where a causal model cannot look, so no attention mask is needed.
        x = pad_sequence(inputs, True, self.language_model.start)
        x, places, target = (_to_device(part, device) for part in (x, torch.tensor(scored), torch.tensor(targets)))
        body = network.get_decoder() if self.language_model.split_head else network
        how: dict[str, Any] = {"use_cache": False}
        if past := batch[0].past:
            first = ids[batch[0].prompt][batch[0].begin - past : batch[0].begin]
            kept = body(input_ids=torch.tensor([first], device=device), use_cache=True).past_key_values
            kept.batch_repeat_interleave(len(batch))
            how = {"use_cache": True, "past_key_values": kept}
        answer = body(input_ids=x, **how)
        states = answer.last_hidden_state if self.language_model.split_head else answer.logits
        return reduction(states.flatten(0, 1).index_select(0, places.to(states.device)), target)


class DistributedScorer(ModelScorer):
    """A `ModelScorer` that all processes call together: each takes every n-th batch, so numbers stay bitwise."""

    batches_per_round = ModelScorer.batches_per_round * num_processes()

    def as_read(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, TokenStats]]:
        """Each distinct prompt of the main process with its statistics; see `ModelScorer.as_read`."""
        missing = from_main(lambda: list(prompts))
        if missing:
            yield from super().as_read(missing)

    def columns(
        self, ids: Sequence[list[int]], batches: Sequence[Sequence[Window]], bar: Any
    ) -> list[tuple[Window, FloatArray]]:
        """The windows of these batches with their statistics, a share of them from each process."""
        share = super().columns(ids, batches[process_index() :: num_processes()], bar)
        shares = gather((share, self.budget))
        # Where memory ran out in one process, all of them lay out smaller batches from now on.
        self.budget = min(limit for _, limit in shares)
        columns = [column for share, _ in shares for column in share]
        bar.update(sum(window.size for window, _ in columns) - sum(window.size for window, _ in share))
        return columns


def collective(scorer: Scorer, distributed: DistributedScorer) -> Scorer:
    """A scorer that all processes call together and that gives each of them the main process's statistics."""

    def score(prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        statistics: list[TokenStats] = []
        if is_main_process():
            statistics = list(scorer(prompts))
            list(distributed.as_read([]))  # no more prompts in this call
        else:
            while list(distributed.as_read([])):
                pass
        return iter(from_main(lambda: statistics))

    return score


def hidden_states(
    language_model: LanguageModel, texts: Sequence[str], *, depth: float = 0.5, tuned: bool = False
) -> FloatArray:
    """(N, D) mean hidden states of N texts above the share `depth` of the layers; the beginning of long texts counts.

    Layers in the middle say most about what a text is like, the last ones about the next token
    (https://arxiv.org/abs/2502.02013).
    """
    tokens = language_model.tokens(texts)
    rows = [torch.tensor([language_model.start, *ids][: language_model.context]) for ids in tokens]
    order = sorted((Window(at, 0, len(row), 0) for at, row in enumerate(rows)), key=lambda window: -window.size)
    limit = BATCH_TOKENS.get(language_model.device.type, BATCH_TOKENS["cuda"])
    means: dict[int, FloatArray] = {}
    with language_model.state(tuned=tuned) as network:
        body = network.get_decoder() if language_model.split_head else network
        for batch in batched(order, limit):
            x = pad_sequence([rows[window.prompt] for window in batch], True, language_model.start)
            layers = body(x.to(language_model.device), use_cache=False, output_hidden_states=True).hidden_states
            states = layers[min(int(depth * len(layers)), len(layers) - 1)].float().cpu()
            for row, window in enumerate(batch):
                means[window.prompt] = states[row, 1 : window.size].mean(dim=0).double().numpy()
    return np.array([means[at] for at in range(len(texts))])
