"""Prompts → statistics under two models of one vocabulary, whose distributions are compared at each position.

A batch is read by both models, and their logits meet a chunk of positions at a time: no text's whole distributions are
kept. The statistics of each model alone come from the same passes.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from fsd import distributed
from fsd.config import ModelConfig
from fsd.models.language_model import LanguageModel
from fsd.scoring.cache import PAIR_ROWS, SQLiteStore, Store, Stored, from_rows, memoized, model_key
from fsd.scoring.model_scorer import (
    BLOCK_BYTES,
    LOG2_E,
    Batch,
    DistributedScorer,
    Ids,
    ModelScorer,
    Rows,
    Side,
    StatesAndTarget,
    collective,
    device_limit,
    moments,
    scored_ids,
    weighted,
)
from fsd.token_stats import STD_FLOOR, FloatArray, PairStats, Prompt, Prompts, Scorer, TokenIds

# Bytes of a block that a logit takes, in place of the 4 of one model: the arrays of both are in a core's cache at once.
LOGIT_BYTES = 6


def pair_statistics(logits: Tensor, reference: Tensor, target: Tensor) -> Tensor:
    """(11, n) nats from two times (n, V) logits, overwritten if float32: four rows of either model, and three of Δ.

    The rows of a model are those of `token_statistics`; then come mean and standard deviation of Δ under p, and its
    mean under q. Δ_v = log p_v − log q_v, p = softmax(logits), q = softmax(reference). A log-probability counts as at
    least 200 bits below the largest, so that a token that one of the models excludes has a finite Δ. Where one model
    has further ids at the end of its vocabulary, as padding, the expectations are over those that both have.
    """
    ours = weighted(logits, target)
    theirs = weighted(reference, target)
    common = min(ours.bits.shape[1], theirs.bits.shape[1])
    weight = ours.weight[:, :common]
    their_weight = theirs.weight[:, :common]
    bits = ours.bits[:, :common]
    difference = theirs.bits[:, :common]
    total = ours.total
    their_total = theirs.total
    if ours.bits.shape != theirs.bits.shape:
        total = weight.sum(-1)
        their_total = their_weight.sum(-1)
    their_bits = (their_weight * bits).sum(-1)
    their_mean = their_bits - (their_weight * difference).sum(-1)
    single = moments(theirs)
    # From here on the other model's numbers are overwritten: six arrays at once would not fit into a core's cache.
    torch.sub(bits, difference, out=difference)
    product = torch.mul(weight, difference, out=their_weight)
    mean = product.sum(-1) / total
    # A second pass around the mean: where p is nearly certain, the spread is far smaller than the mean.
    difference -= mean[:, None]
    torch.mul(weight, difference.square_(), out=product)
    std = (product.sum(-1) / total).sqrt()
    # What the shifts by the largest logits leave out of every Δ.
    shift = theirs.total.log2() - ours.total.log2()
    compared = torch.stack([mean + shift, std, their_mean / their_total + shift]) / LOG2_E
    compared[1].clamp_min_(STD_FLOOR)
    return torch.cat([moments(ours), single, compared])


class PairReduction:
    """Hidden states by both models → statistics, a chunk of positions at a time."""

    def __init__(self, ours: Side, theirs: Side) -> None:
        self.ours = ours
        self.theirs = theirs

    def __call__(self, states: Tensor, reference_states: Tensor, target: Tensor) -> Tensor:
        """(11, N) statistics of two times (N, D) hidden states or (N, V) logits and their (N,) targets.

        Four rows are of the model, four of the reference, three of their difference (`pair_statistics`).
        """
        ours = self.ours
        theirs = self.theirs
        rows = min(ours.reduction.rows(states), theirs.reduction.rows(reference_states))
        chunks = zip(states.split(rows), reference_states.split(rows), target.split(rows), strict=True)
        parts = []
        for chunk, reference_chunk, ids in chunks:
            with ours.switched():
                logits = ours.reduction.logits(chunk)
            with theirs.switched():
                reference = theirs.reduction.logits(reference_chunk).to(logits.device)
            parts.append(self._reduce(logits, reference, ids.to(logits.device)))
        return torch.cat(parts, dim=1)

    @staticmethod
    def _reduce(logits: Tensor, reference: Tensor, target: Tensor) -> Tensor:
        vocabulary = max(logits.shape[-1], reference.shape[-1])
        block = device_limit(BLOCK_BYTES, logits.device, LOGIT_BYTES * vocabulary)
        blocks = map(pair_statistics, logits.split(block), reference.split(block), target.split(block))
        return torch.cat(list(blocks), dim=1)


# Bytes of hidden states of a reference that are kept.
KEPT_BYTES = 2**28


class KeptStates:
    """Hidden states by a reference, read once: base and tuned model are compared with it on the same batches."""

    def __init__(self) -> None:
        self.stored: dict[bytes, StatesAndTarget] = {}
        self.room = KEPT_BYTES

    def states(self, side: Side, batch: Batch, ids: Rows) -> StatesAndTarget:
        """Those of `Side.states`, bitwise: only a batch of the same tokens has them."""
        # The memory of a card is for batches. Logits in place of states are overwritten where they are reduced.
        if side.model.device.type != "cpu" or not side.model.split_head or not self.room:
            return side.states(batch, ids)
        key = _digest(batch, ids)
        if key in self.stored:
            return self.stored[key]
        states, target = side.states(batch, ids)
        if states.nbytes <= self.room:
            self.room -= states.nbytes
            self.stored[key] = states, target
        else:
            # Batches are of like size: no other one will be kept, nor looked for a place.
            self.room = 0
        return states, target


def _digest(batch: Batch, ids: Rows) -> bytes:
    """What the states of a batch depend on: its windows, and the tokens that they read."""
    digest = sha256()
    for window in batch:
        tokens = ids[window.prompt][window.begin - window.past : window.end + 1]
        digest.update(repr((window[1:], tokens)).encode())
    return digest.digest()


@dataclass(eq=False)
class PairScorer(ModelScorer):
    """`PairStats` by two states of models, which must have one tokenizer: of one model, or of two.

    `language_model` and `tuned` are the target, with p; `reference` and `reference_tuned` are what it is compared with.
    """

    _: KW_ONLY
    reference: LanguageModel
    reference_tuned: bool = False
    kept: KeptStates = field(default_factory=KeptStates)
    numbers: ClassVar = PAIR_ROWS

    def __post_init__(self) -> None:
        super().__post_init__()
        # The smaller budget, and the shorter context, hold for both.
        alone = ModelScorer(self.reference, tuned=self.reference_tuned, max_batch_tokens=self.max_batch_tokens)
        self.budget = min(self.budget, alone.budget)
        self.context = min(self.context, alone.context)
        switches = [length for length in (self.alike, alone.alike) if length is not None]
        self.alike = min(switches, default=None)
        self.chats: set[int] = set()

    def keys(self) -> tuple[str, str]:
        """What the numbers of either model alone depend on."""
        target = model_key(self.language_model, tuned=self.tuned)
        return target, model_key(self.reference, tuned=self.reference_tuned)

    def key(self) -> str:
        """What the numbers of both depend on."""
        return " beside ".join(self.keys())

    @property
    def _one_model(self) -> bool:
        """Whether both are states of one model, which can be in one of them at a time."""
        return self.reference is self.language_model

    @property
    def _single(self) -> bool:
        return super()._single or self._one_model or hasattr(self.reference.base, "hf_device_map")

    @contextmanager
    def _network(self) -> Iterator[PairReduction]:
        """Both models, and what makes statistics of their hidden states."""
        with torch.inference_mode(), ExitStack() as states:
            sides = []
            for model, tuned in ((self.language_model, self.tuned), (self.reference, self.reference_tuned)):
                switched = functools.partial(model.state, tuned=tuned)
                if self._one_model:
                    sides.append(Side(model, switched))
                else:
                    states.enter_context(switched())
                    sides.append(Side(model))
            yield PairReduction(*sides)

    def _forward(self, network: PairReduction, batch: Batch, ids: Ids) -> Tensor:
        """(11, n) statistics of the scored positions of a batch, window by window."""
        ours = network.ours
        theirs = network.theirs
        with ours.switched():
            states, target = ours.states(batch, self._rows(ours, batch, ids))
        rows = self._rows(theirs, batch, ids)
        with theirs.switched():
            # The two states of one model change with its adapter.
            read = theirs.states if self._one_model else functools.partial(self.kept.states, theirs)
            reference_states, _ = read(batch, rows)
        return network(states, reference_states, target)

    def _rows(self, side: Side, batch: Batch, ids: Ids) -> dict[int, TokenIds]:
        """The ids of the prompts of a batch as a model reads them."""
        return {window.prompt: self._opened(side, window.prompt, ids) for window in batch}

    def _opened(self, side: Side, prompt: int, ids: Ids) -> TokenIds:
        """The ids of a prompt as a model reads them: it begins with its own start token."""
        row = ids[prompt]
        # What a chat begins with is up to its template.
        if prompt in self.chats:
            return row
        opening = side.model.opening
        return opening + list(row[len(opening) :])

    def _tokens(self, prompts: Prompts) -> tuple[list[TokenIds], list[int]]:
        """As of a single model; the numbers of the prompts that are chats are kept."""
        self.chats = {number for number, prompt in enumerate(prompts) if prompt.marked}
        return super()._tokens(prompts)

    def _statistics(self, text: str, ids: TokenIds, numbers: FloatArray) -> PairStats:
        contexts = {self.language_model.context, self.reference.context}
        # A text within the shorter context is read in one window, whatever the other context is.
        alone = len(contexts) == 1 or len(ids) - 1 <= self.context
        return from_rows(text, scored_ids(ids, numbers), numbers, alone=alone)


class DistributedPairScorer(DistributedScorer, PairScorer):
    """A `PairScorer` that all processes call together."""


class PairMember(NamedTuple):
    """A model, loaded when it is first needed, in a state."""

    load: Callable[[], LanguageModel]
    tuned: bool = False
    kept: KeptStates | None = None


def pair_scorer(
    target: PairMember, reference: PairMember, config: ModelConfig, store: SQLiteStore | None, description: str
) -> Scorer:
    """The scorer of a target beside a reference; it computes in all processes what is not in the store."""

    # Once, and only if it is asked: a reference that no detector is compared with is not loaded.
    @functools.cache
    def loaded_once() -> Scorer:
        kind = DistributedPairScorer if distributed.num_processes() > 1 else PairScorer
        kept = reference.kept or KeptStates()
        scorer = kind(
            target.load(),
            tuned=target.tuned,
            reference=reference.load(),
            reference_tuned=reference.tuned,
            kept=kept,
            max_batch_tokens=config.max_batch_tokens,
            description=description,
        )
        kept_pairs = store and PairStore(store, scorer)
        stored = memoized(scorer, kept_pairs, scorer.key, scorer.language_model, scorer.reference)
        return collective(stored, scorer)

    return lambda prompts: loaded_once()(prompts)


@dataclass(eq=False)
class PairStore:
    """A store that keeps the statistics of each model alone, too, for whoever asks for these."""

    store: Store
    scorer: PairScorer

    def load(self, key: str, prompts: Iterable[Prompt]) -> Stored:
        """The stored statistics of those of the prompts that have any."""
        return self.store.load(key, prompts)

    def save(self, key: str, results: Sequence[tuple[Prompt, Any]]) -> None:
        """Store the statistics of two models, and of each of them where it has none."""
        self.store.save(key, results)
        targets = {}
        references = {}
        for prompt, pair in results:
            if pair.alone:
                targets[prompt] = pair.target
                references[prompt] = pair.reference
        target_key, reference_key = self.scorer.keys()
        self._save_missing(target_key, targets)
        self._save_missing(reference_key, references)

    def _save_missing(self, key: str, singles: Stored) -> None:
        # What is stored stays as it is: another batch would change it by rounding.
        stored = self.store.load(key, singles)
        missing = [(prompt, stats) for prompt, stats in singles.items() if prompt not in stored]
        self.store.save(key, missing)
