"""Progress of long jobs, on stderr: the stages of a run, which stay, and bars."""

import io
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from tqdm import tqdm

# Labels of the stages, and identities of the bars, that are open: from the outermost to the innermost.
_LABELS: list[str] = []
_OPEN: set[int] = set()
FORMAT = "{desc}  {total_fmt} {unit} |{bar}| {elapsed}<{remaining}{postfix}"
# Seconds after which a clock is drawn again.
TICK = 0.5
# Seconds after which the next line follows where lines stay, as in a log.
EVERY = 60.0


def moving() -> bool:
    """Whether stderr is a terminal whose lines can be drawn again: no pipe, no TERM=dumb, and no cell of a notebook."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and "JPY_PARENT_PID" not in os.environ


@contextmanager
def stage(label: str, *, again: bool = False) -> Iterator[None]:
    """Show a label and how long the block takes, with its bars; a stage that is entered `again` only after a second."""
    if not (again or moving()):
        note(label)
    clock = tqdm(
        desc=label,
        bar_format="{desc}  {elapsed}{bar}",
        ascii="  ",  # blanks, over what a bar has left in the line
        dynamic_ncols=True,
        mininterval=TICK,
        miniters=0,
        delay=float(again),
        disable=not moving(),
        file=sys.stderr,
    )
    done = Event()

    def tick() -> None:
        while not done.wait(TICK):
            clock.update(0)

    # A daemon: it must not keep a process that fails.
    ticking = Thread(target=tick, daemon=True)
    if not clock.disable:
        ticking.start()
    try:
        with bar_title(label.partition(":")[0]):
            yield
    finally:
        done.set()
        if ticking.is_alive():
            ticking.join()
        clock.close()


class _InCell(tqdm):  # type: ignore[misc]  # tqdm has no types
    """A bar in a cell of a notebook: a line of its output, which is replaced and at the end taken away."""

    line: Any = None

    # tqdm's own bar for notebooks needs ipywidgets.
    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        from IPython.display import display

        text = {"text/plain": str(self) if msg is None else msg}
        if self.line is None:
            self.line = display(text, raw=True, display_id=True)
        else:
            self.line.update(text, raw=True)


class _Lines(tqdm):  # type: ignore[misc]
    """A bar where lines stay: a line from time to time."""

    # No thread of tqdm that watches for bars that are drawn too seldom.
    monitor_interval = 0

    def __init__(self, **options: Any) -> None:
        line = "{desc}  {n_fmt} of {total_fmt} {unit}, {elapsed}, {remaining} left"
        options["bar_format"] = line if options["total"] else "{desc}  {n_fmt} {unit}, {elapsed}"
        self.last_line = time.monotonic()
        # Every update may be the one after which a line is due; tqdm itself writes nothing.
        super().__init__(**options | {"miniters": 1, "leave": False, "file": io.StringIO()})

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        # tqdm clears a bar by an empty message.
        if msg is None and time.monotonic() - self.last_line >= EVERY:
            self.last_line = time.monotonic()
            note(str(self))


@contextmanager
def bar_title(label: str) -> Iterator[None]:
    """Put a label before those of all bars within, which stay when they are done."""
    _LABELS.append(label)
    try:
        yield
    finally:
        _LABELS.pop()


@contextmanager
def progress(total: int, description: str, unit: str, *, shown: bool = True) -> "Iterator[tqdm[None]]":
    """A progress bar, in a log a line a minute; one within another is shown after a second, and does not stay.

    Without a description it is not shown.
    """
    in_cell = "ipykernel" in sys.modules
    kind = tqdm
    if in_cell:
        kind = _InCell
    elif not moving():
        kind = _Lines
    labels = list(_LABELS)
    # The stage says it already, in "scoring: base" for example.
    if description and not (labels and labels[-1].endswith(description)):
        labels.append(description)
    # Abbreviations have no plural.
    if total != 1 and unit not in ("B", "tok") and not unit.endswith("s"):
        unit += "s"
    with kind(
        total=total,
        desc=" · ".join(labels),
        unit=unit,
        unit_scale=total >= 1000 or not total,
        bar_format=FORMAT if total else None,
        dynamic_ncols=True,
        disable=not (shown and description),
        # A bar within another is one of many, most of which end within a second.
        leave=bool(_LABELS) and not _OPEN,
        delay=float(bool(_OPEN)),
        file=io.StringIO() if in_cell else sys.stderr,
    ) as bar:
        _OPEN.add(id(bar))
        try:
            yield bar
        finally:
            _OPEN.discard(id(bar))


@contextmanager
def errors_alone(*names: str) -> Iterator[None]:
    """Let the loggers of these names, of libraries that are imported already, report errors alone."""
    loggers = list(map(logging.getLogger, names))
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def note(line: str) -> None:
    """Print a line to stderr, above the progress bars that are shown."""
    tqdm.write(line, file=sys.stderr)
