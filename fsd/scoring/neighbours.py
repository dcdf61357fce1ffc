"""Changed copies of a text: neighbours, with a few words replaced, and copies with the words in another order.

The likelihood of a member exceeds that of its neighbours by more than for other texts: replacing words keeps topic,
length and difficulty, but not memorised wording (Mattern et al. 2023, arXiv:2305.18462). Words come from a masked
language model if there is one, else from the unseen texts. Whitespace, punctuation and layout stay, byte for byte.
"""

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fsd.config import NEIGHBOURS
from fsd.errors import UsageError
from fsd.models.devices import torch_device
from fsd.models.language_model import read_tokenizer
from fsd.models.weights import check_complete, reading
from fsd.net.hub import locate
from fsd.token_stats import UNIT, UNSPACED
from fsd.unspaced import single, spelled

_LETTERS = spelled(rf"^\W\d_{UNSPACED}")
# Letters with inner apostrophes; in scripts without spaces (Chinese, Japanese), each character.
WORD = re.compile(f"{single(UNSPACED)}|{_LETTERS}(?:['’]{_LETTERS})*")

# Case and length class of a word.
WordClass = tuple[str, int]
# Number of words of nearest rank among which the replacement of a word is drawn.
NEAREST = 20
# Most draws for a neighbour that differs from those before: a text of one word has few neighbours.
TRIES = 10


@dataclass(frozen=True)
class Vocabulary:
    """Words by class (case and length), the most frequent first; `ranks` gives the rank of a word in its class."""

    classes: Mapping[WordClass, Sequence[str]]
    ranks: Mapping[str, int]


def build_vocabulary(texts: Iterable[str]) -> Vocabulary:
    """The words of the unseen texts by class and frequency."""
    counts = Counter[str]()
    for text in texts:
        counts.update(WORD.findall(text))
    if not counts:
        raise UsageError("the unseen texts must hold words to make neighbours from; they hold none")
    classes: dict[WordClass, list[str]] = {}
    ranks = {}
    # Ties are broken, so that the order of the texts makes no difference.
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        words = classes.setdefault(word_class(word), [])
        ranks[word] = len(words)
        words.append(word)
    return Vocabulary(classes, ranks)


def word_class(word: str) -> WordClass:
    """Case (lower, title, upper, other) and length class (1, 2-3, 4-6, 7-9, 10 or more letters) of a word."""
    if word.islower():
        case = "lower"
    elif word.isupper() and len(word) > 1:
        case = "upper"
    # A single capital letter may be no more than the beginning of a sentence.
    elif word.isupper() or word.istitle():
        case = "title"
    else:
        case = "other"
    return case, bisect_left((1, 3, 6, 9), len(word))


def word_swaps(text: str, vocabulary: Vocabulary, *, count: int = 25, share: float = 0.15, seed: int = 42) -> list[str]:
    """Neighbours without a model, by text and seed: words replaced by others of similar frequency, case and length."""
    words = list(WORD.finditer(text))
    options = []
    for match in words:
        choices = _replacements(match.group(), vocabulary)
        if choices:
            options.append((match, choices))
    if not options:
        return [text] * count
    swaps = min(len(options), max(1, round(share * len(words))))
    rng = _generator(text, seed)
    neighbours = []
    for _ in range(count):
        for _ in range(TRIES):
            drawn = rng.choice(len(options), size=swaps, replace=False)
            changes = []
            for i in sorted(drawn.tolist()):
                match, choices = options[i]
                word = choices[rng.integers(len(choices))]
                changes.append((match.start(), match.end(), word))
            neighbour = _replaced(text, changes)
            if neighbour not in neighbours:
                break
        neighbours.append(neighbour)
    return neighbours


def swapped_words(text: str, *, count: int = 5, share: float = 0.3, seed: int = 42) -> list[str]:
    """Copies by text and seed in which words change places, a pair for each `share`; spaces stay (arXiv 2405.11930)."""
    words = list(UNIT.finditer(text))
    size = len(words)
    if size < 2:
        return [text] * count
    swaps = max(1, int(share * size))
    rng = _generator(text, seed)
    copies = []
    for _ in range(count):
        order = list(words)
        for _ in range(swaps):
            i, j = rng.choice(size, size=2, replace=False)
            moved = order[i]
            order[i] = order[j]
            order[j] = moved
        changes = []
        for place, word in zip(words, order, strict=True):
            changes.append((place.start(), place.end(), word.group()))
        copies.append(_replaced(text, changes))
    return copies


def _generator(text: str, seed: int) -> np.random.Generator:
    """Random numbers of a text of its own: its copies do not depend on the other texts."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:16])])


def _replacements(word: str, vocabulary: Vocabulary) -> list[str]:
    """Up to `NEAREST` other words of the class (else of the case) that are nearest in rank."""
    case, length = word_class(word)
    lengths = {size for kind, size in vocabulary.classes if kind == case}
    for size in sorted(lengths, key=lambda size: abs(size - length)):
        words = vocabulary.classes[case, size]
        # A word that the texts do not have is as rare as the rarest that they have.
        rank = len(words)
        if size == length:
            rank = vocabulary.ranks.get(word, rank)
        # As many above the word as below it, as far as the ends of the list allow.
        low = min(rank - NEAREST // 2, len(words) - NEAREST - 1)
        low = max(0, low)
        nearest = words[low : low + NEAREST + 1]
        choices = [near for near in nearest if near != word]
        if choices:
            return choices
    return []


def _replaced(text: str, swaps: Sequence[tuple[int, int, str]]) -> str:
    """The text with spans replaced, which are in order and do not overlap."""
    # From the end, so that the spans before a change stay where they are.
    for begin, end, word in reversed(swaps):
        text = text[:begin] + word + text[end:]
    return text


class Proposal(NamedTuple):
    """A masked language model's word for `text[begin:end]`; `weight` is its suitability p(word)/(1 − p(original))."""

    begin: int
    end: int
    word: str
    weight: float


def masked_neighbours(text: str, proposals: Sequence[Proposal], *, count: int = 25) -> list[str]:
    """Neighbours with one word replaced, as was best in the paper, the most suitable replacements first."""
    neighbours: dict[str, None] = {}
    for proposal in sorted(proposals, key=lambda proposal: (-proposal.weight, proposal)):
        if len(neighbours) == count:
            break
        begin, end, word, _ = proposal
        if word != text[begin:end]:
            neighbour = _replaced(text, [(begin, end, word)])
            neighbours[neighbour] = None
    return list(neighbours) or [text]


# Share of a word's embedding that is set to zero (§2 of the paper, semantically preserving neighbours).
DROPOUT = 0.7
# Windows per forward pass.
ROWS = 32
# Most tokens of a window.
LONGEST = 512
# What stands for a space at the beginning of a token's name.
SPACES = ("Ġ", "▁")


class MaskedModel:
    """Text → neighbours by BERT or the like, with dropout on the embedding of one word at a time, not a mask."""

    def __init__(self, model: str, *, count: int = NEIGHBOURS, device: str = "auto", seed: int = 42) -> None:
        from transformers import AutoModelForMaskedLM

        folder, _ = locate(model)
        with reading(f"neighbour-model {model!r} must be a masked language model; "):
            network, report = AutoModelForMaskedLM.from_pretrained(
                folder, output_loading_info=True, trust_remote_code=False
            )
            check_complete(f"neighbour-model {model!r}", report)
            self.tokenizer = read_tokenizer(folder)
        self.network = network.to(torch_device(device)).eval()
        self.embedding = network.get_input_embeddings()
        self.allowed = self._whole_words().to(self.embedding.weight.device)
        self.count = count
        self.seed = seed

    def __call__(self, text: str) -> list[str]:
        """Up to `count` neighbours, the most suitable first; a text without words is its own neighbour."""
        return masked_neighbours(text, self.proposals(text), count=self.count)

    @torch.inference_mode()
    def proposals(self, text: str) -> list[Proposal]:
        """Replacements of each word of a text, which is cut into windows that fit the network."""
        if not text:
            return []
        # A generator of its own for each text, so that the order of the texts makes no difference.
        generator = torch.Generator().manual_seed(self.seed)
        # Some name no limit, or one that they never saw.
        limit = getattr(self.network.config, "max_position_embeddings", None) or LONGEST
        encoded = self.tokenizer(
            text,
            return_offsets_mapping=True,
            truncation=True,
            # Two less than the network reads, for its special tokens.
            max_length=min(limit, LONGEST) - 2,
            return_overflowing_tokens=True,
            verbose=False,
        )
        borders = {border for word in WORD.finditer(text) for border in word.span()}
        proposals: list[Proposal] = []
        for window, ids in enumerate(encoded["input_ids"]):
            offsets = encoded["offset_mapping"][window]
            x = torch.tensor(ids, device=self.embedding.weight.device)
            words = encoded.word_ids(window)
            tokens_of = Counter(words)
            allowed = self.allowed[x].tolist()
            alone = []
            for t, word in enumerate(words):
                # A word of several tokens has no single token to take its place, and what a tokenizer takes apart, as
                # "wasn't", or without its marks, would leave the rest of a word.
                if tokens_of[word] == 1 and allowed[t] and borders.issuperset(_span(text, offsets[t])):
                    alone.append(t)
            for begin in range(0, len(alone), ROWS):
                places = alone[begin : begin + ROWS]
                best = self._best(x, torch.tensor(places), generator)
                weights, tokens = (options.tolist() for options in best)
                for row, t in enumerate(places):
                    proposals += self._in_case(text, offsets[t], weights[row], tokens[row])
        return proposals

    def _best(self, x: Tensor, places: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(P, count) suitabilities and tokens at P places of a window."""
        rows = torch.arange(len(places))
        inputs = self.embedding(x).repeat(len(places), 1, 1)
        drawn = torch.rand((len(places), inputs.shape[-1]), generator=generator)
        keep = (drawn >= DROPOUT).to(inputs)
        # Scaled as dropout is in training.
        inputs[rows, places] *= keep / (1 - DROPOUT)
        logits = self.network(inputs_embeds=inputs).logits[rows, places].float()
        # Renormalised without the original: p(v)/(1 - p(x)).
        logits = logits.scatter(1, x[places][:, None], -torch.inf)
        suitability = logits.softmax(-1).masked_fill(~self.allowed, 0)
        best = suitability.topk(min(self.count, len(self.allowed)))
        return best.values, best.indices

    def _whole_words(self) -> Tensor:
        """(V,) whether a token is a whole word: letters only, no special token, no continuation."""
        plain = torch.zeros(self.embedding.num_embeddings, dtype=torch.bool)
        names = self.tokenizer.get_vocab()
        special = set(self.tokenizer.all_special_ids)
        # RoBERTa and its like mark the beginning of a word; BERT marks continuations, by two signs that are no letters.
        spaced = any(name.startswith(SPACES) for name in names)
        for name, token in names.items():
            if token in special or (spaced and not name.startswith(SPACES)):
                continue
            decoded = self.tokenizer.decode([token]).strip()
            plain[token] = bool(decoded) and not WORD.sub("", decoded)
        return plain

    def _in_case(self, text: str, span: tuple[int, int], weights: list[float], tokens: list[int]) -> Iterator[Proposal]:
        """The words of the tokens in the case of the original, which they must differ from."""
        begin, end = _span(text, span)
        original = text[begin:end]
        case, _ = word_class(original)
        for weight, token in zip(weights, tokens, strict=True):
            word = self.tokenizer.decode([token]).strip()
            if case == "upper":
                word = word.upper()
            elif case == "title":
                word = word[:1].upper() + word[1:]
            if weight > 0 and word.casefold() != original.casefold():
                yield Proposal(begin, end, word, weight)


def _span(text: str, offsets: tuple[int, int]) -> tuple[int, int]:
    """Where the word of a token begins and ends: the offsets of some tokenizers include the space before it."""
    begin, end = offsets
    original = text[begin:end].strip()
    begin = text.index(original, begin)
    return begin, begin + len(original)
