"""Which score is advised, by what can be computed."""

import pytest

from fsd.evaluation.advice import advise


@pytest.mark.parametrize(
    ("scores", "advised"),
    [
        (["loss.base", "min_k_pp.base", "min_k_reference.base", "loss.fsd", "combined.fsd"], "combined.fsd"),
        (["loss.base", "min_k_pp.base", "min_k_reference.base", "loss.fsd"], "min_k_reference.base"),
        (["loss.base", "min_k.base", "min_k_pp.base", "loss.fsd"], "min_k_pp.base"),
        (["loss.base", "min_k.base"], "min_k.base"),
        (["loss.base", "loss.fsd"], "loss.base"),
    ],
)
def test_the_best_score_that_was_computed_is_advised(scores: list[str], advised: str) -> None:
    advice = advise(scores)
    assert advice is not None
    assert advice.score == advised


def test_it_is_one_line() -> None:
    assert str(advise(["combined.fsd"])) == (
        "advice without labels: trust combined FSD: it uses the base model, the fine-tuned one and a reference model"
    )
    assert advise(["zlib.base"]) is None
