"""Files that pipelines write at a path of the user's choice; each appears complete or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.errors import StorageError, UsageError

if TYPE_CHECKING:
    import pandas as pd

TABLE_SUFFIXES = (".parquet", ".csv", ".jsonl")


def check_table_path(path: Path) -> None:
    """Check that a table can be written to the path.

    Raises:
        UsageError: for another suffix than those in `TABLE_SUFFIXES`, and as for `check_path`.
    """
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise UsageError(f"out must end in {', '.join(TABLE_SUFFIXES)}; got {path}")
    check_path(path)


def check_path(path: Path) -> None:
    """Check that a file can be written to the path.

    Raises:
        UsageError: if its folder does not exist, or the path is a folder.
    """
    if not path.resolve().parent.is_dir() or path.is_dir():
        raise UsageError(f"an output file must be in a folder that exists, and not be a folder; got {path}")


def write_table(table: "pd.DataFrame", path: Path) -> None:
    """Write a table, without its index, in the format of the suffix.

    Raises:
        StorageError: if the file cannot be written, or the disk is full.
    """
    writers: dict[str, Callable[[Path], object]] = {
        ".parquet": lambda draft: table.to_parquet(draft, index=False),
        ".csv": lambda draft: table.to_csv(draft, index=False),
        ".jsonl": lambda draft: table.to_json(
            draft, orient="records", lines=True, force_ascii=False, double_precision=15
        ),
    }
    _write(path, writers[path.suffix.lower()])


def write_text(text: str, path: Path) -> None:
    """Write a UTF-8 text file.

    Raises:
        StorageError: if the file cannot be written, or the disk is full.
    """
    _write(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def _write(path: Path, write: Callable[[Path], object]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(draft)
        draft.replace(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A draft of the folder at `path`, which takes its place when the block ends without an error.

    Raises:
        UsageError: if the path exists and is not an empty folder, or nothing can be written beside it.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"out must be a folder that does not exist or is empty; got {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=path.parent, prefix=".fsd-")
    except OSError as error:
        raise UsageError(f"out must be in a folder that can be written; {path}: {error.strerror}") from error
    with scratch as folder:
        draft = Path(folder) / path.name
        draft.mkdir()
        yield draft
        if path.exists():
            path.rmdir()
        draft.replace(path)
