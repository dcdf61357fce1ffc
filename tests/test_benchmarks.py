"""Benchmarks in their smallest form: each ends well, and its table comes out."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from fsd.data.embedded import CORPUS

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
EVERY = 5
"""Of the embedded corpus, whose members come first, every fifth text is enough for every split."""
ON_CPU = (
    "--device cpu --dtype float32 --shapes 14m --texts 2 --rounds 1 --matmul 64 --trained 2 --scored 2 --no-compiled"
)


class Smallest(NamedTuple):
    """The arguments of a benchmark's smallest form, and a regular expression of a line of its table."""

    arguments: str
    row: str


FORMS: Mapping[str, Smallest] = {
    "blind_audit": Smallest(
        "--data small.jsonl --changes word --shares 1 --permutations 1", r"^word \| 1\.00 \| \d\.\d+ \["
    ),
    "calibrations": Smallest(
        "--runs 1 --calibrated abstracts --read 40 --aside 10 --nonmembers 60 --honest 20 --docstrings 200 --copies 1"
        " --detectors loss --redrawn 1",
        r"^\| abstracts \| 1 \| \d, \d \| 20 \| ",
    ),
    "corpus_fpr": Smallest(
        "--data small.jsonl --splits 2 --permutations 19 --kinds power --sizes 10", r"^\| 10 members \| \d of 2 \|"
    ),
    "edited_texts": Smallest(
        "--members 20 --capital-texts 4 --edits paraphrased", r"^\| unread, paraphrased \| 20 \| \d\.\d+ \|"
    ),
    "evidence": Smallest("--small --seeds 1", r"^\| kernel divergence \| never \(false alarms\) \| 8 \|"),
    "frequencies": Smallest("--megabytes .01 --corpora code", r"^code +fsd +\d"),
    "gpu": Smallest(ON_CPU, r"^experiment, 14m: fine-tuning [\d.]+ s, scoring"),
    "growth": Smallest("--sizes 40 --commands near-duplicates", r"^near-duplicates +40 +[\d.]+ s"),
    "kills": Smallest(
        "--commands frequencies --moments counting --signals KILL",
        r"^\| frequencies \| counting \| SIGKILL \| -9 \| none \| exit 0 \| equal \| nothing \|",
    ),
    "mutants": Smallest("--only SPLIT).sum()", r"^1 of 1 changes are noticed"),
    "own_texts": Smallest(
        "--model embedded-twin --read 30 --aside 5 --nonmembers 60 --guests 6 --honest 24 --temperatures .7"
        " --audit-temperatures .7 --detectors loss --audit loss --learning-rate 2e-3",
        r"^\| audit, loss\.calibrated \| temperature 0\.7 \| 3 among 21 \| 6 \| ",
    ),
    "pairs": Smallest("--shapes 14m --texts 2 --rounds 1", r"^pair +\d"),
    "power": Smallest("--data-sets 5 --statements 2", r"^\| exact test, 20 documents of 20 variants \| 1.1 \| "),
    "real_model": Smallest("--model embedded-twin --texts 32 --learning-rate 1e-3 --dry-run", r"^texts +16 member"),
    "run_profile": Smallest("--texts 2", r"^all \| [\d,]+ \|"),
    "scoring": Smallest("--shapes 14m --texts 2 --rounds 1", r"^textbook +\d"),
    "screens": Smallest("frequencies --columns 80", r"^\| `fsd frequencies .*` \| \d+ \|"),
    "second_reference": Smallest(
        "--model embedded-twin --corpora wikipedia --seeds 1 --references plain 1 --compared 12 --tuning 20"
        " --calibrating 20 --learning-rate 1e-3",
        r"^plain\+1 +unread_z 20 +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$",
    ),
    "shards kills": Smallest("--texts 40 --rows 10 --kills 1", r"^5 files, 0 differ, 0 are missing"),
    "shards large": Smallest("--size 3e6", r"^0\.00 GB, \d+ shards: cut in"),
    "shards many": Smallest(
        "--texts 2400 --rows 30 --words 10",
        r"^2,400 rows, 2,400 texts of 2,400\n8 of 8 shards equal those of one process, every number bitwise",
    ),
    "shards throughput": Smallest(
        "--texts 40 --rows 10 --rounds 1", r"^2 workers: speed against no engine in the same"
    ),
    "tasks": Smallest(
        "--data abstracts=small.jsonl again=small.jsonl:text --model embedded --texts 16 --words 20 --epochs 1",
        r"^ *again +",
    ),
    "whole_run": Smallest(
        f"--trees {BENCHMARKS.parent} '--run=--detectors loss --placebo none --epochs 1 --audit-repeats 1'",
        r"\| warm \| [\d.]+ \| [\d.]+ \|",
    ),
    "tuning": Smallest("--texts 20 --trials 2 --workers 1", r"^ +journal +surp +1 +\d"),
    "verdict_mixtures": Smallest("--smallest --reads abstracts:0 --mixtures 1", r"^\| targets of 1 sources \| 8 \|"),
}
"""Benchmark, with the part of it that is run, → its smallest form."""
NEEDED = {
    "tasks": ("lm_eval", "lm-eval"),
    "shards kills": ("ray", "ray"),
    "shards many": ("ray", "ray"),
    "shards throughput": ("ray", "ray"),
}
"""Benchmark → the module that it needs, and its extra."""


def run(name: str, arguments: str, root: Path, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A benchmark on one thread, in a folder of its own."""
    own = {"PYTHONPATH": str(root), "FSD_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", f"benchmarks.{name}", *shlex.split(arguments)]
    environment = {**os.environ, **own}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_benchmark_is_run_by_a_test() -> None:
    modules = {path.stem for path in BENCHMARKS.glob("*.py")}
    packages = {path.parent.name for path in BENCHMARKS.glob("*/__main__.py")}
    assert modules | packages == {name.split()[0] for name in FORMS}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FORMS)
def test_the_smallest_form_ends_with_its_table(name: str, root: Path, tmp_path: Path) -> None:
    if name in NEEDED:
        module, extra = NEEDED[name]
        pytest.importorskip(module, reason=f"the extra {extra} is not installed")
    lines = CORPUS.read_text(encoding="utf-8").splitlines()[::EVERY]
    (tmp_path / "small.jsonl").write_text("\n".join(lines), encoding="utf-8")
    module, *part = name.split()
    done = run(module, " ".join([*part, FORMS[name].arguments]), root, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(FORMS[name].row, done.stdout, re.MULTILINE), done.stdout


@pytest.mark.slow
def test_without_a_card_the_benchmark_of_cards_refuses_in_one_line(root: Path, tmp_path: Path) -> None:
    done = run("gpu", "", root, tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert done.stderr == "no GPU here: this benchmark needs one that torch can use\n"
