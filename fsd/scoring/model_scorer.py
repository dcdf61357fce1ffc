"""Prompts → token statistics by a language model: one forward pass per prompt, shared by all detectors."""

import copy
import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fsd.distributed import from_main, gather, is_main_process, num_processes, process_index
from fsd.errors import UsageError, at_least
from fsd.models.language_model import LanguageModel, rope_switch
from fsd.progress import progress
from fsd.token_stats import (
    STD_FLOOR,
    FloatArray,
    IntArray,
    Marked,
    Prompt,
    Prompts,
    Scored,
    Scorer,
    TokenIds,
    TokenStats,
)

# Largest share of padding in a batch. Padding is computed and thrown away; smaller batches fill the device less.
PADDING = 0.03
# Least number of ids that windows share before what is scored, for which their keys and values are computed once.
# For fewer, the pass over the prefix costs more than it saves.
SHARED = 64

# The token ids of each prompt: start token, context and text.
Ids = Sequence[TokenIds]


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

    @property
    def scored(self) -> int:
        """Number of positions that are scored."""
        return self.end - self.first


Batch = Sequence[Window]
# Windows, each with the statistics of its scored positions.
Columns = list[tuple[Window, FloatArray]]
# Prompts by number, or all of them → token ids.
Rows = Mapping[int, TokenIds] | Ids


def windows(prompt: int, length: int, start: int, context: int) -> Iterator[Window]:
    """Windows that score each position from `start` to `length` once, with at least half a context before it."""
    step = max(1, context // 2)
    done = start
    # The first window has nothing before it, so all of it is scored, and not the last half alone.
    end = min(length, max(context, start + step))
    while done < length:
        yield Window(prompt, max(0, end - context), end, done)
        done = end
        end = min(length, end + step)


def _after_prefix(batch: Batch) -> list[Window]:
    """Windows that share all that is before their scored positions, without it."""
    past = batch[0].first - batch[0].begin
    return [window._replace(begin=window.first, past=past) for window in batch]


def _positions(batch: Iterable[Window]) -> int:
    """Number of input positions of windows."""
    return sum(window.size for window in batch)


def batched(order: Batch, max_tokens: int, alike: int | None = None) -> list[Batch]:
    """Windows, the longest first, in batches of at most `max_tokens`; those longer than `alike` with equals only."""
    batches = []
    begin = 0
    while begin < len(order):
        longest = order[begin].size
        used = 0
        end = begin
        while end < len(order):
            used += order[end].size
            padded = (end + 1 - begin) * longest
            full = padded > max_tokens or used < (1 - PADDING) * padded
            # Position encodings that depend on the batch's length would differ for a shorter text in it.
            if alike is not None and longest > alike:
                full = full or order[end].size < longest
            # A batch has one window at least, however long it is.
            if full and end > begin:
                break
            end += 1
        batches.append(order[begin:end])
        begin = end
    return batches


# Size of the logits computed at once: enough rows to be worth one read of the output embedding.
CHUNK_BYTES = {"cpu": 2**26, "cuda": 2**28}
# Size of the float32 logits that torch reduces at once; on a CPU it fits into a core's cache.
BLOCK_BYTES = {"cpu": 2**20, "cuda": 2**26}
LOG2_E = 1 / math.log(2)
# Lower bound of logits relative to the largest, in bits; below it, their weight in float32 is zero. Without the bound
# a logit of -inf would give 0 · inf, which is not a number.
LEAST = -200.0
# Largest accepted difference between two ways of computing the same number, in nats.
TOLERANCE = 1e-4


def device_limit(limits: dict[str, int], device: torch.device, size: int = 1) -> int:
    """How many things of a size the limit for a device allows, at least one; other accelerators count as a GPU."""
    limit = limits.get(device.type, limits["cuda"])
    return max(1, limit // size)


def token_statistics(logits: Tensor, target: Tensor) -> Tensor:
    """logp, mean, std and top of each row, (4, n) nats, from (n, V) logits, overwritten if float32, and (n,) targets.

    With l = (logits − max) log₂ e and Z = Σ 2^l: log₂ p_v = l_v − log₂ Z, mean = (Σ l 2^l)/Z − log₂ Z, and the
    variance, which no shift changes, is (Σ l² 2^l)/Z − ((Σ l 2^l)/Z)²: one exponential per logit, in bits, and no
    second pass around the mean, since the terms that cancel are of the size of the spread. A logit of −∞ adds nothing.
    """
    return moments(weighted(logits, target))


class Weighted(NamedTuple):
    """The distributions of n rows of logits, in bits relative to the largest logit l.

    `bits` and `weight` = 2^bits are (n, V), bits with a lower bound; `hit` and `top` are the (n,) bits of target and
    largest logit, and `total` is Z.
    """

    bits: Tensor
    weight: Tensor
    hit: Tensor
    top: Tensor
    total: Tensor


def weighted(logits: Tensor, target: Tensor) -> Weighted:
    """The distributions of (n, V) logits, which are overwritten if float32, and the places of (n,) targets in them."""
    logits = logits.float()
    largest = logits.amax(-1, keepdim=True)
    shift = largest * -LOG2_E
    # The largest logit goes through the same rounding as all others, so that it has exactly the bits of its target.
    top = torch.add(shift, largest, alpha=LOG2_E).squeeze(-1)
    bits = torch.add(shift, logits, alpha=LOG2_E, out=logits)
    # Read before the bound: the log-probability of a target far below it is still exact.
    hit = bits.gather(-1, target[:, None]).squeeze(-1)
    weight = bits.clamp_min_(LEAST).exp2()
    return Weighted(bits, weight, hit, top, weight.sum(-1))


def moments(rows: Weighted) -> Tensor:
    """logp, mean, std and top of each row, (4, n) nats; the weights are overwritten."""
    bits, weight, hit, top, total = rows
    weight *= bits
    mean = weight.sum(-1) / total
    weight *= bits
    square = weight.sum(-1) / total
    log_total = total.log2()
    # Rounding can make the variance of a distribution on one token negative.
    std = (square - mean.square()).clamp_min(0).sqrt()
    nats = torch.stack([hit - log_total, mean - log_total, std, top - log_total]) / LOG2_E
    nats[2].clamp_min_(STD_FLOOR)
    return nats


class Reduction(threading.local):
    """Hidden states → statistics, a chunk at a time in one buffer of each thread: new memory would cost as much."""

    def __init__(self, head: Any) -> None:
        self.head = head
        self.buffer: Tensor | None = None

    def __call__(self, states: Tensor, target: Tensor) -> Tensor:
        """(4, N) statistics of (N, D) hidden states or (N, V) logits and their (N,) targets."""
        rows = self.rows(states)
        parts = []
        for chunk, ids in zip(states.split(rows), target.split(rows), strict=True):
            logits = self.logits(chunk)
            parts.append(self._reduce(logits, ids.to(logits.device)))
        return torch.cat(parts, dim=1)

    def rows(self, states: Tensor) -> int:
        """The number of states whose logits are computed at once."""
        vocabulary = states.shape[-1] if self.head is None else self.head.weight.shape[0]
        most = device_limit(CHUNK_BYTES, states.device, states.element_size() * vocabulary)
        # Chunks of one size: a short one at the end would cost another read of the whole output embedding.
        count = len(states)
        chunks = math.ceil(count / most)
        return math.ceil(count / chunks)

    @staticmethod
    def _reduce(logits: Tensor, target: Tensor) -> Tensor:
        block = device_limit(BLOCK_BYTES, logits.device, 4 * logits.shape[-1])
        blocks = map(token_statistics, logits.split(block), target.split(block))
        return torch.cat(list(blocks), dim=1)

    def logits(self, states: Tensor) -> Tensor:
        """(n, V) logits of hidden states, in a buffer that the next call overwrites; or what are logits already."""
        head = self.head
        if head is None:
            return states
        product = type(head) is torch.nn.Linear and head.bias is None
        # A quantized or adapted head, or one with hooks, computes more than a product: it is called as it is.
        if not product or hasattr(head, "_hf_hook"):
            logits: Tensor = head(states)
            return logits
        rows = len(states)
        if self.buffer is None or len(self.buffer) < rows:
            self.buffer = states.new_empty((rows, head.weight.shape[0]))
        return torch.mm(states, head.weight.t(), out=self.buffer[:rows])


T = TypeVar("T")


def scored_part(marked: Marked) -> tuple[TokenIds, int]:
    """Ids of a chat up to the last one that is scored, and the position before the first one that is."""
    scored = np.flatnonzero(marked.scored)
    return list(marked.ids[: scored[-1] + 1]), int(scored[0]) - 1


def scored_ids(ids: TokenIds, numbers: FloatArray) -> IntArray:
    """(T,) ids of a text, the end of its prompt's, from the (…, T) numbers of its tokens."""
    return np.array(ids[-numbers.shape[1] :], dtype=np.int64)


# Default padded tokens per forward pass; on a CPU, more gains nothing (see docs/performance.md).
BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}
# Largest float32 logits of a batch for models that compute them all at once.
WHOLE_LOGITS_BYTES = 2**30
# Most batches at a time on a CPU, each on its share of the threads, which small matrices keep busy better than all.
WORKERS = 8


def one_ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, each after the next one was started: the device computes while the last result is fetched."""
    waiting: list[T] = []
    for item in items:
        yield from waiting
        waiting = [item]
    yield from waiting


def _to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device; a GPU is not synchronised."""
    if device.type != "cuda":
        return tensor.to(device)
    # From memory that may be paged out, the copy would wait for all that the GPU has to do.
    return tensor.pin_memory().to(device, non_blocking=True)


StatesAndTarget = tuple[Tensor, Tensor]
"""(n, D) hidden states (or logits) of positions, and their (n,) targets."""


class Side:
    """A model that reads batches, what makes statistics of its states, and what brings it into its own for a while."""

    def __init__(self, model: LanguageModel, switched: Callable[[], AbstractContextManager[Any]] = nullcontext) -> None:
        self.model = model
        self.switched = switched
        self.body = model.body
        self.reduction = Reduction(model.head)
        self.pasts: dict[tuple[int, ...], Any] = {}

    def states(self, batch: Batch, ids: Rows) -> StatesAndTarget:
        """Those of the scored positions of a batch."""
        model = self.model
        width = batch[0].size
        inputs = []
        scored: TokenIds = []
        targets: TokenIds = []
        for row, window in enumerate(batch):
            tokens = ids[window.prompt]
            inputs.append(torch.tensor(tokens[window.begin : window.end]))
            begin = row * width
            scored += range(begin + window.first - window.begin, begin + window.size)
            targets += tokens[window.first + 1 : window.end + 1]
        # Padding is on the right, where a causal model cannot look, so no attention mask is needed.
        x = _to_device(pad_sequence(inputs, True, model.start), model.device)
        places = _to_device(torch.tensor(scored), model.device)
        target = _to_device(torch.tensor(targets), model.device)
        options = {"use_cache": False}
        if batch[0].past:
            options = {"use_cache": True, "past_key_values": self._past(batch, ids)}
        answer = self.body(input_ids=x, **options)
        states = answer.last_hidden_state if model.split_head else answer.logits
        # Only scored positions meet the output embedding, which is most of the work for a large vocabulary.
        return states.flatten(0, 1).index_select(0, places.to(states.device)), target

    def _past(self, batch: Batch, ids: Rows) -> Any:
        """The keys and values of the prefix that all windows of a batch share, read once for every row."""
        window = batch[0]
        prefix = tuple(ids[window.prompt][window.begin - window.past : window.begin])
        # Many batches follow one prefix, and the last one read is kept.
        kept = self.pasts.get(prefix)
        if kept is None:
            x = torch.tensor([prefix], device=self.model.device)
            kept = self.body(input_ids=x, use_cache=True).past_key_values
            self.pasts = {prefix: kept}
        # A copy, since the pass of a batch appends to what it is given.
        past = copy.deepcopy(kept)
        past.batch_repeat_interleave(len(batch))
        return past


@dataclass(eq=False)
class ModelScorer:
    """Token statistics by one state of a language model: adapter off (base) or on (tuned)."""

    language_model: LanguageModel
    _: KW_ONLY
    tuned: bool = False
    max_batch_tokens: int | None = None  # padded ones of a pass, at least the longest text; None: fit for the device
    description: str = ""  # of the progress bar
    batches_per_round: ClassVar = 32  # after which finished texts are handed on
    numbers: ClassVar = 4  # of each token

    def __post_init__(self) -> None:
        at_least(1, **{"max-batch-tokens": self.max_batch_tokens})
        self.prepared = False  # by a pass of its own, in which some networks change themselves
        model = self.language_model
        self.alike = rope_switch(model.base.config)
        self.context = model.context
        if self.max_batch_tokens is not None:
            self.budget = self.max_batch_tokens
            return
        self.budget = device_limit(BATCH_TOKENS, model.device)
        if not model.split_head:
            whole = max(1, WHOLE_LOGITS_BYTES // (4 * model.embeddings))
            self.budget = min(self.budget, whole)

    def __call__(self, prompts: Prompts) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order; repeated prompts are computed once."""
        distinct = list(dict.fromkeys(prompts))
        if distinct:
            answers = dict(self.as_read(distinct))
            yield from (answers[prompt] for prompt in prompts)

    def as_read(self, prompts: Prompts) -> Iterator[Scored]:
        """Each of N ≥ 1 distinct prompts with its statistics, in the order in which they are ready."""
        self.prepared = False  # training may have come between
        ids, firsts = self._tokens(prompts)
        batches = self.batches(ids, firsts)
        total = _positions(chain.from_iterable(batches))
        # A long text is complete when its last window is: the windows of one text are in several batches.
        statistics: dict[int, FloatArray] = {}
        sizes = [len(row) - 1 - start for row, start in zip(ids, firsts, strict=True)]
        missing = list(sizes)
        with progress(total, self.description, "tok") as bar:
            for begin in range(0, len(batches), self.batches_per_round):
                batches_now = batches[begin : begin + self.batches_per_round]
                for window, values in self.columns(ids, batches_now, bar):
                    i = window.prompt
                    start = firsts[i]
                    numbers = statistics.setdefault(i, np.empty((self.numbers, sizes[i])))
                    numbers[:, window.first - start : window.end - start] = values
                    missing[i] -= window.scored
                    if missing[i] == 0:
                        del statistics[i]
                        yield prompts[i], self._scored(prompts[i], ids[i], numbers)

    def _scored(self, prompt: Prompt, ids: TokenIds, numbers: FloatArray) -> Any:
        """The statistics of what is scored of a prompt: all of a text, and the answers of a chat."""
        statistics = self._statistics(prompt.text, ids, numbers)
        if prompt.marked is None:
            return statistics
        # The numbers are of all tokens from the first answer to the end of the last one.
        marks = np.array(prompt.marked.scored[: len(ids)])
        return statistics.take(marks[-numbers.shape[1] :])

    def _statistics(self, text: str, ids: TokenIds, numbers: FloatArray) -> Any:
        """The statistics of a text from its prompt's ids and the numbers of each token."""
        return TokenStats(text, scored_ids(ids, numbers), *numbers)

    def batches(self, ids: Ids, firsts: Sequence[int]) -> list[Batch]:
        """The forward passes of prompts of which `firsts` are the positions that predict the first token to score."""
        order: list[Window] = []
        for prompt, row in enumerate(ids):
            order += windows(prompt, len(row) - 1, firsts[prompt], self.context)
        # Windows of like length need little padding, and what does not fit the memory comes first. Ties are broken, so
        # that the same texts always make the same batches, and bitwise the same numbers.
        order.sort(key=lambda window: (-window.size, window.prompt, window.begin))
        longest = order[0].size
        if self.max_batch_tokens is not None and longest > self.max_batch_tokens:
            raise UsageError(
                f"max-batch-tokens must be at least {longest}, the length of the longest text; got "
                f"{self.max_batch_tokens}"
            )
        groups: dict[tuple[int, ...], list[Window]] = {}
        for window in order:
            prefix = tuple(ids[window.prompt][window.begin : window.first])
            if len(prefix) >= SHARED:
                groups.setdefault(prefix, []).append(window)
        sharing = [group for group in groups.values() if len(group) > 1]
        if not sharing or not self._shares(sharing[0][:2], ids):
            return batched(order, self.budget, self.alike)
        shared = set(chain.from_iterable(sharing))
        apart = [window for window in order if window not in shared]
        batches = batched(apart, self.budget)
        for group in sharing:
            batches += batched(_after_prefix(group), self.budget)
        return batches

    @contextmanager
    def _network(self) -> Iterator[Any]:
        """The model in the scorer's state, as `_forward` takes it."""
        with self.language_model.state(tuned=self.tuned):
            yield Side(self.language_model)

    def _shares(self, pair: Batch, ids: Ids) -> bool:
        """Whether two windows get the same numbers with the keys and values of their prefix computed before."""
        if self._single:
            return False
        try:
            with self._network() as network:
                whole = self._forward(network, pair, ids)
                parted = self._forward(network, _after_prefix(pair), ids)
        except Exception:  # a network without keys and values, or one that keeps them otherwise
            return False
        return float((whole - parted).abs().max()) <= TOLERANCE

    @property
    def _single(self) -> bool:
        """Whether batches must be whole and one at a time.

        Hooks that move weights, and position encodings that a pass changes, are of one thread.
        """
        return self.alike is not None or hasattr(self.language_model.base, "hf_device_map")

    def columns(self, ids: Ids, batches: Sequence[Batch], bar: Any) -> Columns:
        """The windows of some batches, each with (4, n) statistics of its scored positions."""
        columns: Columns = []
        with self._network() as network:
            for batch, statistics in one_ahead(self._computed(network, batches, ids)):
                values = statistics.double().cpu().numpy()
                # In half precision large logits overflow, and every detector would score such a text anyhow.
                if not np.isfinite(values).all():
                    model = self.language_model
                    raise UsageError(
                        f"model {model.identity.id!r} must give finite log-probabilities; it does not in "
                        f"{model.precision}: take another dtype"
                    )
                ends = np.cumsum([window.scored for window in batch])
                columns += zip(batch, np.split(values, ends[:-1], axis=1), strict=True)
                bar.update(_positions(batch))
        return columns

    def _computed(self, network: Any, batches: Sequence[Batch], ids: Ids) -> Iterator[tuple[Batch, Tensor]]:
        """The parts of batches as `_started` gives them, in order; on a CPU several batches at a time."""
        threads = torch.get_num_threads()
        parallel = self.language_model.device.type == "cpu" and not self._single
        workers = min(threads, WORKERS) if parallel else 1
        started = functools.partial(self._started, network, ids=ids)
        # Some networks fill caches of their own in the first pass, which no other thread may see half filled.
        alone = len(batches) if workers == 1 else int(not self.prepared)
        for batch in batches[:alone]:
            yield from started(batch)
        self.prepared = True
        if alone >= len(batches):
            return
        # Inference mode is a state of a thread, and new threads begin without it.
        scored = torch.inference_mode()(lambda batch: list(started(batch)))
        try:
            # The initializer gives each worker its share of the threads: all of them together use what is there.
            with ThreadPoolExecutor(workers, "scoring", torch.set_num_threads, (threads // workers,)) as pool:
                for parts in pool.map(scored, batches[alone:]):
                    yield from parts
        finally:
            # Setting the number in a worker changes it for threads that come later, too.
            torch.set_num_threads(threads)

    def _started(self, network: Any, order: Batch, ids: Ids) -> Iterator[tuple[Batch, Tensor]]:
        """Windows with their (4, n) statistics, perhaps still computed; a batch beyond the memory is halved."""
        done = 0
        # The budget may have shrunk since the batches were made.
        for batch in batched(order, self.budget, self.alike):
            try:
                values = self._forward(network, batch, ids)
            except RuntimeError as error:
                if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
                    raise
                values = None  # the error holds the tensors alive until this block is left
            if values is None:
                longest = batch[0].size
                if len(batch) == 1:
                    raise UsageError(
                        f"a text of {longest} tokens must fit the memory of {self.language_model.device} "
                        "together with the model; it does not: take a smaller model, another dtype or device, or "
                        "shorter texts"
                    )
                self.budget = longest * (len(batch) // 2)
                if torch.cuda.is_available():
                    # Blocks kept for the old sizes would leave no room for the new ones.
                    torch.cuda.empty_cache()
                yield from self._started(network, order[done:], ids)
                return
            yield batch, values
            done += len(batch)

    def _tokens(self, prompts: Prompts) -> tuple[list[TokenIds], list[int]]:
        """Ids of start token + context + text of each prompt, tokenised apart, and the position before the text.

        Of a chat they are those of its template, up to the end of its last answer, and the position before the first.
        """
        model = self.language_model
        # Many prompts follow one prefix, which is tokenised once.
        contexts = list(dict.fromkeys(prompt.context for prompt in prompts if prompt.context))
        context_ids = dict(zip(contexts, model.tokens(contexts), strict=True))
        texts = iter(model.tokens([prompt.text for prompt in prompts if prompt.marked is None]))
        rows = []
        firsts = []
        for prompt in prompts:
            if prompt.marked:
                row, start = scored_part(prompt.marked)
                rows.append(row)
                firsts.append(start)
                continue
            text = next(texts)
            context = context_ids.get(prompt.context, [])
            # Without a start token nothing predicts the first token of the text, so that it is not scored.
            if not model.starts and len(text) < 2:
                raise UsageError(
                    f"texts must have at least 2 tokens, the first of which is not scored; got {prompt.text[:40]!r}"
                )
            rows.append(model.opening + context + text)
            firsts.append(len(context))
        return rows, firsts

    def _forward(self, network: Any, batch: Batch, ids: Ids) -> Tensor:
        """(4, n) statistics of the scored positions of a batch, window by window."""
        states, target = network.states(batch, ids)
        statistics: Tensor = network.reduction(states, target)
        return statistics


class DistributedScorer(ModelScorer):
    """A `ModelScorer` that all processes call together: each takes every n-th batch, so numbers stay bitwise."""

    batches_per_round = ModelScorer.batches_per_round * num_processes()

    def as_read(self, prompts: Prompts) -> Iterator[Scored]:
        """Each distinct prompt of the main process with its statistics; see `ModelScorer.as_read`."""
        missing = from_main(lambda: list(prompts))
        if missing:
            yield from super().as_read(missing)

    def columns(self, ids: Ids, batches: Sequence[Batch], bar: Any) -> Columns:
        """The windows of these batches with their statistics, a share of them from each process."""
        share = super().columns(ids, batches[process_index() :: num_processes()], bar)
        columns: Columns = []
        for part, budget in gather((share, self.budget)):
            columns += part
            # Where memory ran out in one process, all of them lay out smaller batches from now on.
            self.budget = min(self.budget, budget)
        # The bar has counted the share of this process already.
        bar.update(_positions(window for window, _ in columns) - _positions(window for window, _ in share))
        return columns


def collective(stored: Scorer, scorer: ModelScorer) -> Scorer:
    """What gives every process the statistics that the main process has of `stored`, or of `scorer` behind it.

    A scorer that is not distributed is called in one process, by what is stored.
    """
    if not isinstance(scorer, DistributedScorer):
        return stored

    def score(prompts: Prompts) -> Iterator[TokenStats]:
        statistics = []
        if is_main_process():
            statistics = list(stored(prompts))
            list(scorer.as_read([]))  # no more prompts in this call
        else:
            # The main process knows what is stored, and so how often it asks: the others follow until it asks no more.
            while list(scorer.as_read([])):
                pass
        return iter(from_main(lambda: statistics))

    return score


DEPTH = 0.5
"""Share of a network's layers above which the domain check reads hidden states."""


def hidden_states(
    language_model: LanguageModel, texts: Sequence[str], *, depth: float = DEPTH, tuned: bool = False
) -> FloatArray:
    """(N, D) mean hidden states of N texts above the share `depth` of the layers; the beginning of long texts counts.

    Layers in the middle say most about what a text is like, the last ones about the next token
    (https://arxiv.org/abs/2502.02013).
    """
    start = language_model.start
    device = language_model.device
    rows = []
    for ids in language_model.tokens(texts):
        cut = [start, *ids][: language_model.context]
        rows.append(torch.tensor(cut))
    order = [Window(i, 0, len(ids), 0) for i, ids in enumerate(rows)]
    order.sort(key=lambda window: -window.size)
    alike = rope_switch(language_model.base.config)
    means = {}
    with language_model.state(tuned=tuned):
        for batch in batched(order, device_limit(BATCH_TOKENS, device), alike):
            inputs = [rows[window.prompt] for window in batch]
            x = pad_sequence(inputs, True, start).to(device)
            layers = language_model.body(x, use_cache=False, output_hidden_states=True).hidden_states
            states = layers[min(int(depth * len(layers)), len(layers) - 1)].float().cpu()
            for row, window in enumerate(batch):
                # The start token, whose state is the same in every text, says nothing; nor does the padding.
                mean = states[row, 1 : window.size].mean(dim=0)
                means[window.prompt] = mean.double().numpy()
    return np.array([means[i] for i in range(len(rows))])
