"""Command lines that nobody thought of, and what counts as a finding."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.hostile import __main__ as hostile
from benchmarks.hostile import odd, scenes


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_drawn_command_lines(root: Path, tmp_path: Path) -> None:
    """One seed, so that a tree which passed does not fail the next day; `python -m benchmarks.hostile` draws others."""
    seed = "20261124"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.hostile", "--count", "120", "--seed", seed],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def refusal(folder: Path, text: str) -> None:
    (folder / "log.txt").write_text(text)


ENDS: list[tuple[str, int | None, Callable[[Path], object]]] = [
    ("", 0, lambda folder: (folder / "out.csv").touch()),
    ("", 2, lambda folder: refusal(folder, "[1/3] settings and texts\nerror: x must hold\n")),
    ("lines", 2, lambda folder: refusal(folder, "error: x must hold\nand y\n")),
    ("lines", 2, lambda folder: refusal(folder, "")),
    ("traceback", 1, lambda folder: refusal(folder, "Traceback (most recent call last):\nValueError: x\n")),
    ("exit code", -11, lambda _: None),
    ("hang", None, lambda folder: (folder / "hang.txt").write_text('  File "/x/y/z.py", line 3 in read\n')),
    ("secret", 2, lambda folder: refusal(folder, f"error: {hostile.SECRET} must hold\n")),
    ("files", 0, lambda folder: (folder / "elsewhere").write_text("x")),
    ("files", 0, lambda folder: (folder / "data.jsonl").write_text("changed")),
    ("files", 0, lambda folder: (folder / "temporary" / "x").mkdir()),
    ("files", 2, lambda folder: (refusal(folder, "error: x must hold\n"), (folder / "out.csv").write_text("x"))),
]


@pytest.mark.parametrize(("kind", "code", "end"), ENDS)
def test_what_counts_as_a_finding(kind: str, code: int | None, end: Callable[[Path], object], tmp_path: Path) -> None:
    folder = tmp_path / "case"
    (folder / "temporary").mkdir(parents=True)
    for name in ("log.txt", "printed.txt", "hang.txt", "data.jsonl"):
        (folder / name).touch()
    before = hostile.snapshot(tmp_path)
    end(folder)
    found = hostile.findings(hostile.Case("score", ["--out", "out.csv"], {}), code, folder, before)
    assert list(found) == [kind] * bool(kind)


def test_an_answer_that_cannot_be_right_is_noticed(tmp_path: Path) -> None:
    case = hostile.Case("score", ["--data", "data.jsonl", "--out", "out.csv", "--model", "model"])
    (tmp_path / "data.jsonl").write_text('{"text": "a b"}\n{"text": "c, d"}\n')
    (tmp_path / "expected.csv").write_text('text,loss.base\na b,-1.5\n"c, d",-2\n')
    for name in ("log.txt", "printed.txt"):
        (tmp_path / name).touch()
    for table, wrong in (
        ('text,loss.base\na b,-1.5\n"c, d",-2\n', ""),
        ("text,loss.base\na b,-1.5\n", "2 rows in, 1 out"),
        ("text,loss.base\na b,-1.5\nc,-2\n", "a text that nobody gave: 'c'"),
        ('text,loss.base\na b,-1.5\n"c, d",-3\n', "has the score -3.0, not -2.0"),
        ('text,loss.base\na b,nan\n"c, d",-2\n', "the score of 'a b' is 'nan'"),
    ):
        (tmp_path / "out.csv").write_text(table)
        assert wrong in hostile.wrong_answer(case, tmp_path)
        assert bool(wrong) == bool(hostile.wrong_answer(case, tmp_path))
    (tmp_path / "out.csv").write_text("text,loss.base\na b,-1.5\n")
    (tmp_path / "log.txt").write_text("1 left out: blank text")
    assert hostile.wrong_answer(case, tmp_path) == ""
    (tmp_path / "printed.txt").write_text('{"auc": NaN}')
    assert "NaN is no JSON" in hostile.wrong_answer(case._replace(words=[*case.words, "--json"]), tmp_path)


@pytest.mark.parametrize(
    "name", sorted(scenes.SCENES.keys() - {"bombs", "stores"})
)  # they make large files, or need a store
def test_a_scene_makes_its_files(name: str, tmp_path: Path) -> None:
    rows = [{"text": f"a b {number}", "label": number % 2, "group": f"g{number}"} for number in range(9)]
    for number in range(4):
        folder = tmp_path / str(number)
        (folder / "canaries").mkdir(parents=True)
        (folder / "canaries" / "sealed.json").write_text('{"a": [{"b": 1}], "c": "x"}')
        (folder / "data.csv").write_text("text,label\na b,1\n")
        for file in ("data.jsonl", "new.jsonl"):
            (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows))
        case = scenes.SCENES[name](random.Random(number), folder)
        assert case.command in hostile.BASE
        assert not case.circumstance or case.circumstance in odd.CIRCUMSTANCES


def test_every_command_has_its_flags() -> None:
    flags = hostile.settings()
    assert [flag.name for flag in flags["score"] if flag.several] == ["data", "settings", "tags"]
    assert [flag.name for flag in flags["detect"] if flag.positional] == ["files"]
    (dtype,) = (flag for flag in flags["run"] if flag.name == "dtype")
    assert dtype.choices == ("auto", "float32", "bfloat16", "float16")
