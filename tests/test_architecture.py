"""The rules of the architecture that ruff cannot check: in which order packages may import each other."""

import ast
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.command import cli

ROOT = Path(__file__).parents[1]
ORDER: tuple[tuple[str, ...], ...] = (
    ("fsd.errors",),
    ("fsd.files", "fsd.unspaced"),
    ("fsd.config", "fsd.token_stats", "fsd.search_space", "fsd.progress", "fsd.distributed", "fsd.leftovers"),
    ("fsd.plugs", "fsd.views", "fsd.unread", "fsd.scores", "fsd.loss_signals", "fsd.statistics"),
    ("fsd.models.weights",),
    ("fsd.net",),
    ("fsd.data", "fsd.models"),
    ("fsd.scoring",),
    ("fsd.text_audit",),
    ("fsd.verdicts",),
    ("fsd.evaluation",),
    ("fsd.collection", "fsd.tuning", "fsd.reporting"),
    ("fsd.library",),
    ("fsd",),
    ("pipelines.command",),
    ("pipelines.experiment",),
    ("pipelines",),
    ("extensions",),
)
"""Each row imports only from rows above it and from itself. `fsd.tracking` and `detectors` stand beside this order."""
SIDE = {
    "fsd.tracking": {"fsd.tracking", "fsd.errors", "fsd.files", "fsd.leftovers", "fsd.net"},
    "detectors": {
        "detectors",
        *("fsd.errors", "fsd.token_stats", "fsd.unread", "fsd.loss_signals", "fsd.views", "fsd.search_space"),
    },
}


HOMES = {
    "accelerate": ("fsd.distributed", "fsd.models"),
    "bitsandbytes": ("fsd.models",),
    "datasets": ("fsd.data.benchmarks", "fsd.models", "fsd.library"),
    "huggingface_hub": ("fsd.data.benchmarks", "fsd.net"),
    "lm_eval": ("extensions.tasks.harness",),
    "matplotlib": ("fsd.reporting", "fsd.library", "extensions.study", "pipelines.tune.report"),
    "mlflow": ("fsd.tracking", "extensions.serve.mlflow_model"),
    "optuna": ("fsd.tuning", "pipelines.tune"),
    "peft": ("fsd.models", "fsd.library"),
    "ray": ("extensions.shards.ray_engine",),
    "requests": ("fsd.net", "extensions.api.client"),
    "sklearn": ("fsd.estimator", "fsd.text_audit", "fsd.verdicts", "fsd.evaluation", "fsd.statistics", "fsd.tuning"),
    "sqlite3": ("fsd.scoring.cache", "fsd.tracking.store"),
    "torch": (
        "fsd.distributed",
        "fsd.models",
        "fsd.scoring",
        *(f"extensions.{x}" for x in ("extract", "gguf", "study")),
    ),
    "transformers": ("fsd.models", "fsd.scoring", "fsd.library", "extensions.chats", "extensions.gguf"),
    "trl": ("fsd.models", "extensions.chats"),
}
"""Heavy library → the packages and modules that may import it. Ruff bans them too, but leaves whole folders free."""


def modules() -> dict[str, ast.Module]:
    """Every module of the project by its dotted name, parsed."""
    files = [file for top in ("fsd", "detectors", "pipelines", "extensions") for file in (ROOT / top).rglob("*.py")]
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    return {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in zip(names, files, strict=True)}


MODULES = modules()


def imports(tree: ast.Module) -> Iterator[str]:
    """The project's modules that a file imports, wherever in the file; names for the type checker included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


GRAPH = {module: set(imports(tree)) for module, tree in MODULES.items()}


def home(module: str) -> str:
    """The package of the order, or beside it, that a module belongs to."""
    names = [name for row in ORDER for name in row] + list(SIDE)
    return max((n for n in names if module == n or module.startswith(f"{n}.")), key=len)


def level(module: str) -> int:
    """The row of `ORDER` in which a module stands."""
    return next(i for i, row in enumerate(ORDER) if home(module) in row)


def may_import(module: str, imported: str) -> bool:
    here, there = home(module), home(imported)
    if here in SIDE:
        return there in SIDE[here]
    if there in SIDE:
        return level(module) > level("fsd.errors")
    return level(imported) < level(module) or there == here


def test_imports_point_one_way() -> None:
    pairs = [(module, imported) for module, found in GRAPH.items() for imported in found]
    assert [pair for pair in pairs if not may_import(*pair)] == []


def libraries(tree: ast.Module) -> Iterator[str]:
    """The top names of everything that a file imports, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_a_heavy_library_is_imported_at_home() -> None:
    uses = [(library, module) for module, tree in MODULES.items() for library in HOMES.keys() & set(libraries(tree))]
    homes = {library: tuple(f"{name}." for name in names) for library, names in HOMES.items()}
    assert [use for use in uses if not f"{use[1]}.".startswith(homes[use[0]])] == []


def test_detectors_are_known_to_the_library_and_the_pipelines_alone() -> None:
    users = {module for module, found in GRAPH.items() if "detectors" in map(home, found)}
    known = ("detectors", "fsd.library", "pipelines", "extensions")
    assert [user for user in users if not user.startswith(known)] == []


def test_no_pipeline_imports_an_entry_point() -> None:
    pipelines = [module for module in MODULES if module.startswith("pipelines")]
    entries = {module for module in pipelines if "__name__ == '__main__'" in ast.unparse(MODULES[module])}
    assert entries
    assert {module: GRAPH[module] & entries for module in pipelines if GRAPH[module] & entries} == {}


def test_no_circle_among_modules() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for imported in sorted(GRAPH[module] - {module}):
                visit(imported, (*path, module))
            done.add(module)

    for module in sorted(GRAPH):
        visit(module, ())


def test_every_package_says_what_lives_there_and_tests_are_none() -> None:
    packages = {module for module in MODULES if (ROOT / module.replace(".", "/")).is_dir()}
    assert [package for package in packages if not ast.get_docstring(MODULES[package])] == []
    assert list((ROOT / "tests").rglob("__init__.py")) == []


ROWS = re.findall(
    r"^\| .+ \| `(\w+)` \| `([\w/.]+)` \|$", (ROOT / "docs/architecture.md").read_text("utf-8"), re.MULTILINE
)


def test_the_page_names_functions_and_files_that_are_there() -> None:
    assert len(ROWS) > 20
    for name, file in ROWS:
        nodes = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        assert name in {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}, file
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:fsd|detectors|pipelines|extensions|tests)/[\w/.]*)`", page)
    assert [name for name in named if not (ROOT / name).exists()] == []


UNIX_ALONE = frozenset(("resource", "fcntl", "grp", "pwd", "pty", "termios", "tty", "syslog"))
"""Modules that Python has on no Windows: one that is imported at the head of a file stops every command there."""


def test_no_file_needs_a_module_of_unix_to_be_imported() -> None:
    for name, tree in MODULES.items():
        for node in tree.body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            assert not UNIX_ALONE.intersection(names), name


def test_a_command_runs_where_there_is_no_such_module_and_no_hangup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGHUP")
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cli._let_interrupt()
    assert signal.signal(signal.SIGTERM, before) != signal.SIG_DFL
