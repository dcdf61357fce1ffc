import numpy as np
import pytest

from detectors.info_rmia import info_rmia
from detectors.standardised_ratio import standardised_ratio
from detectors.wbc import wbc


def test_by_hand(make, pair):
    # Δ = 1, -2, 0, less 0.5, 0, -1 is 0.5, -2, 1, and by 0.5, 4, 2 it is 1, -0.5, 0.5
    text, other = make([-1.0, -4.0, -2.0]), make([-2.0, -2.0, -2.0])
    stats = pair(text, other, mean=[0.5, 0.0, -1.0], std=[0.5, 4.0, 2.0])
    assert standardised_ratio(stats) == pytest.approx((1 - 0.5 + 0.5) / 3)
    assert standardised_ratio(stats, sizes=(1,)) == pytest.approx(2 / 3)
    assert standardised_ratio(stats, sizes=(1, 2, 9)) == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)


def slow(stats):
    total = 0.0
    for place in range(len(stats.token)):
        ratio = stats.target.logp[place] - stats.reference.logp[place]
        total += (ratio - stats.mean[place]) / stats.std[place]
    return total / len(stats.token)


def test_token_by_token(agree):
    agree(standardised_ratio, slow, "difference")


def test_where_every_scale_is_one_it_is_info_rmia_and_its_votes_without_a_centre_are_those_of_wbc(random_views, pair):
    views = random_views(7, 60)
    plain = pair(views["text"], views["reference"], mean=views["difference"].mean)
    assert standardised_ratio(plain) == pytest.approx(info_rmia(plain))
    uncentred = pair(views["text"], views["reference"])
    sizes = (2, 5, 90)
    votes = wbc(views["text"], views["reference"], sizes=sizes)
    assert standardised_ratio(uncentred, sizes=sizes) == pytest.approx(votes)


def test_tokens_drawn_from_the_target_have_a_spread_of_one(make, pair):
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(20)) for _ in range(2))
    delta = np.log(p / q)
    mean, drawn = p @ delta, rng.choice(20, 2000, p=p)
    std = np.sqrt(p @ (delta - mean) ** 2)
    scores = []
    for tokens in drawn.reshape(500, 4):
        target, other = (make(np.log(model)[tokens], token=tokens) for model in (p, q))
        scores.append(standardised_ratio(pair(target, other, mean=[mean] * 4, std=[std] * 4)))
    assert np.mean(scores) == pytest.approx(0, abs=0.1)
    assert np.std(scores) == pytest.approx(1 / 2, abs=0.05)
