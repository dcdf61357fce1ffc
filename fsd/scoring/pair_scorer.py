"""Prompts → statistics under two models of one vocabulary, whose distributions are compared at each position.

A batch is read by both models, and their logits meet a chunk of positions at a time: no text's whole distributions are
kept. The statistics of each model alone come from the same passes.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from fsd import distributed
from fsd.config import ModelConfig
from fsd.models.language_model import LanguageModel
from fsd.scoring.cache import PAIR_ROWS, SINGLE_ROWS, MemoizedScorer, MemoryStore, SQLiteStore, model_key
from fsd.scoring.model_scorer import (
    BLOCK_BYTES,
    LOG2_E,
    Batch,
    DistributedScorer,
    Ids,
    ModelScorer,
    Reduction,
    agreeing_kernel,
    collective,
    device_limit,
    moments,
    statistics_for,
    token_statistics,
    trial_logits,
    weighted,
)
from fsd.token_stats import STD_FLOOR, FloatArray, PairStats, Prompt, Scorer, TokenStats

# Bytes of a block that a logit takes, in place of the 4 of one model: the arrays of both are in a core's cache at once.
LOGIT_BYTES = 6


def pair_moments(logits: Tensor, reference: Tensor) -> Tensor:
    """Mean and standard deviation of Δ under p, and its mean under q, (3, n) nats, from two times (n, V) logits.

    Δ_v = log p_v − log q_v, p = softmax(logits), q = softmax(reference). A log-probability counts as at least 200 bits
    below the largest, so that a token that one of the models excludes has a finite Δ. Where one model has further ids
    at the end of its vocabulary, as padding, the expectations are over those that both have.
    """
    unused = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
    return pair_statistics(logits, reference, unused)[2 * SINGLE_ROWS :]


def pair_statistics(logits: Tensor, reference: Tensor, target: Tensor) -> Tensor:
    """Those of `token_statistics` of either model, and `pair_moments`, (11, n); float32 logits are overwritten."""
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
    their_mean = (their_weight * bits).sum(-1) - (their_weight * difference).sum(-1)
    singles = [moments(theirs)]
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
    return torch.cat([moments(ours), *singles, compared])


@functools.cache
def moments_for(device: torch.device, dtype: torch.dtype, vocabulary: int) -> Callable[[Tensor, Tensor], Tensor]:
    """The kernel for the comparison on a GPU if it compiles and agrees with torch, else torch and a line."""
    logits = [trial_logits(device, dtype, vocabulary, seed) for seed in (0, 1)]
    kernel = agreeing_kernel("pair_moments", pair_moments, lambda compute, *rows: compute(*rows), logits)
    return kernel or pair_moments


class Side(NamedTuple):
    """One of the two models: in which state, what makes its logits, and what brings it into its state for a while."""

    model: LanguageModel
    tuned: bool
    reduction: Reduction
    switched: Callable[[], AbstractContextManager[Any]]


class PairReduction:
    """Hidden states by both models → statistics, a chunk of positions at a time."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self.sides = sides

    def __call__(self, states: Sequence[Tensor], target: Tensor) -> Tensor:
        """(11, N) statistics of two times (N, D) hidden states or (N, V) logits and their (N,) targets."""
        ours, theirs = self.sides
        rows = min(side.reduction.rows(rows) for side, rows in zip(self.sides, states, strict=True))
        parts = []
        for first, second, ids in zip(*(tensor.split(rows) for tensor in (*states, target)), strict=True):
            with ours.switched():
                logits = ours.reduction.logits(first)
            with theirs.switched():
                reference = theirs.reduction.logits(second).to(logits.device)
            parts.append(self._reduce(logits, reference, ids.to(logits.device)))
        return torch.cat(parts, dim=1)

    @staticmethod
    def _reduce(logits: Tensor, reference: Tensor, target: Tensor) -> Tensor:
        vocabulary = max(logits.shape[-1], reference.shape[-1])
        if logits.device.type == "cuda":
            singles = [statistics_for(rows.device, rows.dtype, rows.shape[-1]) for rows in (logits, reference)]
            compare = moments_for(logits.device, logits.dtype, vocabulary)
            # Torch would overwrite logits that the others read, a kernel does not.
            if token_statistics not in singles and compare is not pair_moments:
                single = [make(rows, target) for make, rows in zip(singles, (logits, reference), strict=True)]
                return torch.cat([*single, compare(logits, reference)])
        block = max(1, device_limit(BLOCK_BYTES, logits.device) // (LOGIT_BYTES * vocabulary))
        pieces = zip(*(tensor.split(block) for tensor in (logits, reference, target)), strict=True)
        return torch.cat([pair_statistics(*piece) for piece in pieces], dim=1)


@dataclass(eq=False)
class PairScorer(ModelScorer):
    """`PairStats` by two states of models, which must have one tokenizer: of one model, or of two.

    `language_model` and `tuned` are the target, with p; `reference` and `reference_tuned` are what it is compared with.
    """

    _: KW_ONLY
    reference: LanguageModel
    reference_tuned: bool = False
    numbers: ClassVar = PAIR_ROWS

    def __post_init__(self) -> None:
        super().__post_init__()
        # The smaller budget, and the shorter context, hold for both.
        alone = ModelScorer(self.reference, tuned=self.reference_tuned, max_batch_tokens=self.max_batch_tokens)
        self.budget = min(self.budget, alone.budget)
        self.context = min(self.context, alone.context)
        switches = [length for length in (self.alike, alone.alike) if length is not None]
        self.alike = min(switches, default=None)

    @property
    def _one_model(self) -> bool:
        """Whether both are states of one model, which can be in one of them at a time."""
        return self.reference is self.language_model

    @property
    def _single(self) -> bool:
        return super()._single or self._one_model or hasattr(self.reference.base, "hf_device_map")

    @contextmanager
    def _network(self) -> Iterator[tuple[Any, Any]]:
        """The sides, and what makes statistics of their hidden states."""
        with torch.inference_mode(), ExitStack() as states:
            sides = []
            for model, tuned in ((self.language_model, self.tuned), (self.reference, self.reference_tuned)):
                switched: Callable[[], AbstractContextManager[Any]] = nullcontext
                if self._one_model:
                    switched = functools.partial(model.state, tuned=tuned)
                else:
                    states.enter_context(model.state(tuned=tuned))
                head = model.base.get_output_embeddings() if model.split_head else None
                sides.append(Side(model, tuned, Reduction(head), switched))
            yield sides, PairReduction(sides)

    def _forward(
        self,
        network: Any,
        reduction: Any,
        batch: Batch,
        ids: Ids,
    ) -> Tensor:
        """(11, n) statistics of the scored positions of a batch, window by window."""
        states = []
        for side in network:
            # Each model begins with its own start token.
            head = side.model.head
            rows = {window.prompt: [*head, *ids[window.prompt][len(head) :]] for window in batch}
            with side.switched():
                hidden, target = self._states(side.model, side.model.base, batch, rows)
            states.append(hidden)
        answer: Tensor = reduction(states, target)
        return answer

    def _statistics(self, text: str, ids: list[int], numbers: FloatArray) -> PairStats:
        target = super()._statistics(text, ids, numbers[:SINGLE_ROWS])
        reference = super()._statistics(text, ids, numbers[SINGLE_ROWS : 2 * SINGLE_ROWS])
        mean, std, reference_mean = numbers[2 * SINGLE_ROWS :]
        contexts = {self.language_model.context, self.reference.context}
        # A text within the shorter context is read in one window, whatever the other context is.
        alone = len(contexts) == 1 or len(ids) - 1 <= self.context
        return PairStats(target, reference, mean, std, reference_mean, alone=alone)


class DistributedPairScorer(DistributedScorer, PairScorer):
    """A `PairScorer` that all processes call together."""


class PairMember(NamedTuple):
    """A model, loaded when it is first needed, in a state."""

    load: Callable[[], LanguageModel]
    tuned: bool = False


def pair_scorer(
    target: PairMember,
    reference: PairMember,
    config: ModelConfig,
    store: SQLiteStore | None,
    description: str,
) -> Scorer:
    """The scorer of a target beside a reference; it computes in all processes what is not in the store."""

    @functools.cache
    def made() -> Scorer:
        kind = DistributedPairScorer if distributed.num_processes() > 1 else PairScorer
        scorer = kind(
            target.load(),
            tuned=target.tuned,
            reference=reference.load(),
            reference_tuned=reference.tuned,
            max_batch_tokens=config.max_batch_tokens,
            description=description,
        )
        stored: Scorer = scorer
        models = (scorer.language_model, scorer.reference)
        if store is not None and all(model.identity.fingerprint for model in models):
            stored = MemoizedScorer(scorer, PairStore(store, scorer), functools.partial(pair_key, scorer))
        return collective(stored, scorer) if isinstance(scorer, DistributedScorer) else stored

    # A reference that no detector is compared with is not loaded.
    return lambda prompts: made()(prompts)


def pair_key(scorer: PairScorer) -> str:
    """What the numbers of two models depend on."""
    return " beside ".join(single_keys(scorer))


def single_keys(scorer: PairScorer) -> tuple[str, str]:
    """What the numbers of either model alone depend on."""
    target = model_key(scorer.language_model, tuned=scorer.tuned)
    reference = model_key(scorer.reference, tuned=scorer.reference_tuned)
    return target, reference


@dataclass(eq=False)
class PairStore:
    """A store that keeps the statistics of each model alone, too, for whoever asks for these."""

    store: MemoryStore | SQLiteStore
    scorer: PairScorer

    def load(self, key: str, prompts: Iterable[Prompt]) -> dict[Prompt, Any]:
        """The stored statistics of those of the prompts that have any."""
        return self.store.load(key, prompts)

    def save(self, key: str, results: Sequence[tuple[Prompt, Any]]) -> None:
        """Store the statistics of two models, and of each of them where it has none."""
        self.store.save(key, results)
        target_key, reference_key = single_keys(self.scorer)
        self._save_missing(target_key, {prompt: pair.target for prompt, pair in results if pair.alone})
        self._save_missing(reference_key, {prompt: pair.reference for prompt, pair in results if pair.alone})

    def _save_missing(self, key: str, singles: dict[Prompt, TokenStats]) -> None:
        # What is stored stays as it is: another batch would change it by rounding.
        stored = self.store.load(key, singles)
        self.store.save(key, [(prompt, stats) for prompt, stats in singles.items() if prompt not in stored])
