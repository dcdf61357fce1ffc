"""Trials per minute of detector tuning: python -m benchmarks.tuning --help.

Synthetic token statistics of 60 to 200 tokens per text replace those of a model. A trial scores every text under the
base and the tuned model, measures 20 folds and is written to the storage. CPU time is printed beside wall time, because
wall time depends on other work on the same cores.
"""

import tempfile
import time
from dataclasses import dataclass

import numpy as np
import tyro

import detectors
from fsd.config import TuneConfig
from fsd.scoring.deviation import ViewStatistics
from fsd.token_stats import TokenStats
from fsd.tuning.objective import DetectorTask, ValidationSet, grouped_folds
from fsd.tuning.optuna_study import search
from fsd.views import View


@dataclass(frozen=True)
class Benchmark:
    """Tune detectors on synthetic token statistics."""

    texts: int = 1000
    """Validation texts."""
    trials: int = 300
    """Trials per study; surp has 200 combinations, which are all evaluated."""
    workers: tuple[int, ...] = (1, 2)
    """Numbers of worker processes, one row each."""
    detectors: tuple[str, ...] = ("surp", "dc_pdd", "min_k_pp")
    """Detectors, each tuned for its FSD, the more expensive state."""
    storages: tuple[str, ...] = ("sqlite:///{folder}/trials.db", "journal:{folder}/trials.log")
    """Storages of the trials."""


def synthetic(texts: int, seed: int = 0) -> ValidationSet:
    rng = np.random.default_rng(seed)
    member = rng.random(texts) < 0.5
    base, tuned, unigram = [], [], []
    for m in member:
        size = int(rng.integers(60, 200))
        token, logp, mean = rng.integers(0, 1000, size), -rng.gamma(1, 3 - 0.4 * m, size), -rng.gamma(2, 2, size)
        base.append(TokenStats("", token, logp, mean, np.ones(size)))
        tuned.append(TokenStats("", token, 0.9 * logp, mean, np.ones(size)))
        unigram.append(TokenStats("", token, -rng.gamma(2, 4, size), mean, np.ones(size)))
    columns = {("base", "plain"): base, ("tuned", "plain"): tuned, ("unigram", "plain"): unigram}
    statistics = ViewStatistics({View(*view): column for view, column in columns.items()})
    return ValidationSet(statistics, member, grouped_folds(member, None))


def main(config: Benchmark) -> None:
    validation_set = synthetic(config.texts)
    print(
        f"{config.texts} texts; {'storage':24} {'detector':9} workers  trials  per minute  CPU ms per trial (1 worker)"
    )
    for name in config.detectors:
        task = DetectorTask(detectors.load(name), "fsd", validation_set)
        for url in config.storages:
            for workers in config.workers:
                task.evaluated.clear()
                with tempfile.TemporaryDirectory() as folder:
                    plan = TuneConfig(storage=url.format(folder=folder), trials=config.trials, workers=workers)
                    wall, cpu = time.perf_counter(), time.process_time()
                    records = search(task, name, {}, plan)
                    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                spent = f"{cpu / len(records) * 1e3:.1f}" if workers == 1 else ""
                rate = len(records) / wall * 60
                print(f"{'':14}{url.partition(':')[0]:24} {name:9} {workers:7} {len(records):7} {rate:9.0f}  {spent}")


if __name__ == "__main__":
    main(tyro.cli(Benchmark))
