"""Kill every command at many moments, start it again, and compare its numbers with those of an uninterrupted run.

`python -m benchmarks.kills [--commands run score ...] [--signals KILL TERM]` prints a Markdown table. A moment is the
n-th call of a function, at whose beginning (or end) the process sends the signal to itself. Each command runs in a
process forked from this one, in a folder of its own, on a tiny random model and texts drawn from a seed.
"""

import argparse
import contextlib
import functools
import importlib
import itertools
import json
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
WORDS = "the score of an unseen text moves more than that of a member when models read it again and again".split()  # noqa: SIM905
CREATION = "fsd.tracking.store:_create"
START, END = "fsd.tracking.runs:_start", "fsd.tracking.runs:_end"
STORE = "fsd.scoring.cache:SQLiteStore.save"
STEP, KEEP = "fsd.models.finetuning:_report", "fsd.models.finetuning:_keep"
FORWARD = "fsd.scoring.model_scorer:ModelScorer._forward"
LOG = "fsd.tracking.runs:Run.log"
WRITE = "pipelines.command.output:_write"


@dataclass(frozen=True)
class Moment:
    """The n-th call of a function, `module:name` or `module:class.name`; its end if `after`.

    `file:PATTERN` is the moment when another process has written such a file.
    """

    name: str
    target: str
    call: int = 1
    after: bool = False


@dataclass(frozen=True)
class Command:
    """A command line, the file whose numbers are compared (a pattern), and the moments at which it is killed."""

    arguments: str
    result: str
    moments: Sequence[Moment]
    needs_run: bool = False


MODEL = "--model model --device cpu --cache cache"
TRAINING = "--epochs 3 --batch-size 4 --rank 4"
MAIN = f"{MODEL} {TRAINING} --data data.jsonl --placebo control --validation 0.4 --detectors loss,min_k,min_k_deviation"
COMMANDS = {
    "run": Command(
        MAIN,
        "mlruns/**/scores.parquet",
        [
            Moment("reading the texts", "pipelines.experiment.inputs:load_texts"),
            Moment("loading the model", "pipelines.experiment.experiment:Experiment.open", after=True),
            Moment("creating the store", CREATION),
            Moment("store created", CREATION, after=True),
            Moment("opening the run", START),
            Moment("run opened", START, after=True),
            Moment("first training step", STEP),
            Moment("training step 4", STEP, 4),
            Moment("training step 7", STEP, 7),
            Moment("keeping the training", KEEP),
            Moment("training kept", KEEP, after=True),
            Moment("training finished", "fsd.models.finetuning:finetune", after=True),
            Moment("first forward pass", FORWARD),
            Moment("storing statistics of the base", STORE),
            Moment("statistics of the base stored", STORE, after=True),
            Moment("storing statistics of the tuned model", STORE, 2),
            Moment("training the control model", STEP, 12),
            Moment("scoring by the control model", STORE, 3),
            Moment("judging", "fsd.evaluation.results:compute_results"),
            Moment("logging the scores", LOG),
            Moment("logging the figures", LOG, 4),
            Moment("saving the adapter", "pipelines.experiment.registration:save_adapter"),
            Moment("logging the model", "fsd.tracking.registry:_log_model"),
            Moment("registering the version", "fsd.tracking.registry:_create_version"),
            Moment("version registered", "fsd.tracking.registry:_create_version", after=True),
            Moment("printing the table", "fsd.reporting.report:print_report"),
            Moment("closing the run", END),
            Moment("run closed", END, after=True),
        ],
    ),
    "score": Command(
        f"{MODEL} --data data.jsonl --out scores.parquet --detectors loss,min_k",
        "scores.parquet",
        [
            Moment("first forward pass", FORWARD),
            Moment("statistics stored", STORE, after=True),
            Moment("writing the table", WRITE),
            Moment("table written", WRITE, after=True),
            Moment("opening the run", START),
            Moment("closing the run", END),
        ],
    ),
    "detect": Command(
        "new.jsonl --adapter models:/fsd-arxiv/1 --out verdicts.parquet --report verdicts.html --device cpu --fpr 0.5",
        "verdicts.parquet",
        [
            Moment("loading the classifier", "pipelines.detect.classifier:MembershipClassifier.__init__"),
            Moment("first forward pass", FORWARD),
            Moment("writing the verdicts", WRITE),
            Moment("writing the report", WRITE, 2),
            Moment("logging the verdicts", LOG),
            Moment("closing the run", END),
        ],
        needs_run=True,
    ),
    "tune": Command(
        f"{MAIN} --trials 6 --folds 2 --repeats 1".replace("loss,min_k,", "min_k,"),
        "mlruns/**/settings.json",
        [
            Moment("opening the storage", "fsd.tuning.optuna_study:open_storage", after=True),
            Moment("training step 5", STEP, 5),
            Moment("statistics of the validation texts stored", STORE, 2, after=True),
            Moment("first trial", "fsd.tuning.optuna_study:_run_trial"),
            Moment("trial 8", "fsd.tuning.optuna_study:_run_trial", 8),
            Moment("closing the run", END),
        ],
    ),
    "study": Command(
        f"fsd-t6 --model model --data data.jsonl {TRAINING}",
        "mlruns/**/table.csv",
        [
            Moment("opening the run of the study", START, after=True),
            Moment("training of the second cell", "pipelines.experiment.experiment:Experiment.train", 2),
            Moment("first cell closed", END, after=True),
            Moment("logging the table", LOG, 4),
        ],
    ),
    "study lab": Command(
        "--small --corpora data.jsonl --texts 20 --seeds 1 --paragraphs 100 --workers 1 --cache cache",
        "mlruns/**/results.parquet",
        [
            Moment("shared models trained", "file:cache/lab/models-*/frequencies/"),
            Moment("first cell closed", END, after=True),
            Moment("measuring", "extensions.study.lab.results:measure", 3),
            Moment("closing the run", END, 3),
        ],
    ),
    "canary test": Command(
        "canaries --model model --device cpu --cache cache --alpha .5",
        "mlruns/**/canaries.parquet",
        [
            Moment("first forward pass", FORWARD),
            Moment("statistics stored", STORE, after=True),
            Moment("logging the canaries", LOG, 2),
            Moment("closing the run", END),
        ],
    ),
    "contamination": Command(
        "data.jsonl --model model --device cpu --cache cache --shard 5 --orders 9",
        "mlruns/**/results.json",
        [
            Moment("opening the run", START),
            Moment("first forward pass", FORWARD),
            Moment("statistics stored", STORE, after=True),
            Moment("closing the run", END),
        ],
    ),
    "collect": Command(
        "--domain local --limit 20 --after 2020-06-01 --out texts.jsonl --language any --min-words 5 "
        "--options path=dump.jsonl",
        "texts.jsonl",
        [
            Moment("reading the source", "fsd.collection.domains.local:texts"),
            Moment("searching near-duplicates", "fsd.collection.engine:distinct"),
            Moment("opening the run", START),
            Moment("closing the run", END),
        ],
    ),
    "pretrain": Command(
        "--out made --members data.jsonl --background dump.jsonl --device cpu --hidden-size 16 --layers 1 --heads 1 "
        "--vocabulary 300 --context 64 --passes 1 --exposures 1",
        "made/model.safetensors",
        [
            Moment("pretraining", "fsd.models.pretraining:pretrain"),
            Moment("pretrained", "fsd.models.pretraining:pretrain", after=True),
            Moment("writing the folder", "fsd.scoring.token_counting:count"),
        ],
    ),
    "frequencies": Command(
        "--corpus dump.jsonl --out table.npz",
        "table.npz",
        [
            Moment("counting", "fsd.scoring.token_counting:count"),
            Moment("saving the table", "fsd.scoring.token_frequencies:FrequencyTable.save"),
            Moment("table saved", "fsd.scoring.token_frequencies:FrequencyTable.save", after=True),
        ],
    ),
}


def main() -> None:
    """Kill the commands at their moments, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", nargs="+", default=list(COMMANDS), choices=list(COMMANDS))
    parser.add_argument("--signals", nargs="+", default=["KILL", "TERM"], choices=["KILL", "TERM"])
    parser.add_argument("--moments", nargs="+", default=[], help="names of moments; default: all")
    arguments = parser.parse_args()
    import_libraries()
    print("| command | killed at | signal | exit | run left | second run | numbers | left behind |")
    print("|---|---|---|---:|---|---|---|---|", flush=True)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        prepare(Path(folder) / "template")
        for name in arguments.commands:
            command = COMMANDS[name]
            start = Path(folder) / "template"
            if command.needs_run:
                start = Path(folder) / "with a run"
                if not start.exists():
                    shutil.copytree(Path(folder) / "template", start)
                    assert run("run", COMMANDS["run"].arguments, start) == 0, log(start)
            whole = Path(folder) / f"{name} whole"
            shutil.copytree(start, whole)
            assert run(name, command.arguments, whole) == 0, log(whole)
            for moment in command.moments:
                if arguments.moments and moment.name not in arguments.moments:
                    continue
                for number in (signal.Signals[f"SIG{s}"] for s in arguments.signals):
                    place = Path(folder) / "killed"
                    shutil.copytree(start, place)
                    row = trial(name, command, moment, number, place, whole)
                    bad += row[-3:] != ("exit 0", "equal", "nothing") or "not" in row[3]
                    print(f"| {' | '.join(row)} |", flush=True)
                    shutil.rmtree(place)
    print(f"\n{bad} rows differ from the uninterrupted run or leave something behind")
    sys.exit(bool(bad))


def trial(
    name: str, command: Command, moment: Moment, number: signal.Signals, place: Path, whole: Path
) -> tuple[str, ...]:
    """Kill the command once, start it again, and give a row of the table."""
    code = run(name, command.arguments, place, moment, number)
    expected = -number if number == signal.SIGKILL else 128 + number
    status = ", ".join(sorted(statuses(place) - {"FINISHED"})) or "none"
    again = run(name, command.arguments, place)
    finished = "the output exists already" if "already" in log(place) or "does not exist" in log(place) else ""
    second = "exit 0" if again == 0 or (again == 2 and finished) else f"exit {again}: {log(place)[-300:]}"
    numbers = "equal" if equal(newest(place, command.result), newest(whole, command.result)) else "OTHER"
    left = [path.name for path in (place / "temporary").iterdir()]
    left += [str(path.relative_to(place)) for path in place.glob("**/.fsd-*")]
    shown = str(code) if code == expected else f"{code}, not {expected}"
    return name, moment.name, number.name, shown, status, second, numbers, ", ".join(left) or "nothing"


def run(name: str, line: str, folder: Path, moment: Moment | None = None, number: int = 0) -> int:
    """Run a command in a forked process, which is killed at the moment if one is given; its exit code."""
    _, status = os.waitpid(forked(lambda: run_here(name, line, folder, moment, number)), 0)
    return os.waitstatus_to_exitcode(status)


def forked(call: Callable[[], int]) -> int:
    """The id of a forked process, which calls a function and ends with its result as exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = call()
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    return child


def run_here(
    name: str,
    line: str,
    folder: Path,
    moment: Moment | None = None,
    number: int = 0,
    environment: Mapping[str, str] | None = None,
    suffix: str = "",
) -> int:
    """Run a command in this process, which prints to log.txt (errors) and printed.txt."""
    surround(folder, environment or {}, suffix)
    tempfile.tempdir = None
    from pipelines.__main__ import main

    if moment:
        patch(moment, number)
    sys.argv = ["fsd", *name.split(), *shlex.split(line)]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def surround(folder: Path, environment: Mapping[str, str], suffix: str = "") -> None:
    """Let this process work in a folder, print to files there, and have an environment."""
    os.chdir(folder)
    for stream, name in ((1, "printed"), (2, "log")):
        os.dup2(os.open(f"{name}{suffix}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    os.environ |= {"FSD_CACHE": str(folder / "cache"), "TMPDIR": str(folder / "temporary"), **environment}


def patch(moment: Moment, number: int) -> None:
    """Let the n-th call of the function send the signal to this process."""
    module, _, path = moment.target.partition(":")
    if module == "file":  # which another process writes
        threading.Thread(target=kill_when_there, args=(path, number), daemon=True).start()
        return
    owner: Any = importlib.import_module(module)
    *outer, last = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original, calls = getattr(owner, last), [0]

    @functools.wraps(original)
    def killing(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == moment.call and not moment.after:
            os.kill(os.getpid(), number)
        result = original(*args, **kwargs)
        if calls[0] == moment.call and moment.after:
            os.kill(os.getpid(), number)
        return result

    setattr(owner, last, killing)
    for other in list(sys.modules.values()):  # where it was imported by name
        if getattr(other, "__name__", "").startswith(("fsd", "pipelines")) and vars(other).get(last) is original:
            setattr(other, last, killing)


def kill_when_there(pattern: str, number: int) -> None:
    """Send this process the signal once a file is there."""
    while not list(Path().glob(pattern)):
        time.sleep(0.01)
    os.kill(os.getpid(), number)


def import_libraries() -> None:
    """Import what every command needs, once for all forked processes; nothing here may start a thread."""
    import torch

    torch.set_num_threads(1)
    for module in (
        "mlflow.pyfunc", "matplotlib.pyplot", "sklearn.linear_model", "trl", "peft", "datasets", "pyarrow.parquet",
        "optuna", "fsd.models.finetuning", "fsd.evaluation.results", "pipelines.experiment.registration",
        "fsd.reporting.report",
    ):  # fmt: skip
        importlib.import_module(module)


def prepare(folder: Path) -> None:
    """A folder with a tiny model, a control model and texts."""
    (folder / "temporary").mkdir(parents=True)
    for name, seed in (("model", 0), ("control", 1)):
        make_model(folder / name, seed)
    rng = random.Random(0)
    rows = [
        {
            "text": " ".join(rng.choices(WORDS, k=14)) + f" {i}.",
            "label": i % 2,
            "date": f"20{20 + i % 2}-01-0{1 + i % 9}",
            "group": f"g{i}",
        }
        for i in range(40)
    ]
    write(folder / "data.jsonl", rows)
    write(folder / "new.jsonl", [{"text": " ".join(rng.choices(WORDS, k=14))} for _ in range(5)])
    dump = [{"text": " ".join(rng.choices(WORDS, k=20)) + f" {i}", "date": "2021-01-01"} for i in range(60)]
    write(folder / "dump.jsonl", dump)
    words = map("".join, itertools.product("bdfgklmn", "aeiou", "bdfgklmn", "aeiou"))
    write(folder / "words.jsonl", [{"text": " ".join(words)}])
    line = "--data new.jsonl --words words.jsonl --out canaries --variants 20 --alpha .05 --seed s"
    assert run("canary make", line, folder) == 0, log(folder)


def write(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_model(folder: Path, seed: int, *, hidden: int = 32, layers: int = 2, context: int = 64) -> None:
    """A random GPT-NeoX with the embedded tokenizer."""
    import torch
    from transformers import AutoTokenizer, GPTNeoXConfig, GPTNeoXForCausalLM

    from fsd.net.hub import EMBEDDED

    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED["embedded"])
    torch.manual_seed(seed)
    config = GPTNeoXConfig(
        vocab_size=len(tokenizer), hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=2 * hidden, max_position_embeddings=context, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    GPTNeoXForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def statuses(folder: Path) -> set[str]:
    """Status of every run."""
    import sqlite3

    database = folder / "mlruns" / "mlflow.db"
    if not database.exists():
        return set()
    with sqlite3.connect(database) as db:
        return {status for (status,) in db.execute("SELECT DISTINCT status FROM runs")}


def newest(folder: Path, pattern: str) -> Path | None:
    return max(folder.glob(pattern), key=lambda file: file.stat().st_mtime, default=None)


def equal(one: Path | None, other: Path | None) -> bool:
    """Whether two results hold the same numbers, bit for bit."""
    import numpy as np
    import pandas as pd

    if one is None or other is None:
        return False
    if one.suffix == ".parquet":
        return bool(pd.read_parquet(one).equals(pd.read_parquet(other)))
    if one.suffix == ".npz":
        tables = [dict(np.load(file, allow_pickle=False)) for file in (one, other)]
        return all(np.array_equal(tables[0][name], tables[1][name]) for name in tables[1])
    return one.read_bytes() == other.read_bytes()


def log(folder: Path) -> str:
    return " ".join((folder / "log.txt").read_text(errors="replace").split())


if __name__ == "__main__":
    main()
