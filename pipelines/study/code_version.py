"""Hash of the code that computes a cell: its modules, everything of this project that they import, and libraries."""

import ast
import functools
import hashlib
import json
from collections.abc import Collection, Iterator
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("fsd", "detectors", "pipelines")
LIBRARIES = ("torch", "transformers", "peft", "numpy")
IGNORED = (
    "fsd.progress",
    "fsd.reporting",
    "fsd.tracking",
    "pipelines.common.run_log",
    "pipelines.study.catalogue",
    "pipelines.study.grid",
    "pipelines.study.texts",
)
"""Modules and packages that display and record numbers, or whose results are themselves part of a cell's hash."""


@functools.cache
def code_version(modules: tuple[str, ...], root: Path = ROOT) -> str:
    """SHA-256 of the code of some modules, of their direct and indirect imports, and of the versions of libraries.

    Comments, docstrings and formatting do not count.

    Args:
        modules: dotted names.
        root: folder of the packages of this project.
    """
    files = [file for package in PACKAGES for file in (root / package).rglob("*.py")]
    known = {".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file for file in files}
    code: dict[str, str] = {}
    pending = [*modules]
    while pending:
        name = pending.pop()
        if name not in code and not name.startswith(IGNORED):
            tree = ast.parse(known[name].read_text(encoding="utf-8"))
            pending += _imports(tree, known)
            code[name] = ast.dump(_Uncommented().visit(tree))
    content = [sorted(code.items()), [(library, version(library)) for library in LIBRARIES]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _imports(tree: ast.AST, known: Collection[str]) -> Iterator[str]:
    """The modules of this project that a module imports, also inside functions and for type checking."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module in known:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in known else node.module


class _Uncommented(ast.NodeTransformer):
    """Removes docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node
