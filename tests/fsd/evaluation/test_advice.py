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


def test_it_names_its_scope_in_one_line() -> None:
    assert str(advise(["combined.fsd"])) == (
        "advice without labels, within one period: trust combined FSD: it was best on small targets of our own only; "
        "if the reference is an earlier checkpoint or a near relative of the model, trust reference, base score; "
        "against later texts no score is advised"
    )
    assert str(advise(["loss.base"])) == (
        "advice without labels, within one period: trust loss, base score: nothing better can be computed; against "
        "later texts no score is advised"
    )
    assert advise(["zlib.base"]) is None
