"""Neighbours by a masked model: deterministic, in case, with the model's own probabilities, raw text kept."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from fsd.errors import UsageError
from fsd.scoring.neighbours import MaskedModel

TEXT = "The  cat,\tsat on a mat!\n\nParis DOG cats  ran. " * 3


@pytest.fixture(scope="module")
def masked(masked_lm: Path) -> MaskedModel:
    return MaskedModel(str(masked_lm), device="cpu")


def test_proposals_depend_on_the_seed_alone(masked: MaskedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    first = masked.proposals(TEXT)
    assert masked.proposals(TEXT) == first
    monkeypatch.setattr(masked, "seed", 2)
    assert masked.proposals(TEXT) != first


def test_whole_words_of_every_window_are_swapped_in_their_case(masked: MaskedModel) -> None:
    proposals = masked.proposals(TEXT)

    assert {TEXT[p.begin : p.end] for p in proposals} == {"The", "cat", "sat", "on", "a", "mat", "Paris", "DOG", "ran"}
    assert any(p.begin > 2 * len(TEXT) // 3 for p in proposals)
    assert all(p.word.casefold() != TEXT[p.begin : p.end].casefold() and p.word.isalpha() for p in proposals)
    assert all(p.word.isupper() for p in proposals if TEXT[p.begin : p.end] == "DOG")


def test_without_dropout_the_weight_is_the_models_probability_without_the_original(masked, monkeypatch) -> None:
    monkeypatch.setattr(masked, "dropout", 0.0)
    x = torch.tensor([masked.tokenizer("a cat sat")["input_ids"]])
    cat, dog = masked.tokenizer.convert_tokens_to_ids(["cat", "dog"])
    with torch.inference_mode():
        p = masked.network(x).logits[0, 2].softmax(-1)

    weights = {proposal.word: proposal.weight for proposal in masked.proposals("a cat sat") if proposal.begin == 2}

    assert weights["dog"] == pytest.approx(float(p[dog] / (1 - p[cat])), abs=1e-6)


def test_neighbours_differ_in_one_word_and_keep_the_rest(masked: MaskedModel) -> None:
    neighbours = masked(TEXT)

    assert len(set(neighbours)) == 25
    for neighbour in neighbours:
        assert len(neighbour.split()) == len(TEXT.split())
        assert sum(a != b for a, b in zip(neighbour.split(), TEXT.split(), strict=True)) == 1


def test_a_text_without_words_is_its_own_neighbour(masked: MaskedModel) -> None:
    assert masked("12") == ["12"]
    assert masked.proposals("") == []


def test_a_model_never_runs_code_of_its_own(masked_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(shutil.copytree(masked_lm, tmp_path / "own"))
    config = json.loads((own / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "code.Config", "AutoModelForMaskedLM": "code.Model"}}
    (own / "config.json").write_text(json.dumps(config))
    (own / "code.py").write_text(f"from pathlib import Path\nPath({str(tmp_path / 'executed')!r}).touch()\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # the answer to the library's question
    with pytest.raises(UsageError, match="must be a masked language model"):
        MaskedModel(str(own), device="cpu")
    assert not (tmp_path / "executed").exists()


def test_a_causal_model_is_refused(tiny: Path) -> None:
    with pytest.raises(UsageError, match="must be a masked language model"):
        MaskedModel(str(tiny), device="cpu")
