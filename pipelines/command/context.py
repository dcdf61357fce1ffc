"""The command that is running: how it was invoked, where it prints, and its stages."""

import contextlib
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Literal, TextIO

from tyro.conf import FlagCreatePairsOff, arg

from fsd import distributed
from fsd.config import OptionalName, OptionalPath
from fsd.errors import UsageError, without_credentials
from fsd.progress import stage as stage_line

USUAL = {
    "data": "settings and texts",
    "model": "model",
    "scoring": "scoring",
    "recording": "recording: figures, report",
}
"""Stages of most commands: name → what is shown."""
LATE = ("finetuning", "tuning", "scoring", "placebo", "judging", "recording")
"""Stages that come after all checks of settings and files."""


@dataclass(frozen=True)
class Invocation:
    """How the command is run, and what it prints; every command has these options."""

    config: OptionalPath = None
    """YAML or TOML file of settings, named like the flags; flags on the command line replace them."""
    dry_run: FlagCreatePairsOff[bool] = False
    """Print what would be read, loaded, computed and written, and the memory; train, write and track nothing."""
    verbose: FlagCreatePairsOff[bool] = False
    """Print every table and remark; without it the end fits one screen, and the report has the rest."""
    json: FlagCreatePairsOff[bool] = False
    """Print the results as one JSON document on stdout, and everything else on stderr."""
    name: OptionalName = None
    """Name of the run in MLflow. Default: made of model, data and method."""
    tags: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE ...", help_behavior_hint="")] = ()
    """Tags of the run in MLflow, by which it can be found."""

    def check(self) -> None:
        """Refuse tags without a value."""
        for tag in self.tags:
            if not tag.partition("=")[1]:
                raise UsageError(f"tags must look like KEY=VALUE; got {tag!r}")

    @property
    def run_tags(self) -> dict[str, str]:
        """The tags of the run."""
        return dict(tag.split("=", 1) for tag in self.tags)


@dataclass(frozen=True)
class EvidenceInvocation(Invocation):
    """How a command is run whose answer is evidence: what becomes of the answer, and what was promised before."""

    fail_if: Annotated[tuple[str, ...], arg(metavar="CONDITION ...", help_behavior_hint="")] = ()
    """End with exit status 1 if a number of the answer is so, e.g. "auc > .55"; the names are in docs/gate.md."""
    protocol: OptionalPath = None
    """File that fixes texts, settings, tests and level: written with --dry-run, to be published; else it must fit."""
    report_for: Literal["engineer", "reader"] = "engineer"
    """Whom report.html is for: an engineer, or a reader who knows neither the software nor the field."""


@dataclass
class Stages:
    """The stages of a command, each shown by a line that stays, and the seconds spent in it, by metric name."""

    names: Mapping[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Show the stage, if it is one of `names`, and add the time of the block to its seconds."""
        metric = f"seconds/{name}"
        started = time.perf_counter()
        with self._line(name, again=metric in self.seconds):
            yield
        self.seconds[metric] += time.perf_counter() - started

    def _line(self, name: str, *, again: bool) -> AbstractContextManager[None]:
        # In a log the early stages are silent, so that a user's mistake is the one line that the command leaves.
        silent = name not in LATE and not sys.stderr.isatty()
        if silent or name not in self.names or not distributed.is_main_process():
            return contextlib.nullcontext()
        label = self.names[name]
        if len(self.names) > 1:
            number = list(self.names).index(name) + 1
            label = f"[{number}/{len(self.names)}] {label}"
        return stage_line(label, again=again)


@dataclass(frozen=True)
class Context:
    """The command that is running: its name, empty where a pipeline is called as a function, and where it prints."""

    command: str = ""
    invocation: Invocation = Invocation()
    stdout: TextIO | None = None
    stages: Stages | None = None
    numbers: dict[str, float | None] = field(default_factory=dict)
    """The numbers of the answer, once there is one: extensions may let the command fail by them."""
    read: dict[str, str] = field(default_factory=dict)
    """What was read of files, where it is not the plain case; see `fsd.data.reading`."""


_CONTEXT = ContextVar("context", default=Context())  # noqa: B039 - frozen


def context() -> Context:
    """The command that is running; an empty one where a pipeline is called as a function."""
    return _CONTEXT.get()


def typed_line(command: str) -> str:
    """A command with the arguments that the user typed, without the credentials of URLs."""
    return without_credentials(f"fsd {command} {shlex.join(sys.argv[1:])}".rstrip())


def demands() -> EvidenceInvocation:
    """What is asked of the answer of the command that is running; nothing where it is no evidence."""
    invocation = context().invocation
    return invocation if isinstance(invocation, EvidenceInvocation) else EvidenceInvocation()


def stages() -> Stages:
    """The stages of the command that is running; new ones without lines where a pipeline is called as a function."""
    return context().stages or Stages()


def stage(name: str) -> AbstractContextManager[None]:
    """A stage of the command that is running."""
    return stages()(name)


@contextmanager
def running(command: str, invocation: Invocation, names: Mapping[str, str] = USUAL) -> Iterator[None]:
    """Make a command the one that is running; with `--json`, whatever else prints to stdout goes to stderr."""
    stdout = sys.stdout
    token = _CONTEXT.set(Context(command, invocation, stdout, Stages(names)))
    try:
        # Libraries print as well. The document itself is written to the stdout that the context keeps.
        with contextlib.redirect_stdout(sys.stderr if invocation.json else stdout):
            yield
    finally:
        _CONTEXT.reset(token)
