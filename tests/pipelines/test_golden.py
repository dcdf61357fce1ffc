"""What every command prints with `--json` on a tiny random model, as recorded in tests/golden/json.

    python -m pytest tests/pipelines/test_golden.py --regenerate

records it anew. Look at every difference before it is committed: what changes here changes for users.
"""

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parents[1] / "golden" / "json"
MAKE = "canary make --data new.jsonl --words words.jsonl --out canaries --variants 20 --alpha .05 --seed s"
LINES = {
    "score": "score --data data.jsonl {model} --out scores.csv",
    "detect": "detect new.jsonl --adapter models:/fsd-arxiv@champion --fpr .1 --device cpu --out verdicts.csv",
    "tune": "tune --data data.jsonl {model} --detectors min_k --sampler random --trials 4 --folds 2 "
    "--repeats 1 --validation .4 --epochs 1 --placebo none --audit-repeats 1 --storage journal:trials.log",
    "collect": "collect --domain local --options path=dated.jsonl --limit 5 --after 2024-03-02 --min-words 5",
    "pretrain": "pretrain --members new.jsonl --background data.jsonl --out model --layers 1 --hidden-size 16 "
    "--heads 2 --vocabulary 300 --context 48 --passes 1 --exposures 1 --device cpu",
    "frequencies": "frequencies --corpus data.jsonl --out table.npz --model {tiny}",
    "canary make": MAKE,
    "canary test": f"{MAKE} && canary test canaries {{model}} --alpha .05",
    "extract": "extract new.txt --control known.txt {model} --prefix 10 --suffix 10 --top-k 40",
    "overlap": "overlap new.jsonl data.jsonl --n 3 --out overlap.parquet",
    "contamination": "contamination new.jsonl --known known.jsonl --sets 9 {model} --detectors loss",
    "adapter-audit": "adapter-audit --data audit.jsonl {model} --adapter {adapter} --fpr .1",
    "study": "study fsd-t3 --data data.jsonl {model} --epochs 1",
}
"""The command lines, which begin in a copy of the finished run; what that printed is compared too."""


@pytest.fixture
def folder(finished_run: Any, make_rows: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished run with the other inputs of the command lines, as working folder."""
    folder = tmp_path / "run"
    shutil.copytree(finished_run.folder, folder)
    monkeypatch.chdir(folder)

    def write(name: str, rows: list[dict[str, Any]]) -> None:
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    for name, count, seed in (("new", 20, 1), ("known", 45, 2)):
        texts = [row["text"] for row in make_rows(count, seed)]
        write(f"{name}.jsonl", [{"text": text} for text in texts])
        (folder / f"{name}.txt").write_text(" ".join(texts), encoding="utf-8")
    write("audit.jsonl", [*make_rows(60, 3), *({"text": row["text"]} for row in make_rows(5, 4))])
    dated = enumerate(make_rows(12, 5), 1)
    write("dated.jsonl", [{"text": row["text"], "date": f"2024-{month:02}-01"} for month, row in dated])
    words = ["".join(letters) for letters in product("bdfgklmnprst", "aeiou", "bdfgklmnprst")]
    write("words.jsonl", [{"text": " ".join(words)}])
    return folder


def normal(printed: str, tiny: Path) -> Any:
    """The document without what differs between any two runs: places, ids and ports."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "RUN", printed.replace(f"{tiny.parent}/", ""))
    text = re.sub(r"http://127\.0\.0\.1:\d+", "SERVER", text)
    return json.loads(text, parse_float=lambda number: round(float(number), 9))


def differences(found: Any, golden: Any, place: str = "") -> Iterator[str]:
    """Where two documents differ; two processors round the same training apart by 2e-6."""
    if isinstance(found, dict) and isinstance(golden, dict) and found.keys() == golden.keys():
        for name in golden:
            yield from differences(found[name], golden[name], f"{place}.{name}")
    elif isinstance(found, list) and isinstance(golden, list) and len(found) == len(golden):
        for at, (one, other) in enumerate(zip(found, golden, strict=True)):
            yield from differences(one, other, f"{place}[{at}]")
    elif isinstance(found, float) and isinstance(golden, float):
        if not math.isclose(found, golden, rel_tol=1e-5, abs_tol=1e-6):
            yield f"{place}: {found}, recorded {golden}"
    elif found != golden:
        yield f"{place}: {found!r}, recorded {golden!r}"


def check(name: str, found: Any, *, regenerate: bool) -> None:
    file = GOLDEN / f"{name.replace(' ', '-')}.json"
    if regenerate:
        text = json.dumps(found, indent=1, ensure_ascii=False)
        text = re.sub(r"(?ms)^   \{$.*?^   \}", lambda row: "   " + re.sub(r"\n +", " ", row[0].strip()), text)
        file.parent.mkdir(exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")
    different = list(differences(found, json.loads(file.read_text(encoding="utf-8"))))
    assert not different, "\n".join(different)


LONG = ("contamination", "tune")
"""Commands whose line takes many seconds."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in LINES]
)
def test_a_command_prints_what_was_recorded(name, folder, tiny, run_command, request) -> None:
    (adapter,) = folder.glob("mlruns/*/*/artifacts/adapter")
    for line in LINES[name].split(" && "):
        line = line.format(tiny=tiny, model=f"--model {tiny} --device cpu", adapter=adapter.relative_to(folder))
        printed = run_command(f"{line} --json")
    check(name, normal(printed, tiny), regenerate=request.config.getoption("--regenerate"))


def test_the_main_job_prints_what_was_recorded(finished_run: Any, tiny: Path, request: pytest.FixtureRequest) -> None:
    printed = (finished_run.folder / "printed.json").read_text(encoding="utf-8")
    check("run", normal(printed, tiny), regenerate=request.config.getoption("--regenerate"))
