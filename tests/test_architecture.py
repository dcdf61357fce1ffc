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
        "fsd.errors",
        "fsd.token_stats",
        "fsd.unread",
        "fsd.loss_signals",
        "fsd.views",
        "fsd.search_space",
    },
}


HOMES = {
    "accelerate": ("fsd.distributed", "fsd.models"),
    "bitsandbytes": ("fsd.models",),
    "datasets": ("fsd.data.benchmarks", "fsd.data.readers", "fsd.models", "fsd.library"),
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
        "extensions.extract",
        "extensions.gguf",
        "extensions.study",
    ),
    "transformers": ("fsd.models", "fsd.scoring", "fsd.library", "extensions.chats", "extensions.gguf"),
    "trl": ("fsd.models", "extensions.chats"),
}
"""Heavy library → the packages and modules that may import it. Ruff bans them too, but leaves whole folders free."""


def modules() -> dict[str, Path]:
    """Every module of the project by its dotted name."""
    files = [file for top in ("fsd", "detectors", "pipelines", "extensions") for file in (ROOT / top).rglob("*.py")]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


MODULES = modules()


def imports(file: Path) -> Iterator[str]:
    """The project's modules that a file imports, wherever in the file; names for the type checker included."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


def home(module: str) -> str:
    """The package of the order, or beside it, that a module belongs to."""
    names = [name for row in ORDER for name in row] + list(SIDE)
    return max((n for n in names if module == n or module.startswith(f"{n}.")), key=len)


def level(module: str) -> int:
    """The row of `ORDER` in which a module stands."""
    return next(i for i, row in enumerate(ORDER) if home(module) in row)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_one_way(module: str) -> None:
    wrong = []
    for imported in imports(MODULES[module]):
        here, there = home(module), home(imported)
        if here in SIDE:
            allowed = there in SIDE[here]
        elif there in SIDE:
            allowed = level(module) > level("fsd.errors")
        else:
            allowed = level(imported) < level(module) or there == here
        if not allowed:
            wrong.append(imported)

    assert wrong == []


def libraries(file: Path) -> Iterator[str]:
    """The top names of everything that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("library", HOMES)
def test_a_heavy_library_is_imported_at_home(library: str) -> None:
    users = {module for module, file in MODULES.items() if library in libraries(file)}
    homes = tuple(f"{name}." for name in HOMES[library])

    assert {user for user in users if not f"{user}.".startswith(homes)} == set()


def test_detectors_are_known_to_the_library_and_the_pipelines_alone() -> None:
    users = {
        module
        for module, file in MODULES.items()
        if any(home(imported) == "detectors" for imported in imports(file)) and home(module) != "detectors"
    }

    assert {user for user in users if not user.startswith(("fsd.library", "pipelines", "extensions"))} == set()


@pytest.mark.parametrize("module", [m for m in sorted(MODULES) if m.startswith("pipelines")])
def test_no_pipeline_imports_an_entry_point(module: str) -> None:
    entries = {
        m
        for m, file in MODULES.items()
        if m.startswith("pipelines") and '__name__ == "__main__"' in file.read_text(encoding="utf-8")
    }

    assert sorted(set(imports(MODULES[module])) & entries) == []


def test_no_circle_among_modules() -> None:
    graph = {module: set(imports(file)) - {module} for module, file in MODULES.items()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for imported in sorted(graph[module]):
                visit(imported, (*path, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())


@pytest.mark.parametrize("package", sorted(m for m, file in MODULES.items() if file.name == "__init__.py"))
def test_every_package_says_what_lives_there(package: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[package].read_text(encoding="utf-8")))


def test_tests_are_no_packages() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


ROWS = re.findall(
    r"^\| .+ \| `(\w+)` \| `([\w/.]+)` \|$", (ROOT / "docs/architecture.md").read_text("utf-8"), re.MULTILINE
)


@pytest.mark.parametrize(("name", "file"), ROWS)
def test_the_page_names_functions_where_they_are(name: str, file: str) -> None:
    defined = {
        node.name
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    assert name in defined


def test_the_page_names_files_that_are_there() -> None:
    assert len(ROWS) > 20
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:fsd|detectors|pipelines|extensions|tests)/[\w/.]*)`", page)
    assert [name for name in named if not (ROOT / name).exists()] == []


UNIX_ALONE = frozenset(("resource", "fcntl", "grp", "pwd", "pty", "termios", "tty", "syslog"))
"""Modules that Python has on no Windows: one that is imported at the head of a file stops every command there."""


def test_no_file_needs_a_module_of_unix_to_be_imported() -> None:
    for name, file in MODULES.items():
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            assert not UNIX_ALONE.intersection(names), name


def test_a_command_runs_where_there_is_no_such_module_and_no_hangup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGHUP")
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cli._let_interrupt()
    assert signal.signal(signal.SIGTERM, before) != signal.SIG_DFL
