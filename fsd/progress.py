"""Progress of long jobs on stderr, with rate and time left."""

import sys

from tqdm import tqdm


def progress(total: int, description: str, unit: str, *, shown: bool = True) -> "tqdm[None]":
    """A progress bar to `update(n)`; where stderr is no terminal, it writes a line every ten seconds at most."""
    pause = 0.1 if sys.stderr.isatty() else 10.0
    return tqdm(
        total=total,
        desc=description,
        unit=unit,
        unit_scale=True,
        disable=not shown,
        leave=False,
        file=sys.stderr,
        mininterval=pause,
        delay=0.0 if sys.stderr.isatty() else pause,
    )
