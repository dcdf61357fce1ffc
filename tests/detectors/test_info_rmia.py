import numpy as np
import pytest

from detectors.info_rmia import info_rmia
from detectors.min_k_reference import min_k_reference


def test_by_hand(make, pair):
    # p = (3/4, 1/4) and q = (1/4, 3/4) at both positions, the first token and then the second
    p, q = np.log([0.75, 0.25]), np.log([0.25, 0.75])
    divergence = 0.75 * np.log(3) + 0.25 * np.log(1 / 3)  # log 3 / 2, of either from the other
    stats = pair(make(p), make(q), mean=[divergence] * 2, reference_mean=[-divergence] * 2)
    tokens = np.log(3) * np.array([1, -1])
    assert info_rmia(stats) == pytest.approx(tokens.mean() - np.log(3) / 2)
    assert info_rmia(stats, k=0.5) == pytest.approx(-1.5 * np.log(3))
    assert info_rmia(stats, under="reference") == pytest.approx(tokens.mean() + np.log(3) / 2)


def slow(stats, k, under):
    means = stats.mean if under == "target" else stats.reference_mean
    rows = zip(stats.target.logp, stats.reference.logp, means, strict=True)
    values = sorted(logp - reference - mean for logp, reference, mean in rows)
    lowest = values[: max(1, int(k * len(values)))]
    return sum(lowest) / len(lowest)


def test_token_by_token(agree):
    agree(info_rmia, slow, "difference", k=(0.2, 0.55, 1.0), under=("target", "reference"))


def test_where_the_distributions_do_not_diverge_it_is_min_k_reference(random_views, pair):
    views = random_views(1, 30)
    stats = pair(views["text"], views["reference"])
    assert info_rmia(stats, k=0.2) == pytest.approx(min_k_reference(views["text"], views["reference"]))


def test_tokens_drawn_from_the_target_have_a_mean_of_zero(make, pair):
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(20)) for _ in range(2))
    drawn = rng.choice(20, 4000, p=p)
    mean, std = p @ np.log(p / q), np.sqrt(p @ np.log(p / q) ** 2 - (p @ np.log(p / q)) ** 2)
    stats = pair(make(np.log(p)[drawn], token=drawn), make(np.log(q)[drawn], token=drawn), mean=[mean] * 4000)
    assert info_rmia(stats) == pytest.approx(0, abs=4 * std / np.sqrt(4000))
