"""The command `fsd`: `fsd run` is `python -m pipelines.fsd`, `fsd tune` is `python -m pipelines.tune`, and so on."""

import runpy
import sys
from importlib.metadata import version
from importlib.util import find_spec

from fsd.errors import one_of
from pipelines.command.commands import by_question, commands
from pipelines.command.pages import page


def main() -> None:
    """Run the pipeline that the first argument names with the arguments after it."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    available = commands()
    if name in available:
        # The command's own messages begin with it.
        sys.argv = [f"fsd {name}", *sys.argv[2:]]
        module = available[name].module
        # tyro reads the words of the help from the file of the main module.
        sys.modules["__main__"].__file__ = _file(module)
        runpy.run_module(module, run_name="__main__")
    elif name == "--version":
        print(f"fsd {version('fsd')}")
    elif name in ("-h", "--help"):
        print("usage: fsd COMMAND [OPTIONS]\n\nWas this text in that model's training data?")
        for question, group in by_question(available).items():
            print(f"\n{question}:")
            for command, about in group.items():
                print(f"  {command:<14} {about}")
        print("\n`fsd COMMAND --help` lists the flags of a command.")
        print("Which to take; the other pages, docs/NAME in messages, are beside it:")
        print(f"  {page('questions.md')}")
    else:
        print(f"error: {one_of('command', available, name)}", file=sys.stderr)
        sys.exit(2)


def _file(module: str) -> str | None:
    spec = find_spec(module)
    if spec and spec.submodule_search_locations:
        spec = find_spec(f"{module}.__main__")
    return spec.origin if spec else None


if __name__ == "__main__":
    main()
