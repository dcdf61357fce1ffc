"""The command `fsd`: `fsd run` is `python -m pipelines.fsd`, `fsd tune` is `python -m pipelines.tune`, and so on."""

import runpy
import sys
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec

from fsd.errors import one_of
from fsd.plugs import Command
from pipelines.command.commands import by_question, commands
from pipelines.command.pages import page

HELP = {"-h", "--help"}


def main() -> None:
    """Run the pipeline that the first argument names, or the first two, with the arguments after it."""
    words = sys.argv[1:] or ["--help"]
    first = words[0]
    available = commands()
    family = {name: command for name, command in available.items() if name.startswith(f"{first} ")}
    name = " ".join(words[:2])
    if name not in available:
        name = first
    if name in available:
        # The command's own messages begin with it.
        sys.argv = [f"fsd {name}", *words[len(name.split()) :]]
        module = available[name].module
        # tyro reads the words of the help from the file of the main module.
        sys.modules["__main__"].__file__ = _file(module)
        runpy.run_module(module, run_name="__main__")
    elif first == "--version":
        print(f"fsd {version('fsd')}")
    elif first in HELP or (family and set(words[1:]) <= HELP):
        _help(family or available)
    else:
        print(f"error: {one_of('command', family or available, ' '.join(words[:2]))}", file=sys.stderr)
        sys.exit(2)


def _help(available: Mapping[str, Command]) -> None:
    print("usage: fsd COMMAND [OPTIONS]\n\nWas this text in that model's training data?")
    for question, group in by_question(available).items():
        print(f"\n{question}:")
        for command, about in group.items():
            print(f"  {command:<14} {about}")
    print("\n`fsd COMMAND --help` lists the flags of a command.")
    print("Which to take; the other pages, docs/NAME in messages, are beside it:")
    print(f"  {page('questions.md')}")


def _file(module: str) -> str | None:
    spec = find_spec(module)
    if spec and spec.submodule_search_locations:
        spec = find_spec(f"{module}.__main__")
    return spec.origin if spec else None


if __name__ == "__main__":
    main()
