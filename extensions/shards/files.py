"""Shards: parts of large files, which are found without loading the files and read one at a time.

A shard of JSONL is some lines, given by their bytes; one of Parquet is some rows. Files lie on disk, on the hub or at
any URL that fsspec opens (`s3://`, `gs://`, ...).
"""

import glob
import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from fsd.api import (
    TABLES,
    DataFile,
    UsageError,
    as_text,
    data_files,
    json_rows,
    named_below,
    parquet_rows,
    refusing,
    with_packed,
    without_credentials,
)

ENDINGS = (".jsonl", ".ndjson", ".parquet")
BLOCK = 2**24
"""Bytes that are read at a time."""


class Shard(NamedTuple):
    """Lines of a JSONL file from byte `begin` to `end`, or rows of a Parquet file, from `first_row` on, from 1."""

    number: int
    url: str
    begin: int
    end: int
    first_row: int
    rows: int

    @property
    def name(self) -> str:
        """Name of its file in the output folder."""
        return f"{self.number:06d}.parquet"

    def __str__(self) -> str:
        place = without_credentials(self.url)
        return f"{self.name} ({place}:{self.first_row}-{self.first_row + self.rows - 1})"

    def read(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Its rows, each after its origin (file:line)."""
        place = without_credentials(self.url)
        with DataFile(self.url, 0).open(whole=False) as file:
            if self.url.lower().endswith(".parquet"):
                rows = parquet_rows(self.url, file, rows=range(self.begin, self.end))
            else:
                file.seek(self.begin)
                text = as_text(self.url, file.read(self.end - self.begin), self.first_row)
                rows = json_rows(self.url, io.StringIO(text, newline="\n"), self.first_row)
            return [(f"{place}:{line}", row) for line, row in rows]


class Input(NamedTuple):
    """A file that was cut into shards: its bytes, rows and hash; and its state, see `DataFile`."""

    url: str
    size: int
    rows: int
    hash: str
    state: str


def files_at(place: str, endings: Sequence[str]) -> list[DataFile]:
    """A file, the files with these endings in a folder, or those of a pattern, sorted: local, or a URL of fsspec."""
    if place.startswith("hf:"):
        return data_files(place)
    if "://" in place:
        return _remote(place, tuple(endings))
    # The name of a file may look like a pattern.
    paths = [Path(place)]
    if Path(place).is_dir():
        paths = named_below(place, endings)
    elif not Path(place).is_file():
        paths = list(map(Path, sorted(glob.glob(place, recursive=True))))  # noqa: PTH207 - pathlib's takes no absolute ones
    files = []
    for path in paths:
        if path.is_dir():
            continue
        status = path.stat()
        files.append(DataFile(str(path), status.st_size, str(status.st_mtime_ns)))
    return files


def _remote(place: str, endings: tuple[str, ...]) -> list[DataFile]:
    """The same at a URL."""
    import fsspec

    # File systems have no common base class of errors.
    with refusing(f"data must be files, a folder or a pattern; {place}: "):
        system, path = fsspec.url_to_fs(place)
        is_folder = system.isdir(path)
        if system.isfile(path):
            entries = {path: system.info(path)}
        elif is_folder:
            entries = system.find(path, detail=True)
        else:
            entries = system.glob(path, detail=True)
    files = []
    for name, about in sorted(entries.items()):
        if about["type"] != "directory" and (name.lower().endswith(endings) or not is_folder):
            # Some file systems know a version or a hash, others the time of the last change: all of it is the state.
            facts = sorted((key, str(value)) for key, value in about.items())
            state = xxhash.xxh3_64_hexdigest(str(facts).encode())
            files.append(DataFile(system.unstrip_protocol(name), int(about["size"] or 0), state))
    return files


def find(places: Sequence[str], without: Path | None = None) -> list[DataFile]:
    """The files of files, folders, patterns and URLs, each once, `without` those below a folder."""
    files: dict[DataFile, None] = {}  # a pattern and a folder may name the same file
    for place in places:
        for file in files_at(place, with_packed(TABLES)):
            if without and Path(file.url).resolve().is_relative_to(without):
                continue
            if not file.url.lower().endswith(ENDINGS):
                raise UsageError(f"shards must be made of {', '.join(ENDINGS)}; got {file.url}")
            files[file] = None
    if not any(file.size for file in files):
        raise UsageError(
            f"data must hold a file that ends in {', '.join(ENDINGS)} and is not empty; got {', '.join(places)}"
        )
    return list(files)


def cut(files: Sequence[DataFile], rows: int) -> tuple[list[Input], list[Shard]]:
    """Files as shards of `rows` rows, the last one of each file having fewer; every byte is read once, for its hash."""
    inputs = []
    shards: list[Shard] = []
    for file in files:
        # network libraries have no common base class of errors
        with refusing(f"{file.url} must be a whole file that can be read; "):
            bounds, total, digest = _bounds(file, rows)
        inputs.append(Input(file.url, file.size, total, digest, file.state))
        for start, (begin, end) in zip(range(0, total, rows), pairwise(bounds), strict=True):
            size = min(rows, total - start)
            shards.append(Shard(len(shards), file.url, begin, end, start + 1, size))
    return inputs, shards


def _bounds(file: DataFile, rows: int) -> tuple[list[int], int, str]:
    """Where the shards of a file begin and end, its number of rows, and its hash."""
    import pyarrow.parquet as pq

    is_table = file.url.lower().endswith(".parquet")
    digest = xxhash.xxh3_128()
    bounds = [0]
    lines = 0
    offset = 0
    block = b""
    with file.open(whole=not is_table) as stream:
        while content := stream.read(BLOCK):
            block = content
            digest.update(block)  # in the same pass: a file may take minutes to read
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            # the line breaks that complete a shard, of which the blocks before have had a part
            bounds += (offset + 1 + ends[rows - 1 - lines % rows :: rows]).tolist()
            lines += len(ends)
            offset += len(block)
        if is_table:
            stream.seek(0)
            lines = pq.ParquetFile(stream).metadata.num_rows
            bounds = [*range(0, lines, rows), lines]
        elif bounds[-1] != offset:
            bounds.append(offset)
            lines += not block.endswith(b"\n")  # the last line need not be closed
    return bounds, lines, digest.hexdigest()
