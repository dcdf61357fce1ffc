"""What an extension may take of the library: the names of `api.pyi` beside this file, which says where each lives.

A name is looked up when it is first asked for, so that the help of a command waits for no library ([SPEC
1](https://scientific-python.org/specs/spec-0001/) does the same).
"""

import ast
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any


def looked_up(file: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose stub lists its names."""
    places = {}
    for node in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                # One of two names that are alike is given another one, by an assignment of the stub.
                places[str(alias.asname).removeprefix("_")] = f"{node.module}.{alias.name}"

    def look_up(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {file} has no attribute {name!r}")
        return resolve_name(places[name])

    return look_up


__getattr__ = looked_up(__file__)
