"""Texts that a model generates, and its probability of generating given tokens, under a way of sampling."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
import xxhash

from fsd.errors import UsageError, at_least
from fsd.models.adapters import quiet_peft
from fsd.models.language_model import LanguageModel
from fsd.progress import progress
from fsd.scoring.model_scorer import BATCH_TOKENS
from fsd.token_stats import Continuations, Prompt, Prompts, TokenIds
from fsd.views import Draws


@dataclass(frozen=True)
class Sampling:
    """A way of sampling the next token: `temperature` 0 is greedy decoding; `top_k` None draws from all tokens."""

    temperature: float = 1.0
    top_k: int | None = None

    def check(self) -> None:
        """Check the settings."""
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(f"temperature must be at least 0 and finite; got {self.temperature:g}")
        at_least(1, **{"top-k": self.top_k})

    def __str__(self) -> str:
        """Name in tables, e.g. "temperature 0.7, top 40"."""
        if self.temperature == 0:
            return "greedy"
        parts = []
        if self.temperature != 1:
            parts.append(f"temperature {self.temperature:g}")
        if self.top_k is not None:
            parts.append(f"top {self.top_k}")
        return ", ".join(parts) or "plain"


@dataclass(eq=False)
class ContinuationScorer:
    """Continuations of each prompt's context, by prompt and seed; of a context that does not fit, the end counts."""

    language_model: LanguageModel
    draws: Draws
    tuned: bool = False  # the model's state: its adapter on
    seed: int = 42
    batch_tokens: int | None = None  # that are generated and read together, at most
    description: str = ""

    def __call__(self, prompts: Prompts) -> Iterator[Continuations]:
        """Continuations for each prompt, in order."""
        with progress(len(prompts), self.description, "text") as bar:
            for prompt in prompts:
                yield self._continued(prompt)
                bar.update()

    def _continued(self, prompt: Prompt) -> Continuations:
        model = self.language_model
        draws = self.draws
        truth, context = model.tokens([prompt.text, prompt.context])
        # At least half of what the model reads is given, however long the continuation may be.
        size = min(draws.tokens or len(truth), model.context // 2)
        head = (model.opening + context)[size - model.context :]
        greedy = self._generated(head, 1, size, 0.0)[0] if draws.greedy else ""
        with seeded(model, self.seed, *prompt):
            samples = self._generated(head, draws.samples, size, draws.temperature)
        return Continuations(prompt.text, tuple(samples), greedy)

    def _generated(self, head: TokenIds, count: int, size: int, temperature: float) -> list[str]:
        """`count` continuations of `head`, of at most `size` tokens."""
        model = self.language_model
        # Each step of generating reads one token a row, so that many rows are worth it on a CPU, too.
        rows = max(1, (self.batch_tokens or BATCH_TOKENS["cuda"]) // (len(head) + size))
        texts: list[str] = []
        with model.state(tuned=self.tuned) as network:
            while len(texts) < count:
                heads = [head] * min(rows, count - len(texts))
                sampling = Sampling(temperature, self.draws.top_k)
                texts += generated(model, network, heads, size, sampling)
        return texts


@contextmanager
def seeded(model: LanguageModel, *key: object) -> Iterator[None]:
    """Random numbers by a key: a prompt has the same samples whatever others there are."""
    # The process's own random numbers go on as if nothing had been drawn.
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(xxhash.xxh3_64_intdigest(repr(key).encode()))
        yield


def generated(
    model: LanguageModel,
    network: Any,
    heads: Sequence[Sequence[int]],
    size: int,
    sampling: Sampling,
    *,
    ends: Sequence[int] = (),
    temperatures: Sequence[float] = (),
) -> list[str]:
    """What follows heads of one length, at most `size` tokens each, by the network in its state.

    It ends at the end token of the tokenizer, or at one of the further `ends`. Heads may have `temperatures` each, by
    which the plain way of sampling then draws.
    """
    from transformers import GenerationConfig

    options: dict[str, Any] = {"do_sample": False}
    if sampling.temperature:
        # 0 is no top-k; without it, transformers would take its own default of 50.
        options = {"do_sample": True, "temperature": sampling.temperature, "top_k": sampling.top_k or 0}
    end = model.tokenizer.eos_token_id
    config = GenerationConfig(
        max_new_tokens=size, eos_token_id=[end, *ends] if ends else end, pad_token_id=model.start, **options
    )
    by_head = [partial(_divided, temperatures)] if temperatures else []
    x = torch.tensor(heads, device=model.device)
    # The model's own settings would fill in what is not set here, such as top-p and penalties.
    defaults = network.generation_config
    network.generation_config = GenerationConfig()
    try:
        with quiet_peft():
            ids = network.generate(
                x, attention_mask=torch.ones_like(x), generation_config=config, logits_processor=by_head
            )
    finally:
        network.generation_config = defaults
    texts: list[str] = model.tokenizer.batch_decode(
        ids[:, x.shape[1] :], skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return texts


def _divided(temperatures: Sequence[float], _: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Logits of the next tokens, each row by the temperature of its own."""
    return logits / logits.new_tensor(temperatures)[:, None]


OWN = (0.6, 0.8, 1.0)
"""Temperatures at which a model continues texts to try whether those that it wrote are told from what it read."""
OPENINGS = (12, 48)
"""Tokens of a text's opening that the model is given: some ten or some forty words, in turn."""
LONGEST = 256
"""Tokens that a model writes of a text, at most; what comes before is the text's own."""
SENTENCE = re.compile(r"[.!?。！？][\"')\]”’]*(?=\s|$)")
"""The end of a sentence."""


def own_texts(model: LanguageModel, texts: Sequence[str], *, tuned: bool = False) -> dict[str, list[str]]:
    """Way of sampling → N texts as long as N others, of which the model is given the openings alone.

    A text that ends with a sentence is cut where one ends, as a person would cut it.
    """
    tokens = model.tokens(texts)
    written = {str(Sampling(temperature)): [""] * len(texts) for temperature in OWN}
    with model.state(tuned=tuned) as network:
        for turn, size in enumerate(OPENINGS[: len(texts)]):
            rows = range(turn, len(texts), len(OPENINGS))
            continued = _continued(model, network, [tokens[row] for row in rows], size)
            for (in_order, row), text in zip(product(written.values(), rows), continued, strict=True):
                in_order[row] = _to_a_sentence(text) if SENTENCE.search(texts[row][-3:]) else text
    return written


def _continued(model: LanguageModel, network: Any, tokens: Sequence[TokenIds], size: int) -> Iterator[str]:
    """At each temperature in turn, the openings of texts with what the model writes up to the length of the text.

    Openings have at least `size` tokens each.
    """
    longest = min(LONGEST, model.context // 2)
    # Openings of one length are continued together: of long ones the model reads the end.
    size = max(1, min(size, *(len(ids) // 3 for ids in tokens)))
    openings = [ids[: max(size, len(ids) - longest)] for ids in tokens]
    lengths = [len(ids) - len(opening) for ids, opening in zip(tokens, openings, strict=True)]
    heads = [[model.start, *opening[-size:]] for opening in openings]
    # So are the temperatures: a small model takes little longer for a token of more rows.
    temperatures = [temperature for temperature in OWN for _ in heads]
    with seeded(model, tokens):
        endings = generated(model, network, heads * len(OWN), max(lengths), Sampling(), temperatures=temperatures)
    # Not by `model.tokens`, which refuses the empty text of a model that ends at once.
    rows = model.tokenizer(endings, add_special_tokens=False)["input_ids"]
    for opening, length, ending in zip(openings * len(OWN), lengths * len(OWN), rows, strict=True):
        yield model.tokenizer.decode(opening + ending[:length], skip_special_tokens=True)


def _to_a_sentence(text: str) -> str:
    """The text to the end of its last whole sentence, unless less than half of it would remain."""
    ends = [match.end() for match in SENTENCE.finditer(text)]
    if ends and ends[-1] > len(text) // 2:
        return text[: ends[-1]]
    return text
