"""Many texts in shards: a folder of Parquet files, one a shard, computed by any number of processes and machines.

A shard's file appears by rename, complete, and names its job: the hash of settings, input, model and version that the
manifest holds. So a shard that is there is not computed again, however a process ended, and a folder of another job is
refused. Who computes a shard does not matter: this process, one of several with `--shard I/N`, or a worker of Ray.
"""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from fsd.config import ShardConfig, flags
from fsd.data import shards as data
from fsd.data.documents import Document
from fsd.data.readers import Row, parse_columns, parse_rows
from fsd.data.shards import Input, Shard
from fsd.errors import StorageError, UsageError, first_line
from fsd.files import read_json
from fsd.leftovers import DRAFTS, temporary_folder
from fsd.progress import moving, note, progress
from pipelines.common.job import Job, files, show, stage
from pipelines.common.output import TABLE_SUFFIXES, write_file

if TYPE_CHECKING:
    import pandas as pd

    from fsd.models.language_model import LanguageModel

FORMAT = 1
MANIFEST = "_manifest.json"
"""Readers of Parquet folders pass over names that begin with an underscore."""
KEY = b"fsd.shard"
"""Metadata of a shard's file: hash of the job, and number of the shard."""
ATTEMPTS = 3
GIVE_UP = 3
"""Failed shards after which a command ends if none has succeeded."""
EVERY = 60.0
"""Seconds between two lines about the progress where there is no terminal."""
EXAMPLE = Document("An Example of a text.")
ELSEWHERE = {"out", "data", "files", "corpus", "device", "cache", "domain", "cutoff"}
ELSEWHERE |= {"concurrency", "requests_per_minute", "price", *flags(ShardConfig())} - {"shard_rows"}
"""Settings on which no number depends, or that the manifest holds in another form."""


class Worker(NamedTuple):
    """What computes shards: rows with their origins → a table of the same columns for any rows, by a model."""

    identity: Mapping[str, str]
    table: "Callable[[list[tuple[str, Row]]], pd.DataFrame]"

    def compute(self, shard: Shard, key: str) -> bytes:
        """The Parquet file of a shard."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pandas(self.table(shard.read()), preserve_index=False)
        named = {**(table.schema.metadata or {}), KEY: f"{key}/{shard.number}".encode()}
        sink = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata(named), sink)
        content: bytes = sink.getvalue().to_pybytes()
        return content


def of_documents(
    config: Any, make: "Callable[[list[Document]], pd.DataFrame]", *, contexts: bool = False
) -> "Callable[[list[tuple[str, Row]]], pd.DataFrame]":
    """A worker's table by a function of documents, which are never none: a shard without any has the same columns."""
    columns = parse_columns(config.columns, contexts=contexts)

    def table(rows: list[tuple[str, Row]]) -> "pd.DataFrame":
        skipped = Counter[str]() if config.cleaning.skip_invalid else None
        documents = list(parse_rows(rows, columns, contexts=contexts, skipped=skipped))
        return make(documents or [EXAMPLE]).iloc[: len(documents)]

    return table


def identity(model: "LanguageModel", *files: Path | None) -> dict[str, str]:
    """What the numbers of a model depend on: weights, adapter, precision, versions; and files that it is used with."""
    from fsd.scoring.cache import model_key

    used = [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files if file]
    return {
        "name": model.identity.id,
        "weights": model.identity.fingerprint,
        "numbers": model_key(model, tuned=model.adapted),
        "files": " ".join(used),
    }


def refuse(**given: object) -> None:
    """Refuse settings that need all texts at once."""
    for name, value in given.items():
        if value:
            flag = name.replace("_", "-")
            raise UsageError(f"{flag} must not be given where out is a folder of shards; got {value}")


class Work(NamedTuple):
    """The module whose `open_worker` makes a `Worker` of the settings, in whichever process it is needed."""

    module: str
    config: Any

    def open(self) -> Worker:
        """Load the model."""
        worker: Worker = import_module(self.module).open_worker(self.config)
        return worker


Results = Iterator[tuple[Shard, bytes | Exception]]
Agree = Callable[[Mapping[str, str]], str]
"""Identity of a worker's model → key of the job; a UsageError if the folder is of another model."""


def wanted(out: str | Path | None, options: ShardConfig) -> bool:
    """Whether the output is a folder of shards rather than a file, or none."""
    path = Path(out or "none.csv")
    folder = bool(path.name) and path.suffix.lower() not in TABLE_SUFFIXES and (path.is_dir() or not path.suffix)
    if not folder and options != ShardConfig():
        raise UsageError(f"out must be a folder where shards are asked for; got {out}")
    return folder


class Manifest(NamedTuple):
    """A job, the files that it reads and their shards."""

    job: dict[str, Any]
    inputs: list[Input]
    shards: list[Shard]


class Folder(NamedTuple):
    """An output folder and its manifest; the job lacks the model until one is loaded."""

    path: Path
    job: dict[str, Any]
    inputs: list[Input]
    shards: list[Shard]

    @classmethod
    def known(cls, path: Path) -> "Folder | None":
        """A folder that has a manifest."""
        file = path / MANIFEST
        return cls(path, *read_json(Manifest, file, "the manifest of a folder of shards")) if file.exists() else None

    @classmethod
    def of(cls, path: Path, places: Sequence[str], rows: int, job: Mapping[str, Any]) -> "Folder":
        """Cut the files into shards, unless the manifest has those of the same files; refuse another job's folder."""
        if rows < 1:
            raise UsageError(f"shard-rows must be at least 1; got {rows}")
        known, own = cls.known(path), path.resolve()  # which may lie within the data
        found = [file for file in data.find(places) if not Path(file.url).resolve().is_relative_to(own)]
        if known is None and path.is_dir() and any(file.name[0] != "." for file in path.iterdir()):
            raise UsageError(f"out must be a folder that is new, empty, or has a {MANIFEST} of shards; got {path}")
        if known and known.job.get("shard_rows") == rows and [(i.url, i.size, i.state) for i in known.inputs] == found:
            inputs, shards = known.inputs, known.shards
        else:
            inputs, shards = data.cut(found, rows)
        whole = {"format": FORMAT, "fsd": version("fsd"), **job, "inputs": {file.url: file.hash for file in inputs}}
        if known:
            known.refuse_other(whole)
        return cls(path, whole, inputs, shards)

    @property
    def key(self) -> str:
        """Hash of the job."""
        return hashlib.sha256(json.dumps(self.job, sort_keys=True).encode()).hexdigest()

    def refuse_other(self, job: Mapping[str, Any]) -> None:
        """Refuse another job than that of the manifest."""
        for name, value in job.items():
            if self.job.get(name) != value:
                had, has = (json.dumps(each)[:40] for each in (self.job.get(name), value))
                raise UsageError(f"out must be a folder of this job; {self.path} has {name} {had}, not {has}")

    def agree(self, model: Mapping[str, str]) -> str:
        """Write the manifest, or check it if it is there; the key of the job."""
        made = self._replace(job={**self.job, **{f"model_{name}": value for name, value in model.items()}})
        with temporary_folder(self.path, DRAFTS) as drafts:
            draft = drafts / MANIFEST
            draft.write_text(json.dumps(Manifest(*made[1:])._asdict()), encoding="utf-8")
            try:
                (self.path / MANIFEST).hardlink_to(draft)  # unlike a rename it replaces no manifest of another process
            except FileExistsError:
                (self.known(self.path) or made).refuse_other(made.job)
            except OSError as error:
                raise UsageError(f"out must be on a file system with hard links; {self.path}: {error}") from error
        return made.key

    def missing(self, shards: Sequence[Shard]) -> list[Shard]:
        """The shards whose whole file is not there."""
        known = self.known(self.path)
        return [shard for shard in shards if not (known and self.done(shard, known.key))]

    def done(self, shard: Shard, key: str) -> bool:
        """Whether the whole file of a shard is there."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            metadata = pq.read_metadata(self.path / shard.name).metadata or {}
        except (OSError, pa.ArrowException):
            return False
        return bool(metadata.get(KEY) == f"{key}/{shard.number}".encode())


def job(
    name: str, work: Work, places: Sequence[str], finish: Callable[[Folder], Mapping[str, Path]] | None = None
) -> Job:
    """The job of a command whose output is a folder; `finish` makes further files of all shards."""
    options: ShardConfig = work.config.shards
    settings = {key: value for key, value in flags(work.config).items() if key not in ELSEWHERE}
    given = json.loads(json.dumps({"command": name, **settings}, default=str))
    folder = Folder.of(Path(work.config.out), places, options.shard_rows, given)
    share = _share(options.shard, folder.shards)
    return Job(
        partial(run, work, folder, share, finish),
        {
            "data": files(file.url for file in folder.inputs),
            "rows": f"{sum(file.rows for file in folder.inputs):,} in {len(folder.shards):,} shards",
            **({"share": f"{options.shard}: {len(share):,} shards"} if options.shard else {}),
        },
        writes=[folder.path],
        notes=["shards are computed one by one, without a tracked run"],
    )


def _share(text: str | None, shards: Sequence[Shard]) -> Sequence[Shard]:
    if text is None:
        return shards
    first, _, count = text.partition("/")
    if not (first.isdecimal() and count.isdecimal() and 1 <= int(first) <= int(count)):
        raise UsageError(f"shard must be I/N, with I from 1 to N; got {text!r}")
    return shards[int(first) - 1 :: int(count)]


def final(result: bytes | Exception, attempt: int) -> bool:
    """Whether a shard is not tried again."""
    return not isinstance(result, Exception) or isinstance(result, UsageError) or attempt == ATTEMPTS


def here(work: Work, shards: Sequence[Shard], agree: Agree) -> Results:
    """Compute shards in this process."""
    worker = work.open()
    key = agree(worker.identity)
    for shard in shards:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                result: bytes | Exception = worker.compute(shard, key)
            except Exception as error:
                result = error
            if final(result, attempt):
                break
        yield shard, result


def run(
    work: Work, folder: Folder, share: Sequence[Shard], finish: Callable[[Folder], Mapping[str, Path]] | None
) -> None:
    """Compute the shards that are missing, and say what is there."""
    from fsd.reporting.report import Against, Report

    name = work.config.shards.engine
    engine = import_module(f"pipelines.common.{name}_engine").compute if name else here
    with stage("scoring"):
        missing = folder.missing(share)
        failed = _compute(engine(work, missing, folder.agree), folder, missing) if missing else {}
    if failed:
        first = "; ".join(f"{shard}: {first_line(error)}" for shard, error in list(failed.items())[:3])
        raise StorageError(f"{len(failed):,} of {len(share):,} shards could not be computed: {first}")
    absent = folder.missing(folder.shards)
    rows = sum(shard.rows for shard in folder.shards) - sum(shard.rows for shard in absent)
    before = len(share) - len(missing)
    findings = [f"{before:,} shards were there, and were not computed again"] if before else []
    findings += [Against(f"{len(absent):,} shards of other shares are not there yet")] if absent else []
    made = finish(folder) if finish and not absent else {}
    headline = f"{rows:,} rows in {len(folder.shards) - len(absent):,} of {len(folder.shards):,} shards"
    show(Report(headline=headline, findings=findings, files={"shards": folder.path, **made}))


def _compute(results: Results, folder: Folder, shards: Sequence[Shard]) -> dict[Shard, Exception]:
    """Write the shards as they come; why others could not be computed."""
    failed: dict[Shard, Exception] = {}
    begun = said = time.monotonic()
    rows = sum(shard.rows for shard in shards)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"out must be a folder that can be written; {folder.path}: {error.strerror}") from error
    with progress(rows, "shards", "row") as bar:
        for number, (shard, result) in enumerate(results, 1):
            if isinstance(result, Exception):
                failed[shard] = result
                note(f"failed: shard {shard}: {first_line(result)}")
                if len(failed) == number and number == min(GIVE_UP, len(shards)):
                    raise result
            else:
                write_file(folder.path / shard.name, partial(Path.write_bytes, data=result))
            bar.update(shard.rows)
            now = time.monotonic()
            if not moving() and now - said > EVERY:
                said, left = now, (len(shards) - number) * (now - begun) / number
                note(f"{number:,} of {len(shards):,} shards, {tqdm.format_interval(left)} left")
    return failed
