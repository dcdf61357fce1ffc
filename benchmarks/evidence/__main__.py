"""Power and false alarms of canaries, extraction, adapter audits and data-set tests, on models whose data is known.

    python -m benchmarks.evidence --seeds 3

For each seed, pretrains one small model on background text with canaries, passages and ordered data sets that it reads
0, 1, 2, 4, 8, 16 and 32 times, and audits adapters of the embedded model after 0 to 5 epochs. Prints Markdown tables.
Each trial is one file under --out; those that exist are not run again. --small shows in less than a minute that every
part runs.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before torch starts its threads: spinning ones stall other processes on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def stored(path: Path, trial: Callable[[], Any]) -> Any:
    """The result of a trial, read from its file if that exists."""
    from pipelines.command.output import write_text

    if path.exists():
        return json.loads(path.read_text())
    began = time.monotonic()
    result = trial()
    write_text(json.dumps(result), path)
    print(f"{path} in {time.monotonic() - began:.0f} s", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="models to pretrain, and adapters to audit")
    parser.add_argument("--out", type=Path, default=Path("evidence-trials"), help="folder of the trials' results")
    parser.add_argument("--small", action="store_true", help="small trials whose numbers mean nothing")
    arguments = parser.parse_args()

    from benchmarks.evidence import tables, trials

    arguments.out.mkdir(parents=True, exist_ok=True)
    size = trials.SMALL if arguments.small else trials.Size()
    end = "-small.json" if arguments.small else ".json"
    audits, targets = [], []
    for seed in range(arguments.seeds):
        audits.append(stored(arguments.out / f"audits-{seed}{end}", lambda seed=seed: trials.audits(seed, size)))
        targets.append(stored(arguments.out / f"target-{seed}{end}", lambda seed=seed: trials.target(seed, size)))
    print(tables.shown(targets, audits))
    picture = arguments.out / f"evidence{end.removesuffix('.json')}.png"
    picture.write_bytes(tables.figure(tables.found(targets), tables.levels_of(targets)))
    print(f"wrote {picture}")


if __name__ == "__main__":
    main()
