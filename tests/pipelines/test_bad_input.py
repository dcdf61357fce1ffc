"""Bad input to every command: exit code 2, one line that names what must hold, no traceback, nothing written.

The cases are the rows of docs/bad_input.tsv. To add one, leave its message empty; the messages are recorded by

    python -m pytest tests/pipelines/test_bad_input.py -n 0 --regenerate
"""

import csv
import gzip
import importlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import __main__ as program

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # runpy of what is imported

TABLE = Path(__file__).parents[2] / "docs" / "bad_input.tsv"
BASE = {
    "run": "--data {good.jsonl} --model {tiny} --placebo none",
    "score": "--data {good.jsonl} --model {tiny} --out out.csv --detectors loss",
    "detect": "{unlabelled.jsonl} --adapter nowhere",
    "tune": "--data {good.jsonl} --model {tiny} --placebo none --validation 0.4 --storage journal:trials.log",
    "study": "",
    "collect": "--domain arxiv --limit 5 --after 2024-01-01",
    "pretrain": "--members {good.jsonl} --background {more.jsonl} --out out --layers 1 --hidden-size 32 --passes 1",
    "frequencies": "--corpus {good.jsonl} --out t.npz --model {tiny}",
    "overlap": "{good.jsonl} {more.jsonl}",
    "canary make": "--data {good.jsonl} --out out",
    "canary test": "{empty_folder} --model {tiny}",
    "extract": "{book.txt} --model {tiny} --prefix 9 --suffix 9",
    "adapter-audit": "--data {good.jsonl} --model {tiny} --adapter nowhere",
    "contamination": "{unlabelled.jsonl} --model {tiny}",
    "bundle": "none",
    "verify": "{bundle}",
}
"""Arguments of a command beside those of a case, which replace them."""
FORM = re.compile(
    r"error: .*\b(must|may|cannot be computed|Unrecognized options|Missing value|invalid choice|too few)\b.*\n"
)
LEFT = {"tune": {"trials.log"}}
"""What a command may leave: the storage of the trials, which is opened, empty, before the model is loaded."""


class Case(NamedTuple):
    """A row of the table: files of the fixture `inputs` stand in braces; … ends a message whose rest is a library's."""

    command: str
    arguments: str
    message: str
    found: str = ""
    """`model`, if the mistake is found after the model is loaded."""

    def __str__(self) -> str:
        return f"{self.command} {self.arguments}"

    def kind(self) -> str:
        """The message without names, numbers and what came."""
        return re.sub(r"'[^']*'|[\w./-]*\.\w+|\d+", "", self.message.partition(";")[0])

    def expects(self, message: str) -> bool:
        return message.startswith(self.message[:-1]) if self.message.endswith("…") else message == self.message

    def words(self, inputs: Path, tiny: Path) -> list[str]:
        """The arguments after `fsd`."""
        given = set(re.findall(r"--[a-z-]+", self.arguments))
        base = BASE.get(self.command, "")
        flags = [f"{flag} {value}" for flag, value in re.findall(r"(--[a-z-]+) (\S+)", base) if flag not in given]
        positional = base.partition(" --")[0] if self.arguments.startswith("--") and not base.startswith("--") else ""
        line = " ".join([self.command, positional, *flags, self.arguments])
        places = {"tiny": tiny, "inputs": inputs}
        return [
            re.sub(r"\{(.+?)\}", lambda name: str(places.get(name[1], inputs / name[1])), word)
            for word in shlex.split(line)
        ]


def _lines(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


DEEP = 100_000
FILES: dict[str, bytes] = {
    "binary.jsonl": bytes(range(256)) * 8,
    "zeros.jsonl": bytes(4096),
    "utf16.jsonl": '{"text": "a"}\n'.encode("utf-16"),
    "latin.csv": "text,label\ncafé au lait,1\n".encode("latin-1"),
    "utf16.csv": "text,label\na b c,1\n".encode("utf-16"),
    "deep.jsonl": b"[" * DEEP,
    "deep_row.jsonl": b'{"text": "a b", "label": 1, "x": ' + b"[" * DEEP,
    "half.jsonl.gz": gzip.compress(b'{"text": "a b"}\n' * 900)[:40],
    "packed.jsonl": gzip.compress(b'{"text": "a b"}\n'),
    "latin.yaml": "domain: \xe9\n".encode("latin-1"),
}
"""Files that are wrong in themselves and are no short texts; bad_files.tsv has the others."""
_HASH = "0" * 64
_MANIFEST = {
    "version": 2,
    "made_by": "fsd",
    "run": "r",
    "command": "run",
    "headline": "",
    "weights": [{"role": "model", "name": "nowhere/model", "files": {}}],
    "texts": True,
    "text_hashes": {},
    "files": [],
    "left_out": [],
}
BUNDLES = {
    "bundle": _lines(_MANIFEST),
    "later_bundle": _lines(_MANIFEST | {"version": 3}),
    "bundle_without_texts": _lines(_MANIFEST | {"texts": False}),
    "prose_bundle": b"no manifest",
}
"""Folders that hold a manifest of a bundle alone."""


def _rows(table: Path) -> Iterator[list[str]]:
    """The rows of a table without its heading."""
    lines = table.read_text(encoding="utf-8").splitlines()[1:]
    yield from csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, make_rows: Callable, tiny: Path) -> Path:
    """A folder of bad files, and of good ones that the other arguments of a command need."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    for name, text in _rows(Path(__file__).with_name("bad_files.tsv")):
        (folder / name).write_bytes(json.loads(text).encode())
    rows = make_rows(60, seed=0)
    sides = {
        "good": rows,
        "more": make_rows(20, seed=1),
        "members": [row for row in rows if row["label"]],
        "nonmembers": [row for row in rows if not row["label"]],
        "few": rows[:4],
        "one": rows[:1],
        "one_group": [{**row, "group": "g"} for row in rows],
        "unlabelled": [{"text": row["text"]} for row in rows],
        "others": [{"text": row["text"]} for row in make_rows(20, seed=2)],
        "partly": [*rows, {"text": "one two three"}],
        "both_sides": [*rows, {**rows[0], "label": 1 - int(rows[0]["label"])}],
        "judged_twice": [*rows, {"text": rows[0]["text"]}],
        "undated": [{name: value for name, value in row.items() if name != "date"} for row in rows],
        "late": [{**row, "date": f"{2021 - int(row['label'])}-01-01", "period": "then"} for row in rows],
        "early": [{**row, "period": "then" if row["label"] else "long ago"} for row in rows],
        "some_periods": [*rows[:30], *({**row, "period": "then"} for row in rows[30:])],
        "one_contemporary": [{**row, "period": "then" if row["label"] or row is rows[0] else "now"} for row in rows],
        "same_text": [{**row, "text": "one two three"} for row in rows],
    }
    for name, values in sides.items():
        (folder / f"{name}.jsonl").write_bytes(_lines(*values))
    (folder / "book.txt").write_text("one two three four five " * 60)
    (folder / "blank.txt").write_text(" \n")
    (folder / "short.txt").write_text("one two")
    (folder / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (folder / "folder.jsonl").mkdir()
    (folder / "empty_folder").mkdir()
    shutil.copytree(tiny, folder / "copy_of_tiny")
    for name, content in BUNDLES.items():
        (folder / name).mkdir()
        (folder / name / "manifest.json").write_bytes(content)
    (folder / "loop.jsonl").symlink_to("loop.jsonl")
    (folder / "dangling.jsonl").symlink_to("nothing")
    (folder / "unreadable.jsonl").symlink_to("/proc/self/mem")
    (folder / "null.csv").symlink_to("/dev/null")
    for ending in ("jsonl", "txt", "yaml"):
        os.mkfifo(folder / f"pipe.{ending}")
        (folder / f"zero.{ending}").symlink_to("/dev/zero")
    (folder / "large.jsonl").touch()
    os.truncate(folder / "large.jsonl", 10 * 2**30)
    (folder / "dir.npz").mkdir()
    pq.write_table(pa.table({"words": ["a b"], "label": [1]}), folder / "no_text.parquet")
    pq.write_table(pa.table({"text": pa.array([None], pa.string()), "label": [1]}), folder / "text_null.parquet")
    pq.write_table(pa.table({"text": [["a"]], "label": [1]}), folder / "text_list.parquet")
    pq.write_table(pa.table({"text": ["a b"], "label": ["x"]}), folder / "label_word.parquet")
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), folder / "no_rows.parquet")
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An empty tracking store, since making one takes two seconds."""
    from fsd import tracking

    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/store.db")
        return tracking.open_store().uri


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[Case]]:
    """The rows that were run, with the messages that came; --regenerate writes them."""
    rows: list[Case] = []
    yield rows
    if request.config.getoption("--regenerate"):
        lines = ["command\tinput\tmessage\tfound after loading", *("\t".join(row) for row in rows)]
        TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for every model that is loaded; training, scoring, a tracked run or a connection fail the test."""
    from transformers import AutoModelForCausalLM

    from fsd import tracking
    from fsd.models import finetuning, pretraining
    from fsd.scoring import deviation

    importlib.import_module("pipelines.experiment.experiment")  # first imported below, it would keep what is patched

    def fails(what: str) -> Callable[..., None]:
        return lambda *_, **__: pytest.fail(f"{what} before the mistake was found")

    for owner, name in (
        (finetuning, "finetune"),
        (pretraining, "_train"),
        (deviation.ViewStatistics, "compute"),
        (tracking, "run"),
        (socket.socket, "connect"),
    ):
        monkeypatch.setattr(owner, name, fails(name))
    models: list[str] = []
    load = AutoModelForCausalLM.from_pretrained

    def spy(*arguments: Any, **options: Any) -> Any:
        model = load(*arguments, **options)
        models.append("model")
        return model

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", spy)
    return models


def cases() -> Iterator[Any]:
    """All rows of the table; those of a kind that an earlier row shows are slow."""
    shown: set[str] = set()
    for row in _rows(TABLE):
        case = Case(*row)
        yield pytest.param(case, marks=[pytest.mark.slow] * (case.kind() in shown), id=str(case))
        shown.add(case.kind())


CASES = list(cases())


@pytest.fixture(autouse=True)
def without_quantization(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package that two lines ask for is not installed, wherever the tests run."""
    from fsd.models import language_model

    find = language_model.find_spec
    monkeypatch.setattr(language_model, "find_spec", lambda name: None if name == "bitsandbytes" else find(name))


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_line_and_exit_2(
    case, inputs, tiny, store, loaded, table, tmp_path, monkeypatch, capsys
) -> None:
    before = sorted(inputs.iterdir())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setattr(sys, "argv", ["fsd", *case.words(inputs, tiny)])
    with pytest.raises(SystemExit) as ended:
        program.main()
    message = capsys.readouterr().err
    assert ended.value.code == 2
    assert FORM.fullmatch(message)
    assert {path.name for path in tmp_path.iterdir()} <= LEFT.get(case.command, set())
    assert sorted(inputs.iterdir()) == before
    message = message.removeprefix("error: ").rstrip("\n")
    message = re.sub(rf"{inputs}/|{tiny.parent}/|sqlite:\S+", "", message)
    now = case._replace(message=case.message if case.expects(message) else message, found="".join(loaded[:1]))
    table.append(now)
    assert now == case


DURING = {
    "overlap {good.jsonl} {no_rows.parquet}",
    "overlap {good.jsonl} {short.txt}",
    "overlap {short.txt} {good.jsonl}",
    "contamination --protocol nowhere.json",
    "frequencies --column words",
}
"""What is found while a corpus is read, which a dry run does not; and a protocol, which a dry run writes."""


def is_dry(parameters: Any) -> bool:
    """Whether a row is the first of its kind, and a dry run finds the mistake."""
    case = str(parameters.values[0])
    of_corpus = case.startswith("frequencies --corpus {")
    return not parameters.marks and case not in DURING and not of_corpus


DRY = (
    "run --adapter nowhere|run --placebo ./nowhere|run --reference-model ./nowhere --detectors reference|"
    "run --frequencies {good.jsonl} --detectors dc_pdd|run --target-modules nothing|detect --adapter nowhere|"
    "tune --storage nowhere|score --model api:gpt|frequencies --limit 0|collect --domain local --options path=nowhere|"
    "pretrain --tokenizer ./nowhere|study fsd-t6 --epochs 0|study fsd-t6 --data wikimia:33|overlap --column question|"
    "run --model api:gpt|score --neighbours 0 --detectors neighbour|extract --samples 0"
)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case.values[0], marks=[pytest.mark.slow] * (str(case.values[0]) not in DRY.split("|")), id=case.id)
        for case in CASES
        if is_dry(case)
    ],
)
def test_a_dry_run_accepts_nothing_that_the_command_refuses(
    case, inputs, tiny, store, loaded, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setattr(sys, "argv", ["fsd", *case.words(inputs, tiny), "--dry-run"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert FORM.fullmatch(capsys.readouterr().err)
    assert not loaded
    assert list(tmp_path.iterdir()) == []


TRACKED = ["run", "score", "tune", "extract", "contamination", "study fsd-t6"]
OF_A_VERSION = [(command, "--json --adapter models:/fsd-arxiv/1") for command in ("detect", "adapter-audit")]


@pytest.mark.parametrize(("command", "flags"), [*((command, "--json") for command in TRACKED), *OF_A_VERSION])
def test_a_store_that_cannot_be_opened_is_refused_before_the_model_is_loaded(
    command, flags, inputs, tiny, loaded, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{inputs}/good.jsonl")
    monkeypatch.setattr(sys, "argv", ["fsd", *Case(command, flags, "").words(inputs, tiny)])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert not loaded
    assert re.fullmatch(
        r"error: the tracking store must be a database or server of MLflow .*\n", capsys.readouterr().err
    )


SHELL = ["run --data nowhere.jsonl", "frequencies --corpus {deep.jsonl}"]


@pytest.mark.slow
@pytest.mark.parametrize("line", SHELL)
def test_the_same_on_the_shell(line: str, inputs: Path, tiny: Path, root: Path, tmp_path: Path) -> None:
    words = Case(*line.split(" ", 1), "").words(inputs, tiny)
    answer = subprocess.run(
        [sys.executable, "-m", "pipelines", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=120,
        check=False,
    )
    assert answer.returncode == 2, answer.stderr
    assert FORM.fullmatch(answer.stderr)
    assert not list(tmp_path.iterdir())


def test_the_table_has_cases_of_every_command() -> None:
    rows = [str(parameters.values[0]) for parameters in CASES]
    assert len(set(rows)) == len(rows)
    assert {parameters.values[0].command for parameters in CASES} == set(BASE)
