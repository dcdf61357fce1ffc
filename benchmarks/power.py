"""Is the power that a command states the power that it has? Simulated scores of known truth, without a model.

    python -m benchmarks.power

For each test and each shift, states the power on the scores of unread texts alone, as the commands do, and finds it by
as many new data sets whose texts were read, that is, shifted. Prints a table in Markdown; a minute or two.
"""

import argparse
from collections.abc import Callable

import numpy as np

from fsd.evaluation.dataset_inference import dataset_verdict
from fsd.evidence.canaries import combined_p
from fsd.reporting.report import markdown, plain
from fsd.statistics.intervals import Estimate, observed_rate
from fsd.statistics.power import READ, READ_CANARY
from fsd.token_stats import FloatArray
from pipelines.evidence.canary.powers import choice_power
from pipelines.evidence.contamination.powers import set_power

LEVEL = 0.05
DOCUMENTS, VARIANTS = 20, 20
SUSPECT, KNOWN = 23, 46
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


def canaries(shift: float, data_sets: int, rng: np.random.Generator) -> tuple[Estimate, Estimate]:
    """Stated and found power of the exact test of all documents; the order of a data set is tested alike."""
    stated = choice_power(variants(rng), shift, LEVEL, seed=1)
    p_values = []
    for seed in range(data_sets):
        scores = variants(rng, shift)
        p_values.append(combined_p(scores, [0] * DOCUMENTS, resamples=999, seed=seed))
    return stated, observed_rate(np.array(p_values) <= LEVEL)


def data_sets(shift: float, count: int, rng: np.random.Generator) -> tuple[Estimate, Estimate]:
    """Stated and found power of dataset inference."""
    stated = set_power(families(rng, KNOWN), (SUSPECT, KNOWN), shift, LEVEL, seed=1)
    p_values = []
    for seed in range(count):
        columns = np.concatenate([families(rng, SUSPECT, shift), families(rng, KNOWN)]).T
        suspect = {str(name): column[:SUSPECT] for name, column in enumerate(columns)}
        known = {str(name): column[SUSPECT:] for name, column in enumerate(columns)}
        verdict = dataset_verdict(suspect, known, permutations=199, seed=seed)
        assert verdict.p is not None
        p_values.append(verdict.p)
    return stated, observed_rate(np.array(p_values) <= LEVEL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=200, help="data sets in which the power is found")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    lines = []
    for name, shifts, measure in (
        (f"exact test, {DOCUMENTS} documents of {VARIANTS} variants", READ_CANARY, canaries),
        (f"dataset inference, {SUSPECT} texts beside {KNOWN}", READ, data_sets),
    ):
        for shift in (0.0, *shifts.values()):
            stated, found = measure(shift, arguments.data_sets, rng)
            overlap = stated.low <= found.high and found.low <= stated.high
            lines.append([name, f"{shift:g}", str(stated), str(found), "yes" if overlap else "NO"])
    print(markdown(plain(["test", "shift, SD", "stated", "found", "intervals overlap"], lines)))


if __name__ == "__main__":
    main()
