"""Print what makes a shell complete the commands of fsd, their flags, and the values of flags.

Examples:
    fsd completion bash > ~/.local/share/bash-completion/completions/fsd
    fsd completion zsh > ~/.fsd.zsh        # and in ~/.zshrc: source ~/.fsd.zsh
    fsd completion fish > ~/.config/fish/completions/fsd.fish
"""

import contextlib
import io
import runpy
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tyro.conf import Positional

from fsd.reporting.report import document
from pipelines.common.cli import command
from pipelines.common.commands import COMMANDS, FLAGS
from pipelines.common.job import Job, Stated

Words = Mapping[str, list[str]]
"""Flag → the values that it allows, if they are few."""


@dataclass(frozen=True)
class CompletionConfig:
    """The shell."""

    shell: Positional[Literal["bash", "zsh", "fish"]]
    """Shell that is to complete."""


def prepare(config: CompletionConfig) -> Job:
    """There is nothing to check."""
    commands = Stated(f"{len(COMMANDS)}, for {config.shell}", {"commands": len(COMMANDS), "shell": config.shell})
    return Job(partial(run, config), {"commands": commands})


def run(config: CompletionConfig) -> None:
    """Print the script."""
    template = "completion.fish" if config.shell == "fish" else "completion.sh"
    print(document(template, commands=described(), zsh=config.shell == "zsh"))


def described() -> dict[str, tuple[str, Words]]:
    """Command, also `canary make`, → what it does, and its flags."""
    commands: dict[str, tuple[str, Words]] = {}
    for name, (module, about) in COMMANDS.items():
        if module == __name__ or name == "completion":
            commands[name] = (about, {})
            continue
        lines = _printed(module, name)
        commands[name] = (about, _flags(lines))
        for line in lines:
            # A command with subcommands prints their names.
            if not line.startswith("--"):
                commands[f"{name} {line}"] = ("", _flags(_printed(module, f"{name} {line}")))
    return commands


def _flags(lines: list[str]) -> Words:
    flags = {}
    for line in lines:
        words = line.split()
        if words[0].startswith("--"):
            flags[words[0]] = words[1:]
    return flags


def _printed(module: str, name: str) -> list[str]:
    """The lines by which a command describes its flags."""
    out = io.StringIO()
    before = sys.argv
    words = name.split()
    sys.argv = [f"fsd {words.pop(0)}"]
    sys.argv += words
    sys.argv.append(FLAGS)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.suppress(SystemExit),
            # A module that another one has imported runs once more, as a program.
            warnings.catch_warnings(action="ignore", category=RuntimeWarning),
        ):
            runpy.run_module(module, run_name="__main__")
    finally:
        sys.argv = before
    return out.getvalue().splitlines()


if __name__ == "__main__":
    command(CompletionConfig, prepare, __doc__ or "")
