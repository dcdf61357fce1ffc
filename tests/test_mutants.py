"""The list of one-line changes fits the present source, and the command tells a noticed change from another one."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.mutants.__main__ import NOT_NOTICED, NOT_THERE, attempt, table
from benchmarks.mutants.listed import ROOT, Mutant, mutants

LISTED = mutants()


def test_every_change_applies_exactly_once() -> None:
    sources = {file: (ROOT / file).read_text() for file in {mutant.file for mutant in LISTED}}
    wrong = []
    for mutant in LISTED:
        changed = mutant.applied(sources[mutant.file])
        if changed is None or changed == sources[mutant.file]:
            wrong.append(f"{mutant.file}: {mutant.change}")
        else:
            ast.parse(changed)
    assert wrong == []


def test_no_change_is_listed_twice() -> None:
    assert len({(mutant.file, mutant.original, mutant.replacement) for mutant in LISTED}) == len(LISTED) >= 50


@pytest.mark.parametrize("test", sorted({mutant.test for mutant in LISTED}))
def test_the_test_file_has_tests_that_are_not_slow(test: str) -> None:
    functions = [node for node in ast.parse((ROOT / test).read_text()).body if isinstance(node, ast.FunctionDef)]
    marks = [{ast.unparse(mark) for mark in one.decorator_list} for one in functions if one.name.startswith("test_")]
    assert any("pytest.mark.slow" not in of_test for of_test in marks)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of one function and two tests of it."""
    (tmp_path / "rounding.py").write_text("def up(number: int) -> int:\n    return number + 1  # not 2\n")
    tests = ("def test_sign():\n    assert up(1) > 1\n", "def test_size():\n    assert up(1) < 4\n")
    (tmp_path / "test_up.py").write_text("\n\n".join(("from rounding import up\n", *tests)))
    return tmp_path


@pytest.mark.slow
def test_a_change_is_noticed_by_the_test_that_fails_and_taken_back(tree: Path) -> None:
    source = (tree / "rounding.py").read_text()
    sign, boundary, absent, several = (
        attempt(tree, Mutant("rounding.py", "test_up.py", *texts, "a wrong number"))
        for texts in (("+ 1", "- 1"), ("+ 1", "+ 2"), ("+ 3", "+ 4"), ("number", "n"))
    )
    assert [sign.noticed_by, boundary.noticed_by] == ["test_sign", NOT_NOTICED]
    assert [absent.noticed_by, several.noticed_by] == [NOT_THERE, NOT_THERE]
    assert (sign.good, boundary.good, absent.good) == (True, False, False)
    assert (tree / "rounding.py").read_text() == source
    assert "| rounding.py | `+ 1 → - 1` | a wrong number | test_sign |" in table([sign, boundary])
    assert "| **no test** |" in table([sign, boundary])


def test_a_wrong_selection_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.mutants", "--only", "nothing like this"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "only must be part of a file or change of the list; got 'nothing like this'\n"
