"""A scoring job counts the texts for which the prefix of `recall` is cut off."""

from pathlib import Path

import pytest

import detectors
from fsd.config import ModelConfig
from fsd.models.language_model import load
from fsd.scoring import job
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import Prompt


@pytest.fixture(scope="module")
def config(tiny: Path) -> ModelConfig:
    return ModelConfig(str(tiny), device="cpu", cache="none")


def test_the_texts_for_which_the_prefix_is_cut_are_counted(config: ModelConfig) -> None:
    model = load(config)
    texts = [" ".join(["score of a member"] * n) for n in range(6, 14)]
    unseen = ["q the text of an unseen member"]

    planned = job.prepare(model, texts, unseen, [detectors.load("recall")], config, shots=1)

    prefix = planned.inputs.prefix
    ids = model.tokens([prefix])[0]
    whole, other = (list(ModelScorer(model)([Prompt(text, start + prefix[1:]) for text in texts])) for start in "qz")
    assert len(model.tokens(["z" + prefix[1:]])[0]) == len(ids)
    unchanged = [a.logp[-1] == b.logp[-1] for a, b in zip(whole, other, strict=True)]  # without the first letter
    sizes = [len(ids) + len(text) for text in model.tokens(texts)]
    cut = sum(size > model.context for size in sizes)
    assert unchanged == [size > model.context + 1 for size in sizes]  # the start token is cut off first
    assert 0 < cut < len(texts)
    assert planned.remarks == [
        f"recall: {cut} of 8 texts exceed the model's context with the prefix, so that tokens are scored without its "
        "beginning and the start token (fewer --shots make it shorter)"
    ]


def test_without_recall_there_is_no_remark(config: ModelConfig) -> None:
    planned = job.prepare(load(config), ["score " * 100], ["an unseen text " * 20], [detectors.load("loss")], config)
    assert planned.remarks == []
