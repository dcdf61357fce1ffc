"""Is the power that a command states the power that it has? Simulated scores of known truth, without a model.

    python -m benchmarks.power

For each test and each shift, states the power on the scores of unread texts alone, as the commands do, for several
draws of these texts, and finds it by many new data sets whose texts were read, that is, shifted. Prints a table in
Markdown; two or three minutes. The mean of what is stated shows a bias; the share of statements whose interval covers
what is found shows what one statement is worth.
"""

import argparse
import sys
from collections.abc import Callable

import numpy as np

from extensions.canary.powers import READ_CANARY
from extensions.contamination.powers import READ_KERNEL, rank_power, set_power
from fsd.reporting.report import markdown, plain
from fsd.statistics.intervals import Estimate, interval, observed_rate, shortened
from fsd.statistics.power import READ, choice_power
from fsd.statistics.ranks import combined_p, rank_among
from fsd.token_stats import FloatArray
from fsd.verdicts.dataset_inference import dataset_verdict

LEVEL = 0.05
DOCUMENTS, VARIANTS = 20, 20
SUSPECT, KNOWN = 23, 46
SETS = 19
SHARED = 0.7
"""Correlation of the detectors' scores."""
Draw = Callable[[np.random.Generator, float], FloatArray]


def variants(rng: np.random.Generator, shift: float = 0.0) -> list[FloatArray]:
    """Scores of the variants of each document; the first was published, and is higher if it was read."""
    scores = rng.standard_normal((DOCUMENTS, VARIANTS)) * rng.uniform(0.5, 2, (DOCUMENTS, 1))
    scores[:, 0] += shift * scores.std(axis=1)
    return list(scores)


def families(rng: np.random.Generator, count: int, shift: float = 0.0) -> FloatArray:
    """(N, 4) correlated scores of texts."""
    common = rng.standard_normal((count, 1))
    own = rng.standard_normal((count, 4))
    scores: FloatArray = np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * own + shift
    return scores


Measured = tuple[list[Estimate], Estimate]
"""The power as it was stated for each draw of unread texts, and as it was found."""


def canaries(shift: float, statements: int, data_sets: int, rng: np.random.Generator) -> Measured:
    """Power of the exact test of all documents; the order of a data set is tested alike."""
    stated = [choice_power(variants(rng), shift, LEVEL, seed=seed) for seed in range(statements)]
    p_values = []
    for seed in range(data_sets):
        scores = variants(rng, shift)
        p_values.append(combined_p(scores, [0] * DOCUMENTS, resamples=999, seed=seed))
    return stated, observed_rate(np.array(p_values) <= LEVEL)


def data_sets(shift: float, statements: int, count: int, rng: np.random.Generator) -> Measured:
    """Power of dataset inference."""
    sizes = (SUSPECT, KNOWN)
    stated = [set_power(families(rng, KNOWN), sizes, shift, LEVEL, seed=seed) for seed in range(statements)]
    p_values = []
    for seed in range(count):
        columns = np.concatenate([families(rng, SUSPECT, shift), families(rng, KNOWN)]).T
        suspect = {str(name): column[:SUSPECT] for name, column in enumerate(columns)}
        known = {str(name): column[SUSPECT:] for name, column in enumerate(columns)}
        verdict = dataset_verdict(suspect, known, permutations=199, seed=seed)
        assert verdict.p is not None
        p_values.append(verdict.p)
    return stated, observed_rate(np.array(p_values) <= LEVEL)


def sets(shift: float, statements: int, count: int, rng: np.random.Generator) -> Measured:
    """Power of the rank of one number of a set, as of CoDeC and of the kernel divergence."""
    stated = [rank_power(rng.standard_normal(SETS), shift, LEVEL, seed) for seed in range(statements)]
    # A rank costs nothing, so that ten times as many data sets are drawn.
    numbers = rng.standard_normal((10 * count, SETS + 1))
    p_values = [rank_among(row[0] + shift, row[1:].tolist()) for row in numbers]
    return stated, observed_rate(np.array(p_values) <= LEVEL + 1e-9)


def line(name: str, shift: float, measured: Measured) -> list[str]:
    """Mean of the statements with its interval, how far they scatter, what is found, and how many cover it."""
    stated, found = measured
    values = np.array([one.value for one in stated])
    covering = np.array([one.low <= found.value <= one.high for one in stated])
    mean = Estimate(float(values.mean()), *interval(values, 0.0))
    scatter = shortened(float(values.std(ddof=1)), ".3f")
    return [name, f"{shift:g}", three(mean), scatter, three(found), shortened(covering.mean())]


def three(share: Estimate) -> str:
    """A share and its interval with three decimals."""
    value, low, high = (shortened(number, ".3f") for number in share)
    return f"{value} [{low}, {high}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=2000, help="data sets in which the power is found")
    parser.add_argument("--statements", type=int, default=40, help="draws of unread texts for which it is stated")
    arguments = parser.parse_args()
    lines = []
    for name, shifts, measure in (
        (f"exact test, {DOCUMENTS} documents of {VARIANTS} variants", READ_CANARY, canaries),
        (f"dataset inference, {SUSPECT} texts beside {KNOWN}", READ, data_sets),
        (f"rank of a set among {SETS}", READ_KERNEL, sets),
    ):
        for shift in sorted({0.0, *shifts.values()}):
            rng = np.random.default_rng(0)
            lines.append(line(name, shift, measure(shift, arguments.statements, arguments.data_sets, rng)))
            print(*lines[-1], sep=" | ", file=sys.stderr, flush=True)
    headings = ["test", "shift, SD", "stated, mean", "SD of a statement", "found", "statements that cover it"]
    print(markdown(plain(headings, lines)))


if __name__ == "__main__":
    main()
