"""The rules of the house that ruff cannot see: who may import what, and how long a file may be."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("fsd", "detectors", "pipelines", "benchmarks", "tests")
    for path in (ROOT / folder).rglob("*.py")
)
HOMES = {
    "torch": (
        "fsd/models.py",
        "fsd/adapters.py",
        "fsd/masked.py",
        "fsd/scoring.py",
        "fsd/finetuning.py",
        "fsd/pretraining.py",
        "fsd/processes.py",
        "fsd/reduction.py",
        "fsd/fused.py",
        "benchmarks",
        "tests",
    ),
    "triton": ("fsd/fused.py", "tests"),
    "trl": ("fsd/finetuning.py", "tests"),
    "peft": ("fsd/models.py", "fsd/adapters.py", "fsd/finetuning.py", "benchmarks", "tests"),
    "transformers": (
        "fsd/models.py",
        "fsd/masked.py",
        "fsd/adapters.py",
        "fsd/finetuning.py",
        "fsd/pretraining.py",
        "fsd/scoring.py",
        "benchmarks",
        "tests",
    ),
    "mlflow": ("fsd/tracking", "pipelines/_serving.py", "tests"),
    "optuna": ("pipelines/tune.py", "pipelines/_tuning", "benchmarks", "tests"),
    "matplotlib": ("fsd/plots.py", "fsd/dots.py", "tests"),
    "sklearn": ("fsd/metrics.py", "fsd/audit.py", "tests"),
    "datasets": ("fsd/domains", "fsd/benchmarks", "fsd/finetuning.py", "tests"),
    "requests": ("fsd/domains", "fsd/completions", "fsd/collecting", "fsd/hub.py", "tests"),
    "detectors": ("detectors", "pipelines", "benchmarks", "tests"),
    "pipelines": ("pipelines", "benchmarks", "tests"),
}


def imported(path: Path) -> set[str]:
    """Top-level packages that a file imports, wherever in the file."""
    names = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []  # names for the type checker cost nothing at run time
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("library", HOMES)
def test_every_heavy_library_is_imported_in_its_homes_only(library: str) -> None:
    strangers = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if library in imported(path) and not path.relative_to(ROOT).as_posix().startswith(HOMES[library])
    ]

    assert strangers == []


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES
    }

    assert {name: lines for name, lines in lengths.items() if lines > 300 and not name.startswith("tests")} == {}


def test_tests_are_no_packages() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []
