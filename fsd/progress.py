"""Progress bars of long jobs, on stderr."""

import sys

from tqdm import tqdm


def progress(total: int, description: str, unit: str, *, shown: bool = True) -> "tqdm[None]":
    """A progress bar, if stderr is a terminal."""
    return tqdm(
        total=total,
        desc=description,
        unit=unit,
        unit_scale=True,
        disable=None if shown else True,
        leave=False,
        file=sys.stderr,
    )


def note(line: str) -> None:
    """Print a line to stderr, above the progress bars that are shown."""
    tqdm.write(line, file=sys.stderr)
