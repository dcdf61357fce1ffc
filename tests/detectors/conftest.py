"""Token statistics to score, made by hand or random, and the comparison of a detector with a slow version of it."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from fsd.token_stats import Continuations, Exemplars, GradientNorms, PairStats, Prompt, TokenStats

Make = Callable[..., TokenStats]
RandomViews = Callable[..., dict[str, Any]]
LABELLED = {"a": (0, True), "b": (0, False), "c": (1, True), "d": (2, False), "e": (3, True)}


def _make(
    logp: Sequence[float],
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    token: Sequence[int] | None = None,
    top: Sequence[float] | None = None,
    text: str = "A text",
) -> TokenStats:
    size = len(logp)
    return TokenStats(
        text=text,
        token=np.array(range(size) if token is None else token, dtype=np.int64),
        logp=np.array(logp, dtype=np.float64),
        mean=np.array([-1.0] * size if mean is None else mean, dtype=np.float64),
        std=np.array([1.0] * size if std is None else std, dtype=np.float64),
        top=np.array([np.nan] * size if top is None else top, dtype=np.float64),
    )


def _random(rng: np.random.Generator, size: int, token: Sequence[int] | None = None) -> TokenStats:
    logp, mean = -0.5 - rng.exponential(2.0, size), -rng.uniform(0.1, 6.0, size)
    return _make(
        logp,
        mean=mean,
        top=np.maximum(logp, mean / 2),
        std=rng.uniform(0.2, 3.0, size),
        token=rng.integers(0, 2 + size // 2, size) if token is None else token,
        text="".join(rng.choice(list("aB é天 z"), size=size)),
    )


def _pair(
    target: TokenStats,
    reference: TokenStats,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    reference_mean: Sequence[float] | None = None,
) -> PairStats:
    zeros, ones = np.zeros(len(target.token)), np.ones(len(target.token))
    return PairStats(
        target,
        reference,
        zeros if mean is None else np.array(mean, dtype=np.float64),
        ones if std is None else np.array(std, dtype=np.float64),
        zeros if reference_mean is None else np.array(reference_mean, dtype=np.float64),
    )


def _random_pair(rng: np.random.Generator, target: TokenStats, reference: TokenStats) -> PairStats:
    size = len(target.token)
    mean, std = rng.exponential(1.0, size), rng.uniform(0.2, 3.0, size)
    return _pair(target, reference, mean=mean, std=std, reference_mean=-rng.exponential(1.0, size))


def _random_continuations(rng: np.random.Generator, size: int) -> Continuations:
    truth, *others = ("".join(rng.choice(list("ab 天!"), size=size + at)) for at in (0, -1, 0, 3))
    return Continuations(f"{truth} a", tuple(others), greedy=truth)


def _random_views(seed: int, size: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    text = _random(rng, size)
    views = {
        "text": text,
        "tuned": _random(rng, size, text.token),
        "lower": _random(rng, size + 1),
        "primed": _random(rng, size, text.token),
        "neighbours": [_random(rng, max(1, size + shift)) for shift in (-1, 0, 2)],
        "reference": _random(rng, size, text.token),
        "unigram": _random(rng, size, text.token),
        "gradient": GradientNorms(3.0 + size, 2.0, 1.0),
        "member_primed": _random(rng, size, text.token),
        "swapped": [_random(rng, max(1, size + shift)) for shift in (0, 1)],
        "repeated": [_random(rng, size, text.token) for _ in range(2)],
        "nonmembers": Exemplars([[Prompt("")] * 3] * 4).score_with(
            lambda prompts: [_random(rng, size + 2) for _ in prompts]
        ),
        "labelled": Exemplars([[Prompt(name)] * 3 for name in LABELLED], LABELLED).score_with(
            lambda prompts: [_random(rng, size + 2) for _ in prompts]
        ),
        "continuations": _random_continuations(rng, size),
        "outputs": _random_continuations(rng, size),
    }
    pairs = []
    for length in (8, 9, 10, 12):
        other = _random(rng, length)
        pairs.append(_random_pair(rng, other, _random(rng, length, other.token)))
    views["unread"] = Exemplars([[Prompt("")]] * len(pairs)).score_with(lambda prompts: pairs)
    views["difference"] = _random_pair(rng, text, views["reference"])
    views["change"] = _random_pair(rng, views["tuned"], text)
    views["adapted_reference"] = _random(rng, size, text.token)
    views["adapted_difference"] = _random_pair(rng, text, views["adapted_reference"])
    views["adapted_unread"] = Exemplars([[Prompt("")]] * 3).score_with(lambda prompts: pairs[1:])
    return views


@pytest.fixture(scope="session")
def make() -> Make:
    """TokenStats from lists; what is not given is the same for all tokens, and the tokens all differ."""
    return _make


@pytest.fixture(scope="session")
def pair() -> Callable[..., PairStats]:
    """PairStats from those of both models; by default both distributions are compared as if Δ had mean 0 and sd 1."""
    return _pair


@pytest.fixture(scope="session")
def random_views() -> RandomViews:
    """One random text of `size` tokens in every view, by `seed`; tokens repeat, log-probabilities are below −0.5."""
    return _random_views


@pytest.fixture(scope="session")
def agree() -> Callable[..., None]:
    """`agree(detector, slow, "text", "tuned", k=(.1, 1))`: the same scores at every size and in every setting."""

    def check(detector: Callable, slow: Callable, *views: str, **grid: Sequence[object]) -> None:
        for size in (*range(1, 31), 50, 101):
            text = _random_views(size, size)
            given = [text[view] for view in views]
            for values in product(*grid.values()):
                settings = dict(zip(grid, values, strict=True))
                expected = slow(*given, **settings)
                assert detector(*given, **settings) == pytest.approx(expected, rel=1e-12, abs=1e-12), (size, settings)

    return check
