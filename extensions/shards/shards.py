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
from fsd.api import (
    Finding,
    ShardConfig,
    StorageError,
    UsageError,
    at_least,
    first_line,
    flags,
    note,
    progress,
    read_json,
    refusing,
)
from pipelines.api import TABLE_SUFFIXES, Job, RowWork, Stated, Worker, files, show, stage, write_file

# Version of the manifest.
FORMAT = 1
# Readers of Parquet folders pass over names that begin with an underscore.
MANIFEST = "_manifest.json"
KEY = b"fsd.shard"
"""Metadata of a shard's file: hash of the job, and number of the shard."""
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


Results = Iterator[tuple[Shard, bytes | Exception]]
Agree = Callable[[Mapping[str, str]], str]
"""Identity of a worker's model → key of the job; a UsageError if the folder is of another model."""


def computed(worker: Worker, shard: Shard, key: str) -> bytes | Exception:
    """The Parquet file of a shard, or why there is none."""
    try:
        table = pa.Table.from_pandas(worker.table(shard.read()), preserve_index=False)
    except Exception as error:
        return error
    # pandas keeps its types in the metadata as well.
    metadata = table.schema.metadata | {KEY: _mark(shard, key)}
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata), sink)
    return bytes(sink.getvalue())


def _mark(shard: Shard, key: str) -> bytes:
    """What the file of a shard says of itself, so that it is not taken for one of another job."""
    return f"{key}/{shard.number}".encode()


class Manifest(NamedTuple):
    """A job, the files that it reads and their shards; the job lacks the model until one is loaded."""

    job: dict[str, Any]
    inputs: list[Input]
    shards: list[Shard]

    @classmethod
    def opened(cls, folder: Path) -> "Manifest | None":
        """That of an output folder; None if it has none."""
        file = folder / MANIFEST
        return read_json(cls, file, "the manifest of a folder of shards") if file.exists() else None

    @property
    def key(self) -> str:
        """Hash of the job."""
        return hashlib.sha256(json.dumps(self.job, sort_keys=True).encode()).hexdigest()

    def refuse_other(self, job: Mapping[str, Any], folder: Path) -> None:
        """Refuse another job than this one, which is that of a folder."""
        for name, value in job.items():
            stored = self.job.get(name)
            if stored != value:
                difference = f"{name} {json.dumps(stored)[:40]}, not {json.dumps(value)[:40]}"
                raise UsageError(f"out must be a folder of this job; {folder} has {difference}")


def planned(folder: Path, places: Sequence[str], rows: int, job: Mapping[str, Any]) -> Manifest:
    """Cut the files into shards, unless the folder has those of the same files; refuse the folder of another job."""
    at_least(1, **{"shard-rows": rows})
    # The output may lie within the folder of the data.
    files = data.find(places, folder.resolve())
    existing = Manifest.opened(folder)
    # Hidden files are drafts of another process that is about to write the manifest.
    if existing is None and folder.is_dir() and any(file.name[0] != "." for file in folder.iterdir()):
        raise UsageError(f"out must be a folder that is new, empty, or has a {MANIFEST} of shards; got {folder}")
    inputs: list[Input] = []
    shards: list[Shard] = []
    if existing and existing.job.get("shard_rows") == rows:
        _, inputs, shards = existing
    # By sizes and states, so that no byte has to be read again.
    if files != [(file.url, file.size, file.state) for file in inputs]:
        inputs, shards = data.cut(files, rows)
    hashes = {file.url: file.hash for file in inputs}
    whole = {"format": FORMAT, "fsd": version("fsd"), **job, "inputs": hashes}
    if existing:
        existing.refuse_other(whole, folder)
    return Manifest(whole, inputs, shards)


def agreed(folder: Path, plan: Manifest, model: Mapping[str, str]) -> str:
    """Write the manifest, or check the one that is there; the key of the job."""
    job = plan.job | {f"model_{name}": value for name, value in model.items()}
    existing = Manifest.opened(folder)
    if existing:
        existing.refuse_other(job, folder)
    plan = plan._replace(job=job)
    if plan != existing:
        # Another process of this job that begins now writes the same.
        content = json.dumps(plan._asdict())
        write_file(folder / MANIFEST, partial(Path.write_text, data=content, encoding="utf-8"))
    return plan.key


def missing(folder: Path, shards: Sequence[Shard]) -> list[Shard]:
    """The shards whose whole file is not there."""
    # The manifest's key is that of the job with its model.
    manifest = Manifest.opened(folder)
    key = manifest.key if manifest else ""
    return [shard for shard in shards if _mark_in(folder / shard.name) != _mark(shard, key)]


def _mark_in(file: Path) -> bytes:
    """What a file of a shard says of itself; nothing of one that is not whole."""
    try:
        metadata = pq.read_metadata(file).metadata or {}
    # A power cut may leave a part of a file under its name.
    except (OSError, pa.ArrowException):
        metadata = {}
    return bytes(metadata.get(KEY, b""))


def job(work: RowWork) -> Job | None:
    """The job of a command whose output is a folder of shards; None if it is a file."""
    options: ShardConfig = work.config.shards
    out = Path(work.config.out or "none.csv")
    # "." has no name; a name with a dot is that of a folder if there is one, unless it ends as a table does.
    if not out.name or out.suffix.lower() in TABLE_SUFFIXES or (out.suffix and not out.is_dir()):
        if options != ShardConfig():
            raise UsageError(f"out must be a folder where shards are asked for; got {work.config.out}")
        return None
    for name, value in work.together.items():
        if value:
            flag = name.replace("_", "-")
            raise UsageError(f"{flag} must not be given where out is a folder of shards; got {value}")
    settings = {key: value for key, value in flags(work.config).items() if key not in ELSEWHERE}
    # As the manifest gives them back: lists for tuples, strings for paths.
    settings = json.loads(json.dumps({"command": work.command, **settings}, default=str))
    plan = planned(out, work.places, options.shard_rows, settings)
    share = _share(options.shard, plan.shards)
    rows = sum(file.rows for file in plan.inputs)
    count = len(plan.shards)
    reads = {"data": files(file.url for file in plan.inputs)}
    reads["rows"] = Stated(f"{rows:,} in {count:,} shards", {"rows": rows, "shards": count})
    if options.shard:
        reads["share"] = Stated(f"{options.shard}: {len(share):,} shards", {"shards": len(share)})
    return Job(
        partial(run, work, out, plan, share),
        reads,
        writes=[out],
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


def in_this_process(work: RowWork, shards: Sequence[Shard], agree: Agree) -> Results:
    """Compute shards in this process."""
    worker = work.open()
    key = agree(worker.identity)
    for shard in shards:
        yield shard, computed(worker, shard, key)


def run(work: RowWork, folder: Path, plan: Manifest, share: Sequence[Shard]) -> None:
    """Compute the shards that are missing, and say what is there."""
    from fsd.api import Report

    name = work.config.shards.engine
    engine = import_module(f"extensions.shards.{name}_engine").compute if name else in_this_process
    with stage("scoring"):
        wanted = missing(folder, share)
        if wanted:
            _compute(engine(work, wanted, partial(agreed, folder, plan)), folder, wanted)
    absent = missing(folder, plan.shards)
    findings = []
    if len(wanted) < len(share):
        findings.append(Finding(f"{len(share) - len(wanted):,} shards were there, and were not computed again"))
    further: Mapping[str, Path] = {}
    if absent:
        findings.append(Finding(f"{len(absent):,} shards of other shares are not there yet", sign=False))
    elif work.finish:
        tables = [folder / shard.name for shard in plan.shards]
        further = work.finish(folder, tables, [file.url for file in plan.inputs])
    count = len(plan.shards)
    rows = sum(file.rows for file in plan.inputs) - sum(shard.rows for shard in absent)
    headline = f"{rows:,} rows in {count - len(absent):,} of {count:,} shards"
    show(Report(headline=headline, findings=findings, files={"shards": folder, **further}))


def _compute(results: Results, folder: Path, shards: Sequence[Shard]) -> None:
    """Write the shards as they come; a StorageError names those that could not be computed."""
    failed: list[str] = []
    with refusing("out must be a folder that can be written; ", OSError):
        folder.mkdir(parents=True, exist_ok=True)
    # If so many shards have failed and none has succeeded, the others would fail too.
    limit = min(3, len(shards))
    with progress(sum(shard.rows for shard in shards), "shards", "row") as bar:
        for number, (shard, result) in enumerate(results, 1):
            if isinstance(result, Exception):
                failed.append(f"{shard}: {first_line(result)}")
                note(f"failed: shard {failed[-1]}")
                if len(failed) == number == limit:
                    raise result
            else:
                write_file(folder / shard.name, partial(Path.write_bytes, data=result))
            bar.update(shard.rows)
    if failed:
        count = f"{len(failed):,} of {len(shards):,}"
        raise StorageError(f"{count} shards could not be computed: {'; '.join(failed[:3])}")
