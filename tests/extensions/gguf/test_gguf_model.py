"""Commands take a GGUF file as they take a folder, and say which."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fsd.tracking import fetch_artifact, find_runs

pytestmark = pytest.mark.slow
ALL = "--audit-repeats 1 --placebo none --epochs 1 --batch-size 4"


def test_commands_take_a_gguf_file(
    make_gguf: Callable[..., Path],
    make_rows: Callable,
    run_command: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    make_gguf(tmp_path / "tiny.gguf")
    model = "--model tiny.gguf --device cpu"
    for name, count, seed in (("data", 200, 0), ("new", 20, 1)):
        rows = make_rows(count, seed)
        texts = [{"text": row["text"]} for row in rows] if name == "new" else rows
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
        (tmp_path / f"{name}.txt").write_text(" ".join(row["text"] for row in rows))
    assert "tiny.gguf" in run_command(
        f"run --data data.jsonl {model} --validation .4 --detectors loss,min_k {ALL} --dry-run"
    )
    assert not list(Path(tmp_path).rglob("model.safetensors"))
    run_command(f"run --data data.jsonl {model} --validation .4 --detectors loss,min_k --domain books {ALL}")
    (run,) = find_runs("fsd-books")
    assert run.tags["base_revision"].startswith("Q4_1, sha256 ")
    assert run.tags["base_revision"] in fetch_artifact(run.id, "report.html").read_text()
    run_command("detect new.jsonl --adapter models:/fsd-books/1 --fpr .1 --device cpu --same-source")
    run_command(f"score --data data.jsonl {model} --detectors loss --out scores.csv")
    run_command(f"extract new.txt --control data.txt {model} --prefix 10 --suffix 10")
