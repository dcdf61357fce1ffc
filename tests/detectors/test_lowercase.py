import math

import pytest

from detectors.lowercase import lowercase
from detectors.perplexity import perplexity


def test_by_hand(make):
    # the loss rises from (1 + 3) / 2 = 2 to (2 + 3 + 4) / 3 = 3
    assert lowercase(make([-1.0, -3.0], text="An A"), make([-2.0, -3.0, -4.0], text="an a")) == 3 / 2
    # perplexity 2 of the text, 8 in lower case
    assert lowercase(make([math.log(1 / 2)] * 3), make([math.log(1 / 8)]), log=False) == pytest.approx(4, rel=1e-15)


def slow(text, lower, log):
    losses = [-sum(map(float, view.logp)) / len(view.logp) for view in (text, lower)]
    return losses[1] / losses[0] if log else perplexity(lower) / perplexity(text)


def test_equals_a_loop(agree):
    agree(lowercase, slow, "text", "lower", log=(True, False))


def test_a_text_in_lower_case_scores_one(random_views, make):
    text = random_views(0, 12)["text"]
    assert lowercase(text, text) == lowercase(text, text, log=False) == 1
    assert lowercase(make([0.0]), make([0.0]), log=False) == 1


def test_a_loss_of_zero_has_no_ratio(make):
    with pytest.raises(ValueError, match=r"needs a loss above 0, got 0 for the text 'A text'"):
        lowercase(make([0.0]), make([-1.0]))
