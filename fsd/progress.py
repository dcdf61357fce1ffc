"""Progress bars of long jobs, on stderr."""

import sys

from tqdm import tqdm


def progress(total: int, description: str, unit: str, *, shown: bool = True) -> "tqdm[None]":
    """A progress bar; if stderr is not a terminal, at most one line is written every ten seconds."""
    terminal = sys.stderr.isatty()
    interval = 0.1 if terminal else 10.0
    return tqdm(
        total=total,
        desc=description,
        unit=unit,
        unit_scale=True,
        disable=not shown,
        leave=False,
        file=sys.stderr,
        mininterval=interval,
        delay=0.0 if terminal else interval,
    )
