"""How long a whole run takes, first with an empty cache and then with what that left there: --help.

    python -m benchmarks.whole_run --trees ../before . --rounds 3

Each row is a process of its own: seconds by the clock, and of the processor, those of processes beside it included. Of
several trees of the project each round runs all, in turns, since other work on the machine slows them alike. Seconds by
the clock mean something on idle cores alone, so that the load of the last minute stands beside them.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

STATES = ("cold", "warm")


@dataclass(frozen=True)
class Settings:
    """What is run, and how often."""

    trees: tuple[Path, ...] = (Path(),)
    """Folders of the project, such as a worktree of an earlier commit."""
    rounds: int = 1
    """Rounds of a cold and a warm run of each tree."""
    run: str = "--domain arxiv"
    """Arguments of the run."""


def timed(tree: Path, folder: Path, arguments: str) -> tuple[float, float]:
    """Wall and processor seconds of a run with the cache of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve()), "FSD_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "pipelines.fsd", *arguments.split()]
    started = time.perf_counter()
    before = os.times()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - started, processor


def main(settings: Settings) -> None:
    """Print a row for each run."""
    print("tree | cache | wall s | processor s | load")
    for _ in range(settings.rounds):
        for tree in settings.trees:
            with tempfile.TemporaryDirectory(prefix="whole-run-") as folder:
                for state in STATES:
                    load = os.getloadavg()[0]
                    wall, processor = timed(tree, Path(folder), settings.run)
                    print(f"{tree} | {state} | {wall:.1f} | {processor:.1f} | {load:.1f}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
