"""Dry runs: the numbers of what would be done, and nothing done."""

import json
import os
import re
import runpy
import sys

import pytest

from extensions.study.pretrain import CHARACTERS
from extensions.study.pretrain import announced as of_pretraining
from fsd import tracking
from fsd.config import AdapterConfig, ModelConfig, Recipe
from fsd.data.embedded import corpus
from fsd.evaluation.findings import Finding
from fsd.models.language_model import load_tokenizer, token_ids
from fsd.net.hub import model_size
from fsd.reporting.report import Report
from pipelines.command.commands import commands
from pipelines.command.deliver import show
from pipelines.command.job import Job, byte_size

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")


@pytest.fixture
def plan(tmp_path, make_rows, prose, tiny, other, monkeypatch, capsys, values):
    """Runs a command line with --dry-run --json, and returns its rows as people read them."""
    monkeypatch.chdir(tmp_path)
    rows = make_rows(60, seed=0)
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "book.jsonl").write_text(json.dumps({"text": prose(2, 400)}) + "\n")
    (tmp_path / "book.txt").write_text(prose(1, 400))
    monkeypatch.setattr(tracking.store, "open_store", lambda: pytest.fail("the store was opened"))
    monkeypatch.setattr("fsd.models.language_model.load", lambda *_, **__: pytest.fail("a model was loaded"))
    before = set(tmp_path.rglob("*"))
    plans = []
    make = Job.plan
    monkeypatch.setattr(Job, "plan", lambda self: plans.append(make(self)) or plans[-1])

    def run(command: str, *arguments: str) -> dict[str, str]:
        module = commands()[command].module
        models = {"TINY": str(tiny), "OTHER": str(other)}
        given = [models.get(argument, argument) for argument in arguments]
        monkeypatch.setattr(sys, "argv", [f"fsd {command}", *given, "--dry-run", "--json"])
        runpy.run_module(module, run_name="__main__")
        assert set(tmp_path.rglob("*")) == before
        document = json.loads(capsys.readouterr().out)
        values.update({row["what"]: row["value"] for row in document["tables"]["plan"]})
        return dict(plans[-1].facts)

    return run


@pytest.fixture
def values():
    """The values of the dry run, as `--json` has them."""
    return {}


def strings(value):
    """All strings within a value."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in strings(part)]


def test_the_main_job(plan, values):
    rows = plan(
        "run", "--data", "data.jsonl", "--model", "TINY", "--detectors", "loss,min_k,lowercase", "--epochs", "2",
        "--batch-size", "4",
    )  # fmt: skip
    sizes = dict(reversed(part.split()) for part in rows["texts"].partition(": ")[2].split(", "))
    scored, unseen = int(sizes["validation"]) + int(sizes["test"]), int(sizes["unseen"])

    assert sum(map(int, sizes.values())) == 60
    assert rows["forward passes"] == f"{4 * scored:,} texts ({2 * scored} by base, {2 * scored} by tuned)"
    assert int(rows["training steps"]) == 2 * -(-unseen // 4)
    assert "parameters" in rows["model"]
    tokens = re.fullmatch(r"about (\S+) in scoring, (\S+) in training; (\S+) in the texts to score", rows["tokens"])
    assert tokens
    computed, trained, read = (int(number.replace(",", "")) for number in tokens.groups())
    assert computed == pytest.approx(4 * read, abs=1)
    assert trained > 0
    assert rows["writes"] == "a registered adapter, a run of the experiment fsd-arxiv"
    assert values["forward passes"] == {"base": 2 * scored, "tuned": 2 * scored}
    assert values["training steps"] == 2 * -(-unseen // 4)
    assert values["texts"] == {"files": ["data.jsonl"], "texts": 60} | {name: int(size) for name, size in sizes.items()}
    assert values["tokens"] == {"scoring": computed, "training": trained, "texts": read}
    assert values["writes"] == ["a registered adapter", {"experiment": "fsd-arxiv"}]
    assert values["memory"]["low_bytes"] < values["memory"]["high_bytes"]
    assert values["model"]["bytes"] > values["model"]["parameters"] > 1000


@pytest.mark.parametrize(
    ("module", "arguments", "row", "value"),
    [
        ("score", "--data data.jsonl --detectors loss --out out.csv", "forward passes", "60 texts (60 by base)"),
        ("tune", "--data data.jsonl --detectors min_k --validation 0.4", "forward passes", "texts ("),
        ("extract", "book.txt --prefix 9 --suffix 9", "forward passes", "by base)"),
        (
            "adapter-audit",
            "--data data.jsonl --tuned OTHER --detectors loss",
            "forward passes",
            "120 texts (60 by base",
        ),
        ("contamination", "data.jsonl --detectors loss", "forward passes", "1,200 texts (1,200 by base)"),
        ("study", "fsd-t6 --data data.jsonl", "forward passes", "by tuned)"),
        ("collect", "--domain arxiv --limit 50 --after 2024-01-01", "non-members", "up to 50 texts, after 2024-01-01"),
        ("collect", "--domain arxiv --limit 5 --after 2024-01-01 --before 2023-01-01", "members", "before 2023-01-01"),
        (
            "pretrain",
            "--members data.jsonl --background book.jsonl --out m --passes 2",
            "training steps",
            "4 of 16 tex",
        ),
        ("pretrain", "--members data.jsonl --background book.jsonl --out m", "tokens", "to train on"),
        ("frequencies", "--corpus data.jsonl --out t.npz --limit 9", "at most", "9 documents"),
        ("frequencies", "--corpus data.jsonl hf://datasets/a/b/c.jsonl --out t.npz", "corpus", "c.jsonl"),
        (
            "canary make",
            "--data data.jsonl --out c --kind digits --variants 20 --alpha .05",
            "documents",
            "60 texts in",
        ),
    ],
)
def test_other_commands(module, arguments, row, value, plan, values):
    scores = row == "forward passes"
    rows = plan(module, *arguments.split(), *(["--model", "TINY"] if scores else []))

    assert value in rows[row]
    assert not scores or "parameters" in rows["model"]
    # Programs get numbers; no number stands before a word.
    assert not [text for text in strings(values) if re.search(r"\d[\d,.]* [a-z]", text)]


def test_a_plan_shows_no_credentials():
    facts = dict(Job(lambda: None, {"fine-tuned model": "http://u:pw@h"}).plan().facts)
    assert facts["fine-tuned model"] == "http://***@h"


def test_what_would_be_downloaded_is_named(plan, monkeypatch):
    monkeypatch.setattr("fsd.net.hub.hub_reachable", lambda: True)
    rows = plan("run", "--data", "wikimia:64", "--model", "nobody/nothing", "--placebo", "none")

    assert rows["texts"] == "wikimia:64: downloaded, if it is not in the cache"
    assert rows["model"] == "nobody/nothing: not on this machine, to be downloaded; its size is known after that"
    assert rows["forward passes"] == "unknown before the download"


def test_steps_and_passes_of_all_rounds_by_hand():
    """Nine texts are three batches of up to four; twice in each of five rounds."""
    training, texts = AdapterConfig(batch_size=4, epochs=2), ["A text."] * 9
    plan = Job(
        lambda: None,
        {},
        ModelConfig(),
        texts=texts,
        passes={"base": 7, "tuned": 6},
        trained=texts,
        training=training,
        rounds=5,
    ).plan()
    rows = dict(plan.facts)
    assert rows["training steps"] == "30"
    assert rows["forward passes"] == "65 texts (35 by base, 30 by tuned)"


def test_the_numbers_of_a_study_are_those_of_all_cells_together(plan):
    """The base model alone is the first of five cells, and trains nothing."""
    rows = plan("study", "fsd-fig4")
    base, tuned = map(int, re.findall(r"(\d+) by", rows["forward passes"].replace(",", "")))
    assert int(rows["training steps"].replace(",", "")) > 0
    assert base / 5 == tuned / 4
    assert rows["tokens"].startswith("about ")


def test_a_model_from_scratch_is_announced_as_large_as_it_becomes():
    """By the embedded target, which was pretrained by the default recipe."""
    target, texts = model_size("embedded"), [document.text for document in corpus()]
    tokenizer, _ = load_tokenizer("embedded")
    tokens, characters = sum(map(len, token_ids(tokenizer, texts))), sum(map(len, texts))
    said = of_pretraining(Recipe(), characters / CHARACTERS)
    announced = {name: float(text.split()[1].replace(",", "")) for name, text in said.items()}
    assert announced["model"] == pytest.approx(target.parameters, rel=0.01)
    assert announced["tokens"] == pytest.approx(tokens, rel=0.15)


def test_numbers_of_bytes_in_a_fitting_unit():
    sizes = {1: "1 B", 999: "999 B", 1000: "1 kB", 2.5e6: "2.5 MB", 3e9: "3 GB", 4e12: "4 TB", 5e15: "5e+03 TB"}
    assert {size: byte_size(size) for size in sizes} == sizes


def test_a_closed_output_ends_no_run(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        for _ in range(2):
            show(Report(title="Is it?", findings=[Finding("a line")]))
            show(Report(headline="a line"))
