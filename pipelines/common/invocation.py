"""How a command is run: its output, its dry run, and the name and tags of its run, which no setting depends on."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, TextIO

from tyro.conf import FlagCreatePairsOff, arg

from fsd.config import OptionalName, OptionalPath
from fsd.errors import UsageError

OWN_TAGS = frozenset(
    {
        *("base_model", "base_revision", "base_fingerprint", "model", "adapter", "reused_adapter", "method", "texts"),
        *("task", "tune", "study", "plan", "kind", "cell", "from", "process", "error"),
    }
)
"""Tags that commands set themselves."""
_TAG = re.compile(r"(?P<name>[\w. :/-]{1,250})=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True)
class Invocation:
    """How the command is run, and what it prints; every command has these options."""

    config: OptionalPath = None
    """YAML or TOML file of settings, named like the flags; flags on the command line replace them."""
    dry_run: FlagCreatePairsOff[bool] = False
    """Print what would be read, loaded and computed, and about how long it takes; train, write and track nothing."""
    json: FlagCreatePairsOff[bool] = False
    """Print the results as one JSON document on stdout, and everything else on stderr."""
    name: OptionalName = None
    """Name of the run in MLflow. Default: made of model, data and method."""
    tags: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE ...", help_behavior_hint="")] = ()
    """Tags of the run in MLflow, by which it can be found."""

    def check(self) -> None:
        """Check the tags."""
        for tag in self.tags:
            found = _TAG.fullmatch(tag)
            if not found:
                raise UsageError(f"tags must look like KEY=VALUE; got {tag!r}")
            if found["name"].startswith("mlflow."):
                raise UsageError(f"tags must not begin with mlflow., which MLflow itself sets; got {tag!r}")
            if found["name"] in OWN_TAGS:
                raise UsageError(
                    f"tags must not replace those of commands ({', '.join(sorted(OWN_TAGS))}); got {tag!r}"
                )

    @property
    def run_tags(self) -> dict[str, str]:
        """The tags of the run."""
        return {name: value for name, _, value in (tag.partition("=") for tag in self.tags)}


@dataclass(frozen=True)
class Context:
    """The command that is running.

    Attributes:
        command: its name, such as `run` or `canary test`; empty where a pipeline is called as a function.
        invocation: how it is run.
        stdout: where results are printed.
    """

    command: str = ""
    invocation: Invocation = Invocation()
    stdout: TextIO | None = None


_CONTEXT = ContextVar("context", default=Context())  # noqa: B039 - frozen


def context() -> Context:
    """The command that is running."""
    return _CONTEXT.get()


@contextmanager
def running(command: str, invocation: Invocation) -> Iterator[None]:
    """Make a command the one that is running; with `--json`, whatever else prints to stdout goes to stderr."""
    stdout = sys.stdout
    token = _CONTEXT.set(Context(command, invocation, stdout))
    try:
        with redirect_stdout(sys.stderr if invocation.json else stdout):
            yield
    finally:
        _CONTEXT.reset(token)
