"""Neighbours of a text from a masked language model, for the detector `neighbour`."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from fsd.errors import UsageError
from fsd.models.language_model import torch_device
from fsd.net.hub import first_line, locate
from fsd.scoring.neighbours import Proposal, masked_neighbours, word_class

NEIGHBOURS = 25
"""Number of neighbours of a text (Mattern et al. 2023, §4)."""


class MaskedModel:
    """Text → neighbours by a masked language model, such as BERT or RoBERTa.

    Args:
        model: folder or hub id.
        count: number of neighbours.
        device: as in `fsd.config.ModelConfig`.
        seed: random seed of the dropout.

    Raises:
        UsageError: if the model cannot be reached, is no masked language model or needs code of its own.
    """

    def __init__(self, model: str, *, count: int = NEIGHBOURS, device: str = "auto", seed: int = 42) -> None:
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
        self.count = count
        self.seed = seed

    def __call__(self, text: str) -> list[str]:
        """Up to `count` neighbours, the most suitable first; a text without words is its own neighbour."""
        proposals = mask_proposals(self.network, self.tokenizer, text, count=self.count, seed=self.seed)
        return masked_neighbours(text, proposals, count=self.count)


@torch.inference_mode()
def mask_proposals(
    network: Any, tokenizer: Any, text: str, *, count: int = 25, dropout: float = 0.7, seed: int = 42, rows: int = 32
) -> list[Proposal]:
    """Replacements of each word of a text by a masked language model, for `masked_neighbours`.

    Dropout is applied to the input embedding of one word at a time instead of a mask, so that the model still has some
    information about the word; the suitability of another word is its probability, given that it is not the original.
    Only words of one token are replaced, by words of one token in the original's case.

    Args:
        network: masked language model in eval mode.
        tokenizer: its fast tokenizer.
        text: text of any length; it is cut into windows that fit the network.
        count: number of proposals per word, enough for as many neighbours.
        dropout: share of the embedding that is set to zero.
        seed: random seed of the dropout.
        rows: windows per forward pass.

    Source: Mattern et al. 2023, arXiv:2305.18462, §2 (semantically preserving neighbours: dropout 0.7).
    """
    generator = torch.Generator().manual_seed(seed)
    embedding = network.get_input_embeddings()
    allowed = _whole_words(tokenizer, embedding.num_embeddings).to(embedding.weight.device)
    size = min(getattr(network.config, "max_position_embeddings", None) or 512, 512) - 2
    proposals: list[Proposal] = []
    if not text:
        return proposals
    encoded = tokenizer(
        text,
        return_offsets_mapping=True,
        truncation=True,
        max_length=size,
        return_overflowing_tokens=True,
        verbose=False,
    )
    for window, (ids, offsets) in enumerate(zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)):
        x = torch.tensor(ids, device=embedding.weight.device)
        words = encoded.word_ids(window)
        alone = [t for t, word in enumerate(words) if word is not None and words.count(word) == 1 and allowed[x[t]]]
        for begin in range(0, len(alone), rows):
            places = torch.tensor(alone[begin : begin + rows])
            inputs = embedding(x).repeat(len(places), 1, 1)
            keep = torch.rand((len(places), inputs.shape[-1]), generator=generator) >= dropout
            inputs[torch.arange(len(places)), places] *= keep.to(inputs) / (1 - dropout)
            logits = network(inputs_embeds=inputs).logits[torch.arange(len(places)), places].float()
            original = x[places][:, None]
            logits = logits.scatter(1, original, -torch.inf)  # renormalised without the original: p(v)/(1 - p(x))
            best = logits.softmax(-1).masked_fill(~allowed, 0).topk(min(count, logits.shape[-1]))
            for t, weights, tokens in zip(places.tolist(), best.values.tolist(), best.indices.tolist(), strict=True):
                proposals += _proposals(tokenizer, text, offsets[t], zip(tokens, weights, strict=True))
    return proposals


def _whole_words(tokenizer: Any, vocabulary: int) -> torch.Tensor:
    """(V,) whether a token is a whole word: letters only, no special token, no continuation."""
    plain = torch.zeros(vocabulary, dtype=torch.bool)
    special = set(tokenizer.all_special_ids)
    spaced = any(name.startswith(("Ġ", "▁")) for name in tokenizer.get_vocab())
    for name, token in tokenizer.get_vocab().items():
        whole = name[:1] in "Ġ▁" and name[1:] if spaced else name
        plain[token] = token not in special and bool(whole) and tokenizer.decode([token]).strip().isalpha()
    return plain


def _proposals(
    tokenizer: Any, text: str, span: tuple[int, int], options: Iterable[tuple[int, float]]
) -> Iterator[Proposal]:
    begin, end = span
    original = text[begin:end].strip()
    begin = text.index(original, begin)
    end = begin + len(original)
    case, _ = word_class(original)
    for token, weight in options:
        word = tokenizer.decode([token]).strip()
        word = word.upper() if case == "upper" else word[:1].upper() + word[1:] if case == "title" else word
        if weight > 0 and word.casefold() != original.casefold():
            yield Proposal(begin, end, word, weight)
