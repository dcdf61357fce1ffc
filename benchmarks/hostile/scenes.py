"""Scenes: what people have, and what attackers send: files, chats, prompts, settings, packed bombs, names, limits.

A scene makes its files in the folder of the case, and gives a command line with what would be wrong about an answer.
"""

import bz2
import csv
import gzip
import io
import json
import os
import random
import shlex
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.hostile import sent
from benchmarks.hostile.case import Case, Check, no_answer, nothing
from benchmarks.hostile.counts import scored_as

Scene = Callable[[random.Random, Path], Case]
SCENES: dict[str, Scene] = {}
Row = dict[str, Any]
SCORE = "--model model --out out.csv --detectors loss"
RUN = (
    "--model model --device cpu --epochs 1 --batch-size 8 --rank 2 --placebo none --validation .4 "
    "--detectors loss --audit-repeats 1"
)
TUNE = f"--data data.jsonl {RUN} --detectors min_k --trials 4 --folds 2 --repeats 1 --storage"
COLLECT = "--domain local --limit 5 --after 2020-06-01 --language any --min-words 5 --options path=dump.jsonl"
DETECT = "--adapter models:/fsd-arxiv/1 --fpr .5 --out out.csv"
MAKE = "--words words.jsonl --out made --variants 20 --alpha .05"


def scene(make: Scene) -> Scene:
    """Enter a scene under the name of its function."""
    SCENES[make.__name__.replace("_", " ")] = make
    return make


def _case(command: str, line: str, *words: str, wrong: Check = nothing, **options: Any) -> Case:
    return Case(command, [*words, *shlex.split(line)], wrong=wrong, **options)


def _rows(folder: Path) -> list[Row]:
    return [json.loads(line) for line in (folder / "data.jsonl").read_text().splitlines()]


def _jsonl(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _csv(rows: list[Row], **options: Any) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), **options)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: list[Row], **options: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, **options)
    return sink.getvalue()


def _nested(rows: list[Row]) -> bytes:
    return _parquet([{"meta": {"a": [{"b": n}]}, "tags": [[n], []], **row} for n, row in enumerate(rows)])


def _zstd(content: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.compress(content, "zstd", asbytes=True))


FORMS: dict[str, Callable[[list[Row]], bytes]] = {
    "bom.jsonl": lambda rows: b"\xef\xbb\xbf" + _jsonl(rows),
    "crlf.jsonl": lambda rows: _jsonl(rows).replace(b"\n", b"\r\n"),
    "blank lines.jsonl": lambda rows: _jsonl(rows).replace(b"\n", b"\n \n\n"),
    "list.json": lambda rows: json.dumps(rows, indent=1).encode(),
    "escaped.jsonl": lambda rows: _jsonl(rows).replace(b"read", b"\\u0072ead"),
    "no end.jsonl": lambda rows: _jsonl(rows).rstrip(),
    "upper.JSONL": _jsonl,
    "bom.csv": lambda rows: b"\xef\xbb\xbf" + _csv(rows),
    "quoted.csv": lambda rows: _csv(rows, quoting=csv.QUOTE_ALL),
    "semicolons.csv": lambda rows: _csv(rows, delimiter=";"),
    "unix.csv": lambda rows: _csv(rows, lineterminator="\n"),
    "old mac.csv": lambda rows: _csv(rows, lineterminator="\r"),
    "tabs.tsv": lambda rows: _csv(rows, delimiter="\t"),
    "blanks in the head.csv": lambda rows: _csv(rows).replace(b"text,label", b" text , label "),
    "dictionary.parquet": lambda rows: _parquet(rows, use_dictionary=True, row_group_size=3),
    "nested.parquet": _nested,
    "plain.parquet": lambda rows: _parquet(rows, compression="none", version="1.0"),
    "packed.jsonl.gz": lambda rows: gzip.compress(_jsonl(rows)),
    "two members.jsonl.gz": lambda rows: gzip.compress(_jsonl(rows[:7])) + gzip.compress(_jsonl(rows[7:])),
    "packed.csv.bz2": lambda rows: bz2.compress(_csv(rows)),
    "packed.jsonl.zst": lambda rows: _zstd(_jsonl(rows)),
    "two frames.jsonl.zst": lambda rows: _zstd(_jsonl(rows[:7])) + _zstd(_jsonl(rows[7:])),
}
"""The same rows, written otherwise."""


@scene
def another_form(rng: random.Random, folder: Path) -> Case:
    """The same texts have the same scores, however they are written."""
    name = rng.choice(list(FORMS))
    (folder / name).write_bytes(FORMS[name](_rows(folder)))
    return _case("score", SCORE, "--data", name, wrong=scored_as())


@scene
def names(rng: random.Random, folder: Path) -> Case:
    """A file, model or output of any name is read and written like others."""
    name, place = rng.choice(sent.NAMES), rng.choice(["data", "data", "out", "model", "cache"])
    (folder / name).parent.mkdir(exist_ok=True)
    if place == "data":
        (folder / name).write_bytes((folder / "data.jsonl").read_bytes())
        return _case("score", f"{SCORE} --seed 1", f"--data=./{name}", wrong=scored_as())
    if place == "model":
        (folder / name).symlink_to(folder / "model")
        return _case(
            "score", "--data data.jsonl --out out.csv --detectors loss", f"--model=./{name}", wrong=scored_as()
        )
    if place == "cache":
        return _case("score", f"--data data.jsonl {SCORE}", f"--cache=./{name}", wrong=scored_as())
    wrong = scored_as("expected.csv", f"{name}.csv") if len(name) < 200 else nothing
    return _case("score", "--data data.jsonl --model model --detectors loss", f"--out=./{name}.csv", wrong=wrong)


@scene
def labels(rng: random.Random, folder: Path) -> Case:
    """A label that is no 0 or 1 in one row."""
    rows = _rows(folder)
    number = rng.randrange(len(rows))
    if rng.random() < 0.5:
        rows[number]["label"] = rng.choice(sent.LABELS)
        (folder / "odd.csv").write_bytes(_csv(rows))
        name = "odd.csv"
    else:
        rows[number]["label"] = rng.choice(sent.VALUES)
        (folder / "odd.jsonl").write_bytes(_jsonl(rows))
        name = "odd.jsonl"
    command, line = rng.choice([("score", SCORE), ("score", SCORE), ("run", f"{RUN} --dry-run")])
    return _case(command, f"--data {name} {line} {rng.choice(['', '--skip-invalid'])}")


@scene
def texts(rng: random.Random, folder: Path) -> Case:
    """An odd text in one row, or in every one."""
    rows = _rows(folder)
    text = rng.choice(sent.TEXTS)
    for number in rng.choice([[3], [0], range(len(rows))]):
        rows[number]["text"] = f"{text} {number}" if isinstance(text, str) and rng.random() < 0.5 else text
    (folder / "odd.jsonl").write_bytes(_jsonl(rows))
    command, line = rng.choice(
        [
            ("score", f"--data odd.jsonl {SCORE}"),
            ("detect", f"odd.jsonl {DETECT}"),
            ("overlap", "odd.jsonl dump.jsonl --n 3 --out out.parquet"),
            ("canary make", f"--data odd.jsonl {MAKE}"),
            ("frequencies", "--corpus odd.jsonl --out table.npz"),
            ("contamination", "odd.jsonl --model model --shard 2 --orders 5"),
            ("run", f"--data odd.jsonl {RUN} --dry-run"),
        ]
    )
    skip = rng.choice(["", " --skip-invalid"]) if command in ("score", "run", "detect") else ""
    return _case(command, line + skip)


@scene
def tables(rng: random.Random, folder: Path) -> Case:
    """A table that spreadsheets, editors and scripts leave."""
    name = rng.choice(list(sent.TABLES))
    (folder / name).write_bytes(sent.TABLES[name])
    return _on_texts(rng, name)


def _on_texts(rng: random.Random, name: str, more: str = "") -> Case:
    """A command that reads a file of texts."""
    commands = [
        ("score", f"{SCORE} {more}", "--data", name),
        ("score", f"{SCORE} --skip-invalid {more}", "--data", "data.jsonl", name),
        ("detect", f"{DETECT} {more}", name),
        ("overlap", "--n 3 --out out.parquet", name, "dump.jsonl"),
        ("overlap", "--n 3 --out out.parquet", "new.jsonl", name),
        ("run", f"{RUN} --dry-run {more}", "--data", name),
        ("frequencies", "--out table.npz", "--corpus", name),
    ]
    command, line, *words = rng.choice(commands)
    return _case(command, line, *words)


@scene
def chats(rng: random.Random, folder: Path) -> Case:
    """Chats of odd turns, preference pairs, and templates that somebody else wrote."""
    kinds = [rng.choice(list(sent.CHATS))] * 2 + ["good"] * 6
    rng.shuffle(kinds)
    texts = [row["text"] for row in _rows(folder)]
    # Or all would be copies of one another.
    said = [json.loads(json.dumps(sent.CHATS[kind]).replace("the member", texts[n])) for n, kind in enumerate(kinds)]
    rows = [{**chat, "label": n % 2, "id": n} for n, chat in enumerate(said)]
    (folder / "chats.jsonl").write_bytes(_jsonl(rows))
    (folder / "template.jinja").write_text(rng.choice([*sent.TEMPLATES[:2] * 9, *sent.TEMPLATES]))
    flags = [
        "",
        "--chat-template template.jinja",
        "--chat-template template.jinja",
        "--chats whole --chat-template template.jinja",
    ]
    more = [rng.choice(flags), rng.choice(["", "--skip-invalid"])]
    command = rng.choice(["score", "score", "run"])
    line = {"score": SCORE, "run": f"{RUN} --dry-run"}[command]
    return _case(command, " ".join([f"--data chats.jsonl {line}", *more]))


@scene
def prompts(rng: random.Random, folder: Path) -> Case:
    """Prompts of one's own for a work, with odd fields, titles and works."""
    (folder / "questions.txt").write_text(rng.choice(sent.QUESTIONS) + "\n", errors="replace")
    title = rng.choice(["It", "", " ", "{title}", "a\nb", "x" * 5000, "\u202e", "\x00"[:0] + "=1+1", "<b>"])
    asked = rng.choice([["--questions", "questions.txt"], ["--prompts", "title"], ["--prompts", "opening", "title"]])
    works = ["book.txt", "book.txt", "works.jsonl"]
    rows = [{"text": "the member read " * 20, "title": title, "author": rng.choice([None, "A", 5, ""])}] * 2
    (folder / "works.jsonl").write_bytes(_jsonl(rows))
    control = rng.choice([[], ["--control", "book.txt"], ["--control", "works.jsonl"], ["--control", "new.jsonl"]])
    named = rng.choice([[], [f"--title={title}"], [f"--title={title}", "--author=A"]])
    more = rng.choice(["", "--plain", "--plain --replies 2", "--span 1 --plain", "--max-tokens 5 --plain"])
    line = f"--model model --prefix 10 --suffix 10 --max-tokens 4 {more}"
    return _case("extract", line, rng.choice(works), *asked, *control, *named)


@scene
def settings(rng: random.Random, folder: Path) -> Case:
    """A file of settings that an editor, another tool or an attacker wrote."""
    name = rng.choice(list(sent.SETTINGS))
    content = sent.SETTINGS[name].encode()
    form = rng.choice([bytes, bytes, lambda each: b"\xef\xbb\xbf" + each, lambda each: each.replace(b"\n", b"\r\n")])
    (folder / name).write_bytes(form(content))
    return _case("run", f"--data data.jsonl {RUN} --dry-run", "--config", name)


def _runs(count: int) -> bytes:
    """A small Parquet file of very many equal rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000, pa.int32()), ["a b c d " * 50])
    table = pa.table({"text": texts})
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        for _ in range(count):
            writer.write_table(table)
    return sink.getvalue()


ZEROS = 600 * 2**20
BOMBS: dict[str, Callable[[], bytes]] = {
    "zeros.jsonl.gz": lambda: gzip.compress(bytes(ZEROS), 9),
    "zeros.csv.bz2": lambda: bz2.compress(bytes(ZEROS // 4)),
    "blanks.jsonl.zst": lambda: _zstd(b" " * ZEROS),
    "lines.jsonl.gz": lambda: gzip.compress(b"\n" * 2**23),
    "rows.jsonl.gz": lambda: gzip.compress(b'{"text": "a b c"}\n' * 3_000_000),
    "one text.txt.gz": lambda: gzip.compress(b"a " * (ZEROS // 8)),
    "rows.parquet": lambda: _runs(20),
    "packed twice.jsonl.gz": lambda: gzip.compress(gzip.compress(b'{"text": "a b c"}\n')),
    "cut.jsonl.zst": lambda: _zstd(b'{"text": "a b c d"}\n' * 10_000)[:-9],
    "garbage after.jsonl.gz": lambda: gzip.compress(b'{"text": "a b c"}\n' * 9) + b"garbage",
}


@scene
def bombs(rng: random.Random, folder: Path) -> Case:
    """Small files that are large when they are unpacked, and ones that are cut."""
    name = rng.choice(list(BOMBS))
    (folder / name).write_bytes(BOMBS[name]())
    return _on_texts(rng, name)


def _link(name: str, target: str) -> tuple[zipfile.ZipInfo, str]:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry, target


ZIPS: dict[str, list[tuple[Any, str | bytes]]] = {
    "empty.zip": [],
    "above.zip": [("../above.txt", "x"), ("manifest.json", sent.MANIFEST)],
    "absolute.zip": [("/tmp/absolute.txt", "x"), ("manifest.json", sent.MANIFEST)],
    "link.zip": [_link("manifest.json", "/etc/passwd")],
    "twice.zip": [("manifest.json", sent.MANIFEST), ("manifest.json", "{}")],
    "zeros.zip": [("manifest.json", bytes(2**25))],
    "many.zip": [(f"{number}", "") for number in range(20_000)],
    "deep.zip": [("a/" * 1000 + "x", "x"), ("manifest.json", sent.MANIFEST)],
    "capitals.zip": [("manifest.json", sent.MANIFEST), ("Manifest.json", "{}"), ("sent.MANIFEST.JSON", "[]")],
    "nested.zip": [("manifest.json", "[" * 100_000)],
    "folder.zip": [("manifest.json/", "")],
    "names.zip": [("a\nb", "x"), ("\x1b[31m", "x"), ("manifest.json", sent.MANIFEST)],
    "backslash.zip": [("..\\..\\x", "x"), ("manifest.json", sent.MANIFEST)],
}


@scene
def bundles(rng: random.Random, folder: Path) -> Case:
    """Bundles that somebody else made."""
    import warnings

    name = rng.choice(list(ZIPS))
    with warnings.catch_warnings(), zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as file:
        warnings.simplefilter("ignore")
        for entry, content in ZIPS[name]:
            file.writestr(entry, content)
    more = rng.choice(["", "--recompute", f"--sha256 {'0' * 64}", "--signed-by ssh:nowhere.pub", "--json"])
    return _case("verify", more, name, wrong=no_answer)


@scene
def columns(rng: random.Random, folder: Path) -> Case:
    """Names and templates of columns."""
    value = rng.choice(sent.TEMPLATES_OF_COLUMNS).replace('"', rng.choice(["", "", '"']))
    command, line = rng.choice([("score", SCORE), ("run", f"{RUN} --dry-run")])
    return _case(command, f"--data data.jsonl {line}", f"--columns={value}")


@scene
def numbers(rng: random.Random, folder: Path) -> Case:
    """Settings of detectors and conditions of a gate."""
    if rng.random() < 0.6:
        name = rng.choice(sent.DETECTORS)
        setting = f"{name}={rng.choice(sent.NUMBERS)}"
        detector = name.partition(".")[0]
        return _case(
            "score", f"--data data.jsonl --model model --out out.csv --detectors {detector}", f"--settings={setting}"
        )
    gate = rng.choice(sent.GATES)
    return _case(
        *rng.choice([("overlap", "new.jsonl dump.jsonl --n 3"), ("run", f"--data data.jsonl {RUN}")]),
        f"--fail-if={gate}",
    )


@scene
def outputs(rng: random.Random, folder: Path) -> Case:
    """Output that goes into a pipe, a full device, its own input, or through links."""
    os.mkfifo(folder / "fifo.csv")
    (folder / "full.csv").symlink_to("/dev/full")
    (folder / "loop.csv").symlink_to("loop.csv")
    (folder / "link.csv").symlink_to("data.jsonl")
    (folder / "nowhere.csv").symlink_to("nowhere/x.csv")
    (folder / "hard.csv").hardlink_to(folder / "data.csv")
    out = rng.choice(sent.OUTPUTS)
    command, line, flag = rng.choice(
        [
            ("score", "--data data.jsonl --model model --detectors loss", "out"),
            ("score", "--data data.csv --model model --detectors loss", "out"),
            ("detect", "new.jsonl --adapter models:/fsd-arxiv/1 --fpr .5", "out"),
            ("detect", "new.jsonl --adapter models:/fsd-arxiv/1 --fpr .5", "report"),
            ("compare", "models:/fsd-arxiv/1 models:/fsd-arxiv/2", "out"),
            ("overlap", "new.jsonl dump.jsonl --n 3 --dry-run", "protocol"),
            ("overlap", "new.jsonl dump.jsonl --n 3", "out"),
            ("collect", COLLECT, "out"),
        ]
    )
    return Case(command, [*shlex.split(line), f"--{flag}={out}"])


def _deep(place: Path) -> None:
    deep = place / "/".join("d" * 60)
    deep.mkdir(parents=True)
    (deep / "b.jsonl").write_text(ONE)


ONE = '{"text": "a b c d", "label": 1}\n'
FAULTS: dict[str, Callable[[Path], object]] = {
    "up": lambda place: (place / "up").symlink_to(".."),
    "itself": lambda place: (place / "b.jsonl").symlink_to("b.jsonl"),
    "nothing": lambda place: (place / "b.jsonl").symlink_to("nothing"),
    "pipe": lambda place: os.mkfifo(place / "b.jsonl"),
    "folder": lambda place: (place / "b.jsonl").mkdir(),
    "twice": lambda place: (place / "b.jsonl").hardlink_to(place / "a.jsonl"),
    "hidden": lambda place: (place / ".b.jsonl").write_text(ONE),
    "deep": _deep,
    "none": lambda _: None,
}
"""What is wrong with a folder of texts."""


@scene
def loops(rng: random.Random, folder: Path) -> Case:
    """Folders that hold themselves, links to nothing, pipes among files, and files that are folders."""
    place = folder / "loop"
    place.mkdir()
    (place / "a.jsonl").write_bytes((folder / "data.jsonl").read_bytes())
    FAULTS[rng.choice(list(FAULTS))](place)
    if rng.random() < 0.2:
        return _case("score", f"--data data.jsonl {SCORE} --cache loop")
    if rng.random() < 0.2:
        return _case("score", "--data data.jsonl --out out.csv --detectors loss --model loop", wrong=no_answer)
    return _on_texts(rng, "loop")


@scene
def environments(rng: random.Random, folder: Path) -> Case:
    """A new interpreter in an environment that somebody else set up."""
    (folder / "loop").symlink_to("loop")
    name = "\u00e4 \u65e5\u672c.jsonl"
    rows = _rows(folder)
    for row in rows:
        row["group"] = f"\u00fc {row['group']}"
    (folder / name).write_bytes(_jsonl(rows))
    environment = sent.ENVIRONMENTS[rng.choice(list(sent.ENVIRONMENTS))]
    command, line = rng.choice(
        [
            ("score", SCORE),
            ("score", f"{SCORE} --json"),
            ("score", f"{SCORE} --verbose"),
            ("run", f"{RUN} --dry-run"),
            ("run", "--help"),
        ]
    )
    wrong = scored_as() if command == "score" else nothing
    return _case(command, line, f"--data={name}", wrong=wrong, environment=environment, is_new=True)


@scene
def limits(rng: random.Random, folder: Path) -> Case:
    """A process with little of everything, in this interpreter or in a new one."""
    limit = rng.choice(sent.LIMITS)
    command, line, wrong = rng.choice(
        [
            ("score", f"--data data.jsonl {SCORE}", scored_as()),
            ("score", f"--data data.jsonl {SCORE} --json", scored_as()),
            ("detect", f"new.jsonl {DETECT}", nothing),
            ("run", f"--data data.jsonl {RUN}", nothing),
            ("tune", f"{TUNE} journal:log", nothing),
            ("canary make", f"--data new.jsonl {MAKE}", nothing),
            ("overlap", "new.jsonl dump.jsonl --n 3 --out out.parquet", nothing),
            ("frequencies", "--corpus dump.jsonl --out table.npz", nothing),
            ("collect", f"{COLLECT} --out texts.jsonl", nothing),
            ("run", "--help", nothing),
        ]
    )
    # Another user cannot always begin an interpreter anew: it may lie in a folder of this one.
    is_new = rng.random() < 0.2 and limit not in ("another user", "no more threads")
    return _case(command, line, wrong=wrong, circumstance=limit, is_new=is_new)


@scene
def at_once(rng: random.Random, folder: Path) -> Case:
    """The same command twice at the same time, on the same files."""
    command, line, wrong = rng.choice(
        [
            ("score", f"--data data.jsonl {SCORE}", scored_as()),
            ("score", "--data data.jsonl --model model --out shards --shard-rows 7 --detectors loss", nothing),
            ("run", f"--data data.jsonl {RUN}", nothing),
            ("tune", f"{TUNE} journal:log", nothing),
            ("tune", f"{TUNE} sqlite:///trials.db", nothing),
            ("canary make", f"--data new.jsonl {MAKE}", nothing),
            ("frequencies", "--corpus dump.jsonl --out table.npz", nothing),
            ("detect", f"new.jsonl {DETECT}", nothing),
            ("collect", f"{COLLECT} --out texts.jsonl", nothing),
        ]
    )
    return _case(command, line, wrong=wrong, twice=True)


@scene
def changes(rng: random.Random, folder: Path) -> Case:
    """Files that are changed while they are read."""
    (folder / "other.jsonl").write_bytes((folder / "data.jsonl").read_bytes())
    command, line = rng.choice(
        [
            ("score", f"--data other.jsonl {SCORE}"),
            ("overlap", "other.jsonl dump.jsonl --n 3 --out out.parquet"),
            ("overlap", "new.jsonl other.jsonl --n 3 --out out.parquet"),
            ("frequencies", "--corpus other.jsonl --out table.npz"),
            ("run", f"--data other.jsonl {RUN} --dry-run"),
            ("detect", f"other.jsonl {DETECT}"),
            ("canary make", f"--data other.jsonl {MAKE}"),
            ("contamination", "other.jsonl --model model --shard 2 --orders 5"),
        ]
    )
    return _case(command, line, circumstance=f"other.jsonl {rng.choice(sent.CHANGES)}")


STORES: dict[str, Callable[[Path], object]] = {
    "a table gone": lambda db: _sql(db, "drop table experiments"),
    "of a later version": lambda db: _sql(db, "update alembic_version set version_num = 'ffffffffffff'"),
    "no version": lambda db: _sql(db, "delete from alembic_version"),
    "experiment deleted": lambda db: _sql(db, "update experiments set lifecycle_stage = 'deleted'"),
    "artifacts elsewhere": lambda db: _sql(db, "update runs set artifact_uri = '/proc/x'"),
    "artifacts of the net": lambda db: _sql(db, _moved("http://127.0.0.1:1/x")),
    "artifacts of the system": lambda db: _sql(db, _moved("/etc")),
    "odd values": lambda db: _sql(db, "update tags set value = x'ff00fe'"),
    "no runs": lambda db: _sql(db, "delete from runs"),
    "a view": lambda db: _sql(db, "create trigger t before insert on runs begin select raise(abort, 'no'); end"),
    "cut": lambda db: os.truncate(db, db.stat().st_size // 2),
    "empty": lambda db: os.truncate(db, 0),
    "zeros": lambda db: db.write_bytes(bytes(20_000)),
    "a folder": lambda db: (db.unlink(), db.mkdir()),
    "a pipe": lambda db: (db.unlink(), os.mkfifo(db)),
    "a link to itself": lambda db: (db.unlink(), db.symlink_to(db.name)),
    "a journal beside it": lambda db: db.with_name("mlflow.db-journal").write_bytes(os.urandom(4096)),
    "a log beside it": lambda db: db.with_name("mlflow.db-wal").write_bytes(os.urandom(4096)),
}  # fmt: skip


def _moved(place: str) -> str:
    return f"update model_versions set source = '{place}', storage_location = '{place}'"


def _sql(file: Path, statement: str) -> None:
    import sqlite3

    with sqlite3.connect(file) as connection:
        connection.execute(statement)
    connection.close()


@scene
def stores(rng: random.Random, folder: Path) -> Case:
    """A tracking store that is damaged, of another version, or of somebody else."""
    STORES[rng.choice(list(STORES))](folder / "mlruns" / "mlflow.db")
    return _case(
        *rng.choice(
            [
                ("run", f"--data data.jsonl {RUN}"),
                ("detect", f"new.jsonl {DETECT}"),
                ("compare", "models:/fsd-arxiv/1 models:/fsd-arxiv/2"),
                ("score", f"--data data.jsonl {SCORE}"),
                ("bundle", "runs:/00000000000000000000000000000000"),
                ("run", f"--data data.jsonl {RUN} --dry-run"),
            ]
        )
    )


@scene
def canaries(rng: random.Random, folder: Path) -> Case:
    """A sealed list with one other value, and documents of odd paraphrases."""
    if rng.random() < 0.4:
        variants = rng.choice(
            [[], ["a b"], ["a b c", "a b c"], ["a b", "", "c"], [1, 2], "a b", None, [["a"], ["b"]], ["x"] * 50]
        )
        rows = [{"text": "the member read it", "variants": variants} for _ in range(3)]
        (folder / "odd.jsonl").write_bytes(_jsonl(rows))
        return _case("canary make", "--data odd.jsonl --kind paraphrase --variants 2 --alpha .5 --out made")
    file = folder / "canaries" / "sealed.json"
    sealed = json.loads(file.read_text())
    inside: Any = sealed
    while isinstance(inside, dict | list) and inside:
        key = rng.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
        if not isinstance(inside[key], dict | list) or rng.random() < 0.4:
            inside[key] = rng.choice(sent.SEALED)
            break
        inside = inside[key]
    file.write_text(json.dumps(sealed))
    return _case("canary test", "canaries --model model --alpha .5")


@scene
def knowns(rng: random.Random, folder: Path) -> Case:
    """Texts known to be non-members that are the very texts in question, or their copies."""
    (folder / "link.jsonl").symlink_to("new.jsonl")
    (folder / "hard.jsonl").hardlink_to(folder / "new.jsonl")
    (folder / "copy.jsonl").write_bytes((folder / "new.jsonl").read_bytes())
    (folder / "upper.jsonl").write_text((folder / "new.jsonl").read_text().replace("read", "READ"))
    (folder / "one.jsonl").write_text('{"text": "a b c d e f g"}\n')
    known = rng.choice(
        ["new.jsonl", "link.jsonl", "hard.jsonl", "copy.jsonl", "./new.jsonl", "upper.jsonl", "one.jsonl"]
    )
    command, line = rng.choice(
        [
            ("contamination", "--model model --shard 2 --orders 5"),
            ("contamination", "--model model --shard 2 --orders 5 --near-duplicates drop"),
            ("detect", DETECT),
        ]
    )
    # With `drop`, they are left out and named.
    same = known != "one.jsonl" and "drop" not in line
    return Case(command, ["new.jsonl", *shlex.split(line), "--known", known], wrong=no_answer if same else nothing)
