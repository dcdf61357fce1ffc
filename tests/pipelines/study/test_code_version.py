import shutil

import pytest

from pipelines.study import cells
from pipelines.study.code_version import code_version


@pytest.fixture
def version_after(root, tmp_path):
    """The version of the code of a cell that computes `min_k`, after code is appended to a copy of the sources."""
    for package in ("fsd", "detectors", "pipelines"):
        for file in (root / package).rglob("*.py"):
            copy = tmp_path / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)

    def version_after(*paths: str, code: str = "ADDED = 1") -> str:
        for path in paths:
            with (tmp_path / path).open("a") as file:
                file.write(f"\n{code}\n")
        code_version.cache_clear()
        return code_version((cells.__name__, "detectors.min_k"), tmp_path)

    return version_after


def test_every_module_that_moves_numbers_counts(version_after):
    modules = ("fsd/token_stats.py", "fsd/scoring/batching.py", "fsd/data/near_duplicates.py", "detectors/min_k.py")
    versions = [version_after(), *map(version_after, modules)]
    assert len(set(versions)) == len(versions)


def test_modules_that_display_and_record_do_not_count(version_after):
    ignored = (
        "fsd/reporting/figures.py",
        "fsd/tracking/runs.py",
        "pipelines/study/tables.py",
        "pipelines/study/catalogue.py",
        "pipelines/detect/__main__.py",
        "detectors/zlib.py",
    )
    assert version_after() == version_after(*ignored)


def test_comments_and_docstrings_do_not_count(version_after):
    assert version_after() == version_after("fsd/token_stats.py", code='# a comment\n"""A docstring."""')


def test_versions_of_libraries_count(monkeypatch):
    def key(changed):
        monkeypatch.setattr("pipelines.study.code_version.version", lambda name: "2" if name == changed else "1")
        code_version.cache_clear()
        return code_version(("fsd.errors",))

    assert len({key(name) for name in ("", "torch", "transformers", "peft", "numpy")}) == 5
    code_version.cache_clear()
