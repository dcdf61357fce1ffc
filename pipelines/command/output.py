"""Files that pipelines write at a path of the user's choice; each appears complete or not at all."""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.errors import StorageError, UsageError
from fsd.files import csv_text
from fsd.leftovers import replacing, temporary_folder

if TYPE_CHECKING:
    import pandas as pd

    from fsd.data.documents import Document

TABLE_SUFFIXES = (".parquet", ".csv", ".jsonl")
# Rows of a large table that are written at a time, so that it need not fit into the memory.
ROWS = 4096


def check_table_path(out: str | Path | None, inputs: Iterable[str | Path] = ()) -> None:
    """Check that a table can be written to the path, if there is one."""
    if out is None:
        return
    path = Path(out)
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise UsageError(f"out must end in {', '.join(TABLE_SUFFIXES)}; got {path}")
    check_path(path, inputs)


def check_path(path: Path, inputs: Iterable[str | Path] = (), *, create_folder: bool = False) -> None:
    """Check that a file can be written to the path, by writing an empty one beside it."""
    try:
        if create_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not path.resolve().parent.is_dir() or (path.exists() and not path.is_file()):
            raise UsageError(
                f"an output file must be in a folder that exists, and not be a folder or device; got {path}"
            )
        for source in inputs:
            if _same(path, Path(source)):
                raise UsageError(f"an output file must not replace an input; {path} is the input {source}")
            if _in_folder(path, source):
                raise UsageError(
                    f"an output file must not be in a folder of inputs, as one of which it would be read; {path} is in "
                    f"{source}"
                )
        # Rights alone do not tell: the disk may be full, or the name too long for it.
        with temporary_folder(path.parent) as folder:
            (folder / path.name).touch()
        # A rename replaces it all the same, since that asks the folder.
        if path.exists() and not os.access(path, os.W_OK):
            raise UsageError(f"an output file that exists must not be write-protected; {path} is")
    except OSError as error:
        raise UsageError(
            f"an output file must have a path that can be written; {path} cannot be: {error.strerror}"
        ) from error


def _same(path: Path, source: Path) -> bool:
    try:
        return path.samefile(source)
    except OSError:  # one of them does not exist
        return False


def _in_folder(path: Path, source: str | Path) -> bool:
    """Whether a table would lie in a folder whose tables are inputs."""
    # os.path, because pathlib raises for a name that is too long
    if path.suffix.lower() not in TABLE_SUFFIXES or not os.path.isdir(source):  # noqa: PTH112
        return False
    folder = Path(source).resolve()
    place = path.resolve()
    if not place.is_relative_to(folder):
        return False
    # Hidden files of a folder are passed over.
    return not any(part.startswith(".") for part in place.relative_to(folder).parts)


def text_table(documents: "Sequence[Document]", *columns: str) -> "pd.DataFrame":
    """The columns of texts: fields of the documents, and the label, 1 or 0 where it is known."""
    import pandas as pd

    table = pd.DataFrame()
    for column in columns:
        if column == "label":
            # Through truth values, as text files read them; an unknown label is NA.
            members = pd.array([document.member for document in documents], dtype="boolean")
            table[column] = members.astype("Int64")
        else:
            # Files call the place of a single text its source.
            attribute = "origin_url" if column == "source" else column
            table[column] = [getattr(document, attribute) for document in documents]
    return table


def write_table(table: "pd.DataFrame", out: str | Path | None) -> None:
    """Write a table, without its index, in the format of the suffix, if there is a path."""
    if out is None:
        return
    path = Path(out)

    def write(draft: Path) -> None:
        suffix = path.suffix.lower()
        if suffix == ".parquet":
            table.to_parquet(draft, index=False)
        elif suffix == ".csv":
            draft.write_bytes(csv_text(table).encode())
        else:
            # pandas writes ten digits otherwise.
            table.to_json(draft, orient="records", lines=True, force_ascii=False, double_precision=15)

    write_file(path, write)


def write_rows(rows: Iterable[Mapping[str, object]], path: Path | None, example: Mapping[str, object]) -> None:
    """Write any number of rows as a Parquet file; without a path they are only drawn.

    The `example` has a value in every column, which gives its type: the first thousands of rows may have none.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    remaining = iter(rows)
    batches = iter(lambda: list(islice(remaining, ROWS)), [])
    if path is None:
        deque(batches, maxlen=0)
        return

    def write(draft: Path) -> None:
        schema = pa.Table.from_pylist([example]).schema
        with pq.ParquetWriter(draft, schema) as writer:
            for batch in batches:
                writer.write_table(pa.Table.from_pylist(batch, schema))

    write_file(path, write)


def write_text(text: str, path: Path) -> None:
    """Write a UTF-8 text file."""
    write_file(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file, which appears complete."""
    try:
        with replacing(path) as draft:
            write(draft)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def check_new_folder(path: Path) -> None:
    """Check that a folder can be made at the path without replacing anything."""
    taken = any(path.iterdir()) if path.is_dir() else path.exists()
    if taken:
        raise UsageError(f"out must be a folder that does not exist or is empty; got {path}")


def check_parent(path: Path) -> None:
    """Refuse a file or folder that could not be made, by the nearest folder above it that exists."""
    above = path.absolute().parent
    while not above.exists():
        above = above.parent
    # Rights alone do not tell: the disk may be full, or of a kind on which nothing can be made.
    try:
        with temporary_folder(above):
            pass
    except OSError as error:
        raise UsageError(f"out must be in a folder that can be written; {path}: {error.strerror}") from error


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A draft of the folder at `path`, which takes its place when the block ends without an error."""
    check_new_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft:
        draft.mkdir()
        yield draft
