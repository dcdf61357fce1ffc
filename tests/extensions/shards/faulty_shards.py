"""`python faulty_shards.py score ...` is `fsd score ...` with workers that fail as files in the folder $FAULTS say.

A file is named KIND-LINE after what happens to the shard that begins with that line; it is deleted when that has
happened, unless its content is `always`. The line 0 stands for the loading of the model.
"""

import os
import signal
import sys
import time
from pathlib import Path

from fsd.errors import UsageError
from pipelines import __main__ as program
from pipelines.score import job as score


def fail(line: str, *kinds: str) -> None:
    """Do what the first file for the line says."""
    for kind in kinds:
        file = Path(os.environ["FAULTS"]) / f"{kind}-{line}"
        if not file.exists():
            continue
        if file.read_text() != "always":
            file.unlink()
        if kind in ("kill", "late_kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "exit":
            os._exit(0)
        elif kind == "sysexit":
            sys.exit(3)
        elif kind == "raise":
            raise RuntimeError("the scorer broke")
        elif kind == "refuse":
            raise UsageError("the model must be on this machine; it is not")
        elif kind == "hang":
            time.sleep(3600)


def open_worker(config):
    fail("0", "kill", "raise", "refuse")
    worker = score.open_worker(config)

    def table(rows):
        line = rows[0][0].rpartition(":")[2]
        fail(line, "kill", "exit", "sysexit", "raise", "hang")
        made = worker.table(rows)
        fail(line, "late_kill")
        return made

    return worker._replace(table=table)


if __name__ == "__main__":
    work = score.RowWork
    score.RowWork = lambda command, _, *settings: work(command, "faulty_shards", *settings)
    sys.argv = ["fsd", *sys.argv[1:]]
    program.main()
