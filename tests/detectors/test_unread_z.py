"""unread_z: by hand, against a slow version with scikit-learn, and what must not change it."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut

import detectors
from fsd.token_stats import Exemplars, PairStats, Prompt, TokenStats


def pair(rng, size, shift=0.0):
    """Statistics of a text of that many tokens, which the target knows better by `shift` nats."""
    token = np.arange(size)
    reference = TokenStats(
        "t", token, rng.normal(-3, 1, size), rng.normal(-3, 0.3, size), np.ones(size), np.zeros(size)
    )
    logp = reference.logp + rng.normal(shift, 0.5, size)
    target = TokenStats("t", token, logp, rng.normal(-3, 0.3, size), rng.uniform(1, 2, size), np.zeros(size))
    return PairStats(target, reference, rng.normal(0, 0.1, size), rng.uniform(0.5, 1, size), np.zeros(size))


def unread_of(pairs):
    known = Exemplars([[Prompt(f"text {number}")] for number in range(len(pairs))])
    return known.score_with(lambda prompts: pairs)


def scores_of(one):
    z = (one.ratio - one.mean) / one.std
    by_name = {
        "wbc": detectors.load("wbc").function(one.target, one.reference),
        "standardised": detectors.load("standardised_ratio").function(one),
        "lowest": np.sort(z)[: max(1, int(0.2 * z.size))].mean(),
        "min_k_pp": detectors.load("min_k_pp").function(one.target),
    }
    return list(by_name.values())


def features_of(one):
    q = one.reference
    return [len(q.logp), q.logp.mean(), np.std(q.logp), -np.mean(q.mean), np.mean(one.mean), np.mean(one.std)]


def slow(one, pairs, alpha):
    """One ridge a score, fitted again without each text for the spread."""
    features, scores = np.array([features_of(p) for p in pairs]), np.array([scores_of(p) for p in pairs])
    centre, scale = features.mean(axis=0), features.std(axis=0)
    inputs, asked = (features - centre) / scale, (np.array([features_of(one)]) - centre) / scale
    total = 0.0
    for column, score in zip(scores.T, scores_of(one), strict=True):
        left_out = []
        for rest, (row,) in LeaveOneOut().split(inputs):
            # the penalty is on the slopes about the mean of all texts, as in the fit of all of them
            design = np.column_stack([np.ones(len(rest)), inputs[rest]])
            penalty = alpha * np.diag([0.0] + [1.0] * inputs.shape[1])
            weights = np.linalg.solve(design.T @ design + penalty, design.T @ column[rest])
            left_out.append(column[row] - np.append(1, inputs[row]) @ weights)
        predicted = Ridge(alpha=alpha).fit(inputs, column).predict(asked)[0]
        total += (score - predicted) / np.sqrt(np.mean(np.square(left_out)))
    return total


def test_it_agrees_with_a_slow_version():
    rng = np.random.default_rng(0)
    pairs = [pair(rng, int(size)) for size in rng.integers(20, 60, 25)]
    one = pair(rng, 40, shift=0.3)
    function = detectors.load("unread_z").function
    for alpha in (1.0, 10.0, 100.0):
        assert function(one, unread_of(pairs), alpha=alpha) == pytest.approx(slow(one, pairs, alpha), rel=1e-9)


def test_by_hand_two_kinds_of_unread_text():
    """Where nothing predicts the scores, each is its distance from the mean in units of the spread."""
    rng = np.random.default_rng(1)
    first, second = pair(rng, 30), pair(rng, 30)
    pairs = [first, second] * 10
    scores = np.array([scores_of(first), scores_of(second)])
    # a penalty beyond all bounds leaves the mean alone, and a text left out is 10/19 of the difference away from it
    spread = np.abs(scores[0] - scores[1]) * 10 / 19
    expected = ((scores[0] - scores.mean(axis=0)) / spread).sum()
    assert detectors.load("unread_z").function(first, unread_of(pairs), alpha=1e15) == pytest.approx(expected, rel=1e-6)


def test_units_do_not_matter_and_members_score_higher():
    rng = np.random.default_rng(2)
    pairs = [pair(rng, 40) for _ in range(60)]
    function = detectors.load("unread_z").function
    unread = unread_of(pairs)
    others = [function(pair(rng, 40), unread) for _ in range(200)]
    members = [function(pair(rng, 40, shift=0.3), unread) for _ in range(200)]
    assert abs(np.mean(others)) < 0.5
    assert np.mean(members) > 3


def test_equal_models_and_one_token_give_a_finite_score():
    rng = np.random.default_rng(3)
    one = pair(rng, 1)
    same = [PairStats(p.target, p.target, np.zeros(9), np.full(9, 1e-6), np.zeros(9)) for p in (pair(rng, 9),) * 20]
    function = detectors.load("unread_z").function
    assert np.isfinite(function(one, unread_of([pair(rng, 9) for _ in range(20)])))
    assert function(same[0], unread_of(same)) == 0
