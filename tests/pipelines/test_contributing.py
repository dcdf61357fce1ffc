"""The example of CONTRIBUTING.md: a command is its settings, prepare, run and its sentences."""

import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsd import tracking


@pytest.fixture
def example(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_rows: Callable[..., Any]) -> Callable:
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Add a command")[1]
    (code,) = re.findall(r"^```python\n(.*?)^```", text.split("\n## ")[0], re.M | re.S)
    monkeypatch.chdir(tmp_path)
    Path("lengths.py").write_text(code, encoding="utf-8")
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in make_rows(30, seed=0)), encoding="utf-8")

    def run(*flags: str) -> None:
        monkeypatch.setattr(sys, "argv", ["fsd lengths", "--data", "data.jsonl", *flags])
        runpy.run_path("lengths.py", run_name="__main__")

    return run


def test_the_example_is_60_lines_of_code(example: Callable, root: Path) -> None:
    lines = Path("lengths.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 60


def test_the_example_runs_with_all_that_a_command_has(
    example: Callable, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example("--model", str(tiny), "--dry-run")
    assert "30 texts in data.jsonl" in capsys.readouterr().out
    assert not Path("mlruns").exists()
    example("--model", str(tiny), "--json", "--name", "mine")
    document = json.loads(capsys.readouterr().out)
    (stored,) = tracking.find_runs("fsd-lengths")
    assert document["headline"].startswith("30 texts have ")
    assert len(document["tables"]["longest"]) == 10
    assert document["run"]["id"] == stored.id
    assert stored.metrics["tokens/longest"] == document["tables"]["longest"][0]["tokens"]
    assert "How long are these texts?" in tracking.fetch_artifact(stored.id, "report.html").read_text(encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        example("--model", "./nowhere")
    assert ended.value.code == 2
