"""Permutation tests: labels in random order, and the p-value of the order that was observed."""

from numpy.random import Generator

from fsd.token_stats import BoolArray, FloatArray


def permuted(labels: BoolArray, permutations: int, rng: Generator) -> list[BoolArray]:
    """1 + P times (G,) labels: as they are, then in P random orders."""
    orders = [labels]
    orders += [rng.permutation(labels) for _ in range(permutations)]
    return orders


def permutation_p(values: FloatArray) -> float:
    """Share of the (1 + P,) values of `permuted` labels that are at least the first, which is one of them: never 0."""
    # equal values may differ by rounding
    return float((values >= values[0] - 1e-12).mean())
