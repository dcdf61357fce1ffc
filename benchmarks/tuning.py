"""Trials a minute of detector tuning: python -m benchmarks.tuning --help.

Invented token statistics of 60 to 200 tokens a text stand in for those of a model: a trial scores every text under the
base and the tuned model, measures 20 folds and is written to the storage. CPU time is given beside wall time, because
only it says what the job costs where other work shares the cores.
"""

import tempfile
import time
from dataclasses import dataclass

import numpy as np
import tyro

import detectors
from fsd.scoring.deviation import ViewStatistics
from fsd.token_stats import TokenStats
from fsd.tuning.objective import DetectorTask, ValidationSet, grouped_folds
from fsd.tuning.optuna_study import Plan, search
from fsd.views import View


@dataclass(frozen=True)
class Benchmark:
    """Tune detectors on invented readings."""

    texts: int = 1000
    """Validation texts."""
    trials: int = 300
    """Of each study; surp has 200 combinations, all of which are tried."""
    workers: tuple[int, ...] = (1, 2)
    """Processes, one row each."""
    detectors: tuple[str, ...] = ("surp", "dc_pdd", "min_k_pp")
    """Which; each for its FSD, the dearer state."""
    storages: tuple[str, ...] = ("sqlite:///{folder}/trials.db", "journal:{folder}/trials.log")
    """Where trials are kept."""


def invented(texts: int, seed: int = 0) -> ValidationSet:
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
    readings = ViewStatistics({View(*view): column for view, column in columns.items()})
    return ValidationSet(readings, member, grouped_folds(member, None))


def main(config: Benchmark) -> None:
    validation_set = invented(config.texts)
    print(f"{config.texts} texts; {'storage':24} {'detector':9} workers  trials  a minute  CPU ms a trial (1 worker)")
    for name in config.detectors:
        task = DetectorTask(detectors.load(name), "fsd", validation_set)
        for url in config.storages:
            for workers in config.workers:
                task.known.clear()
                with tempfile.TemporaryDirectory() as folder:
                    plan = Plan(url.format(folder=folder), trials=config.trials, workers=workers)
                    wall, cpu = time.perf_counter(), time.process_time()
                    tried = search(task, name, {}, plan)
                    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                spent = f"{cpu / len(tried) * 1e3:.1f}" if workers == 1 else ""
                rate = len(tried) / wall * 60
                print(f"{'':14}{url.partition(':')[0]:24} {name:9} {workers:7} {len(tried):7} {rate:9.0f}  {spent}")


if __name__ == "__main__":
    main(tyro.cli(Benchmark))
