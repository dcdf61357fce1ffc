"""The first sign of a command: a line that stands on the terminal while its libraries are imported.

It imports nothing of its own, since that is what takes the time.
"""

import atexit
import os
import sys
from pathlib import Path

LINE = "loading …"
# From the cursor to the end of the line.
WIPE = "\x1b[K"
_SHOWN: list[str] = []


def start() -> None:
    """Show the line, if a command was typed at a terminal where lines can be drawn again."""
    if _typed() and _moving():
        # Whatever is printed next is written over it.
        _SHOWN.append(LINE)
        print(LINE, end="\r", file=sys.stderr, flush=True)
        atexit.register(wipe)


def wipe() -> None:
    """Take the line away, if it is there."""
    if _SHOWN:
        _SHOWN.clear()
        print(WIPE, end="", file=sys.stderr, flush=True)


def _typed() -> bool:
    """Whether this process is a command, and people read what it prints."""
    program = sys.argv[0] if sys.argv else ""
    is_command = Path(program).name == "fsd"
    # As long as Python looks for the module of `python -m`, that stands there in place of the module.
    if program == "-m":
        module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
        is_command = module.split(".")[0] == "pipelines"
    # What is printed at once would be written over the line.
    quick = {"--json", "-h", "--help", "--version", "--flags"}
    return is_command and quick.isdisjoint(sys.argv) and os.environ.get("RANK", "0") == "0"


def _moving() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
