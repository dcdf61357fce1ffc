"""Progress of long jobs, on stderr: the stages of a run, which stay, and bars."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

_LABELS: list[str] = []
FORMAT = "{desc}  {total_fmt} {unit} |{bar}| {elapsed}<{remaining}{postfix}"


@contextmanager
def labelled(label: str) -> Iterator[None]:
    """Put a label before those of all bars within, which stay when they are done."""
    _LABELS.append(label)
    try:
        yield
    finally:
        _LABELS.pop()


def progress(total: int, description: str, unit: str, *, shown: bool = True) -> "tqdm[None]":
    """A progress bar, if stderr is a terminal."""
    return tqdm(
        total=total,
        desc=" · ".join([*_LABELS, description] if description else _LABELS),
        unit=unit,
        unit_scale=True,
        bar_format=FORMAT if total else None,
        dynamic_ncols=True,
        disable=None if shown else True,
        leave=bool(_LABELS),
        file=sys.stderr,
    )


def note(line: str) -> None:
    """Print a line to stderr, above the progress bars that are shown."""
    tqdm.write(line, file=sys.stderr)
