"""Neighbours of a text from a masked language model, for the detector `neighbour`."""

from collections.abc import Iterator

import torch

from fsd.errors import UsageError
from fsd.models.language_model import torch_device
from fsd.net.hub import first_line, locate
from fsd.scoring.neighbours import Proposal, masked_neighbours, word_class

NEIGHBOURS = 25
"""Number of neighbours of a text (Mattern et al. 2023, §4)."""
DROPOUT = 0.7
"""Share of a word's embedding that is set to zero (§2, semantically preserving neighbours)."""
ROWS = 32
"""Windows per forward pass."""


class MaskedModel:
    """Text → neighbours by a masked language model, such as BERT or RoBERTa.

    Dropout is applied to the input embedding of one word at a time instead of a mask, so that the model still has some
    information about the word; the suitability of another word is its probability, given that it is not the original.
    Only words of one token are replaced, by words of one token in the original's case.

    Source: Mattern et al. 2023, arXiv:2305.18462.
    """

    def __init__(
        self, model: str, *, count: int = NEIGHBOURS, device: str = "auto", seed: int = 42, dropout: float = DROPOUT
    ) -> None:
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        folder, _ = locate(model)
        try:
            network = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=False)
            self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            if not self.tokenizer.is_fast:
                raise ValueError("its tokenizer is not a fast one")
        except Exception as error:  # files that make no sense raise errors of any type, in Python and in Rust
            raise UsageError(
                f"neighbour-model {model!r} must be a masked language model; {first_line(error)}"
            ) from error
        self.network = network.to(torch_device(device)).eval()
        self.embedding = network.get_input_embeddings()
        self.allowed = self._whole_words().to(self.embedding.weight.device)
        self.count = count
        self.seed = seed
        self.dropout = dropout

    def __call__(self, text: str) -> list[str]:
        """Up to `count` neighbours, the most suitable first; a text without words is its own neighbour."""
        return masked_neighbours(text, self.proposals(text), count=self.count)

    @torch.inference_mode()
    def proposals(self, text: str) -> list[Proposal]:
        """Replacements of each word of a text, which is cut into windows that fit the network."""
        if not text:
            return []
        generator = torch.Generator().manual_seed(self.seed)
        size = min(getattr(self.network.config, "max_position_embeddings", None) or 512, 512) - 2
        encoded = self.tokenizer(
            text,
            return_offsets_mapping=True,
            truncation=True,
            max_length=size,
            return_overflowing_tokens=True,
            verbose=False,
        )
        found: list[Proposal] = []
        for window, (ids, offsets) in enumerate(zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)):
            x = torch.tensor(ids, device=self.embedding.weight.device)
            words = encoded.word_ids(window)
            alone = [t for t, word in enumerate(words) if words.count(word) == 1 and self.allowed[x[t]]]
            for begin in range(0, len(alone), ROWS):
                places = torch.tensor(alone[begin : begin + ROWS])
                weights, tokens = self._best(x, places, generator)
                for t, *options in zip(places.tolist(), weights.tolist(), tokens.tolist(), strict=True):
                    found += self._in_case(text, offsets[t], *options)
        return found

    def _best(
        self, x: torch.Tensor, places: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(P, count) suitabilities and tokens at P places of a window."""
        rows = torch.arange(len(places))
        inputs = self.embedding(x).repeat(len(places), 1, 1)
        keep = torch.rand((len(places), inputs.shape[-1]), generator=generator) >= self.dropout
        inputs[rows, places] *= keep.to(inputs) / (1 - self.dropout)
        logits = self.network(inputs_embeds=inputs).logits[rows, places].float()
        logits = logits.scatter(1, x[places][:, None], -torch.inf)  # renormalised without the original: p(v)/(1 - p(x))
        best = logits.softmax(-1).masked_fill(~self.allowed, 0).topk(min(self.count, logits.shape[-1]))
        return best.values, best.indices

    def _whole_words(self) -> torch.Tensor:
        """(V,) whether a token is a whole word: letters only, no special token, no continuation."""
        plain = torch.zeros(self.embedding.num_embeddings, dtype=torch.bool)
        names = self.tokenizer.get_vocab()
        special = set(self.tokenizer.all_special_ids)
        spaced = any(name.startswith(("Ġ", "▁")) for name in names)
        for name, token in names.items():
            whole = name[:1] in "Ġ▁" and name[1:] if spaced else name
            plain[token] = token not in special and bool(whole) and self.tokenizer.decode([token]).strip().isalpha()
        return plain

    def _in_case(self, text: str, span: tuple[int, int], weights: list[float], tokens: list[int]) -> Iterator[Proposal]:
        """The words of the tokens in the case of the original, which they must differ from."""
        begin, end = span
        original = text[begin:end].strip()
        begin = text.index(original, begin)
        case, _ = word_class(original)
        for weight, token in zip(weights, tokens, strict=True):
            word = self.tokenizer.decode([token]).strip()
            word = word.upper() if case == "upper" else word[:1].upper() + word[1:] if case == "title" else word
            if weight > 0 and word.casefold() != original.casefold():
                yield Proposal(begin, begin + len(original), word, weight)
