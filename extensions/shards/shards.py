"""Many texts in shards: a folder of Parquet files, one a shard, computed by any number of processes and machines.

A shard's file appears by rename, complete, and names its job: the hash of settings, input, model and version that the
manifest holds. So a shard that is there is not computed again, however a process ended, and a folder of another job is
refused. Who computes a shard does not matter: this process, one of several with `--shard I/N`, or a worker of Ray.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from extensions.shards import files as data
from extensions.shards.files import Input, Shard
from fsd.config import ShardConfig, flags
from fsd.errors import StorageError, UsageError, first_line
from fsd.evaluation.findings import AGAINST, Finding
from fsd.files import read_json
from fsd.leftovers import temporary_folder
from fsd.net.hub import DataFile
from fsd.progress import note, progress
from pipelines.command.context import stage
from pipelines.command.deliver import show
from pipelines.command.job import Job, Stated, files
from pipelines.command.output import TABLE_SUFFIXES, write_file
from pipelines.command.workers import Finish, RowWork, Work, Worker

# Version of the manifest.
FORMAT = 1
# Readers of Parquet folders pass over names that begin with an underscore.
MANIFEST = "_manifest.json"
KEY = b"fsd.shard"
"""Metadata of a shard's file: hash of the job, and number of the shard."""
# If so many shards have failed and none has succeeded, the others would fail too.
GIVE_UP = 3
# Settings on which no number depends, or that the manifest holds in another form.
ELSEWHERE = {
    "out",
    "data",
    "files",
    "corpus",
    "device",
    "cache",
    "domain",
    "cutoff",
    "concurrency",
    "requests_per_minute",
    "price",
}
ELSEWHERE |= flags(ShardConfig()).keys() - {"shard_rows"}


def computed(worker: Worker, shard: Shard, key: str) -> bytes:
    """The Parquet file of a shard."""
    table = pa.Table.from_pandas(worker.table(shard.read()), preserve_index=False)
    # pandas keeps its types in the metadata as well.
    metadata = {**(table.schema.metadata or {}), KEY: _mark(shard, key)}
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _mark(shard: Shard, key: str) -> bytes:
    """What the file of a shard says of itself, so that it is not taken for one of another job."""
    return f"{key}/{shard.number}".encode()


Results = Iterator[tuple[Shard, bytes | Exception]]
Agree = Callable[[Mapping[str, str]], str]
"""Identity of a worker's model → key of the job; a UsageError if the folder is of another model."""


def wanted(out: str | Path | None, options: ShardConfig) -> bool:
    """Whether the output is a folder of shards rather than a file, or none."""
    path = Path(out or "none.csv")
    # "." has no name; a name with a dot is that of a folder if there is one.
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
    def opened(cls, path: Path) -> "Folder | None":
        """A folder that has a manifest."""
        file = path / MANIFEST
        if not file.exists():
            return None
        return cls(path, *read_json(Manifest, file, "the manifest of a folder of shards"))

    @classmethod
    def for_job(cls, path: Path, places: Sequence[str], rows: int, job: Mapping[str, Any]) -> "Folder":
        """Cut the files into shards, unless the manifest has those of the same files; refuse another job's folder."""
        if rows < 1:
            raise UsageError(f"shard-rows must be at least 1; got {rows}")
        # The output may lie within the folder of the data.
        files = data.find(places, path.resolve())
        existing = cls.opened(path)
        # Hidden files are drafts of another process that is about to write the manifest.
        if existing is None and path.is_dir() and any(file.name[0] != "." for file in path.iterdir()):
            raise UsageError(f"out must be a folder that is new, empty, or has a {MANIFEST} of shards; got {path}")
        if existing and existing.cut_from(files, rows):
            inputs = existing.inputs
            shards = existing.shards
        else:
            inputs, shards = data.cut(files, rows)
        hashes = {file.url: file.hash for file in inputs}
        whole = {"format": FORMAT, "fsd": version("fsd"), **job, "inputs": hashes}
        if existing:
            existing.refuse_other(whole)
        return cls(path, whole, inputs, shards)

    def cut_from(self, files: Sequence[DataFile], rows: int) -> bool:
        """Whether the shards are those of files, by sizes and states, so that no byte has to be read again."""
        states = [(file.url, file.size, file.state) for file in self.inputs]
        return self.job.get("shard_rows") == rows and states == files

    @property
    def key(self) -> str:
        """Hash of the job."""
        return hashlib.sha256(json.dumps(self.job, sort_keys=True).encode()).hexdigest()

    def refuse_other(self, job: Mapping[str, Any]) -> None:
        """Refuse another job than that of the manifest."""
        for name, value in job.items():
            stored = self.job.get(name)
            if stored != value:
                difference = f"{name} {json.dumps(stored)[:40]}, not {json.dumps(value)[:40]}"
                raise UsageError(f"out must be a folder of this job; {self.path} has {difference}")

    def agree(self, model: Mapping[str, str]) -> str:
        """Write the manifest, or check it if it is there; the key of the job."""
        job = self.job | {f"model_{name}": value for name, value in model.items()}
        manifest = Manifest(job, self.inputs, self.shards)
        with temporary_folder(self.path) as drafts:
            draft = drafts / MANIFEST
            draft.write_text(json.dumps(manifest._asdict()), encoding="utf-8")
            try:
                # Unlike a rename it replaces no manifest of another process.
                (self.path / MANIFEST).hardlink_to(draft)
            except FileExistsError:
                existing = self.opened(self.path)
                if existing:
                    existing.refuse_other(job)
            except OSError as error:
                raise UsageError(f"out must be on a file system with hard links; {self.path}: {error}") from error
        return self._replace(job=job).key

    def missing(self, shards: Sequence[Shard]) -> list[Shard]:
        """The shards whose whole file is not there."""
        # The manifest's key is that of the job with its model.
        existing = self.opened(self.path)
        if existing is None:
            return list(shards)
        key = existing.key
        return [shard for shard in shards if not self.done(shard, key)]

    def done(self, shard: Shard, key: str) -> bool:
        """Whether the whole file of a shard is there."""
        try:
            metadata = pq.read_metadata(self.path / shard.name).metadata or {}
        # A power cut may leave a part of a file under its name.
        except (OSError, pa.ArrowException):
            return False
        return bool(metadata.get(KEY) == _mark(shard, key))


def job(work: RowWork) -> Job | None:
    """The job of a command whose output is a folder of shards; None if it is a file."""
    config = work.work.config
    if not wanted(config.out, config.shards):
        return None
    for name, value in work.together.items():
        if value:
            flag = name.replace("_", "-")
            raise UsageError(f"{flag} must not be given where out is a folder of shards; got {value}")
    options: ShardConfig = config.shards
    settings = {key: value for key, value in flags(config).items() if key not in ELSEWHERE}
    # As the manifest gives them back: lists for tuples, strings for paths.
    settings = json.loads(json.dumps({"command": work.command, **settings}, default=str))
    folder = Folder.for_job(Path(config.out), work.places, options.shard_rows, settings)
    share = _share(options.shard, folder.shards)
    rows = sum(file.rows for file in folder.inputs)
    count = len(folder.shards)
    reads = {"data": files(file.url for file in folder.inputs)}
    reads["rows"] = Stated(f"{rows:,} in {count:,} shards", {"rows": rows, "shards": count})
    if options.shard:
        reads["share"] = Stated(f"{options.shard}: {len(share):,} shards", {"shards": len(share)})
    return Job(
        partial(run, work.work, folder, share, work.finish),
        reads,
        writes=[folder.path],
        notes=["shards are computed one by one, without a tracked run"],
        checks=work.checks,
    )


def _share(text: str | None, shards: Sequence[Shard]) -> Sequence[Shard]:
    if text is None:
        return shards
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UsageError(f"shard must be I/N, with I from 1 to N; got {text!r}")
    # Every N-th one, so that the last process has not all the last, smaller shards.
    return shards[int(number) - 1 :: int(count)]


def attempted(worker: Worker, shard: Shard, key: str) -> bytes | Exception:
    """The file of a shard, or why there is none."""
    try:
        return computed(worker, shard, key)
    except Exception as error:
        return error


def here(work: Work, shards: Sequence[Shard], agree: Agree) -> Results:
    """Compute shards in this process."""
    worker = work.open()
    key = agree(worker.identity)
    for shard in shards:
        yield shard, attempted(worker, shard, key)


def run(work: Work, folder: Folder, share: Sequence[Shard], finish: Finish | None) -> None:
    """Compute the shards that are missing, and say what is there."""
    from fsd.reporting.report import Report

    name = work.config.shards.engine
    engine = here
    if name:
        engine = import_module(f"extensions.shards.{name}_engine").compute
    failed = {}
    with stage("scoring"):
        missing = folder.missing(share)
        if missing:
            failed = _compute(engine(work, missing, folder.agree), folder, missing)
    if failed:
        examples = [f"{shard}: {first_line(error)}" for shard, error in failed.items()]
        raise StorageError(f"{len(failed):,} of {len(share):,} shards could not be computed: {'; '.join(examples[:3])}")
    absent = folder.missing(folder.shards)
    findings = []
    reused = len(share) - len(missing)
    if reused:
        findings.append(Finding(f"{reused:,} shards were there, and were not computed again"))
    further: Mapping[str, Path] = {}
    if absent:
        findings.append(Finding(f"{len(absent):,} shards of other shares are not there yet", AGAINST))
    elif finish:
        tables = [folder.path / shard.name for shard in folder.shards]
        further = finish(folder.path, tables, [file.url for file in folder.inputs])
    rows = sum(shard.rows for shard in folder.shards) - sum(shard.rows for shard in absent)
    headline = f"{rows:,} rows in {len(folder.shards) - len(absent):,} of {len(folder.shards):,} shards"
    show(Report(headline=headline, findings=findings, files={"shards": folder.path, **further}))


def _compute(results: Results, folder: Folder, shards: Sequence[Shard]) -> dict[Shard, Exception]:
    """Write the shards as they come; why others could not be computed."""
    failed = {}
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"out must be a folder that can be written; {folder.path}: {error.strerror}") from error
    limit = min(GIVE_UP, len(shards))
    with progress(sum(shard.rows for shard in shards), "shards", "row") as bar:
        for number, (shard, result) in enumerate(results, 1):
            if isinstance(result, Exception):
                failed[shard] = result
                note(f"failed: shard {shard}: {first_line(result)}")
                if len(failed) == number == limit:
                    raise result
            else:
                write_file(folder.path / shard.name, partial(Path.write_bytes, data=result))
            bar.update(shard.rows)
    return failed
