"""Readers of users' files: files, folders and tasks → documents, with a check of every row.

A folder stands for the files below it, also in linked folders, without hidden ones.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from fsd.data import cells
from fsd.data.cells import Row, RowError
from fsd.data.documents import Document
from fsd.data.fields import PLACE, Columns, document
from fsd.data.formats import READABLE, TABLES, file_rows, files_below, with_packed
from fsd.errors import UsageError, refusing
from fsd.files import JSON, named_below, read_json, read_text
from fsd.net.hub import REPOSITORY
from fsd.plugs import entry_of

SAVED_STATE = "state.json"
"""File of a data set that `datasets` saved in a folder."""
Paths = Iterable[str | Path]
Skipped = Counter[str] | None
"""Reason → rows that were left out; None where the first of them is an error."""


def read_texts(
    paths: Paths,
    columns: Columns | None = None,
    *,
    answers: bool = False,
    contexts: bool = False,
    skipped: Skipped = None,
) -> list[Document]:
    """Texts with or without labels: rows of data files, .txt files as one text each, and folders of the ones or others.

    Rows without a text, and blank .txt files, are counted in `skipped`, as by `read_files`.
    """
    documents: list[Document] = []
    for path in _distinct(paths, "file with a text"):
        files = _plain_files(path)
        if files:
            documents += _text_files(files, skipped)
        else:
            documents += read_files([path], columns, answers=answers, contexts=contexts, skipped=skipped)
    return documents


def read_files(
    paths: Paths,
    columns: Columns | None = None,
    *,
    labelled: bool = False,
    answers: bool = False,
    contexts: bool = False,
    skipped: Skipped = None,
) -> list[Document]:
    """All rows of all files, or tasks of lm-evaluation-harness, as one benchmark, in order; sources are file:line.

    `columns` are those of fields that have others; `labelled` refuses a row without a label. `answers` reads what is an
    answer with what it answers: chats, and the column `context`; `contexts` gives the answers of a task after its
    questions. Rows without a text or with an invalid label are counted in `skipped` by reason; without it, the first is
    a `RowError`.
    """
    documents = []
    for path in _distinct(paths, "data file"):
        entry = entry_of(path)
        if entry:
            rows = list(entry.rows(contexts=contexts))
            names: Columns = {}
        else:
            names = columns or {}
            rows = _with_named(read_rows([path]), names)
        read = list(parse_rows(rows, names, labelled=labelled, answers=answers or contexts, skipped=skipped))
        if not read:
            raise UsageError(
                f"{path} must have at least one valid row; all {len(rows)} have no text or no label of 0 or 1"
            )
        documents += read
    return documents


def _distinct(paths: Paths, what: str) -> list[Path]:
    files = [Path(path) for path in paths]
    if not files:
        raise UsageError(f"at least one {what} must be given; got none")
    if len(set(map(os.path.realpath, files))) < len(files):
        raise UsageError(f"each data file must be given once; got {', '.join(map(str, files))}")
    return files


def _with_named(rows: list[tuple[str, Row]], columns: Columns) -> list[tuple[str, Row]]:
    """The rows of a file, in which a named column may be missing in some, as in JSON an empty cell is."""
    named = set(columns.values()).union(*map(PLACE.findall, columns.values()))
    held = dict.fromkeys(named.intersection(chain.from_iterable(row for _, row in rows)))
    if not held:
        return rows
    return [(origin_url, held | dict(row)) for origin_url, row in rows]


def parse_rows(
    rows: Iterable[tuple[str, Row]],
    columns: Columns,
    *,
    labelled: bool = False,
    answers: bool = False,
    skipped: Skipped = None,
) -> Iterator[Document]:
    """Rows, each after its origin, as documents; the other arguments and errors are those of `read_files`."""
    for origin_url, row in rows:
        try:
            yield document(row, columns, origin_url, labelled=labelled, answers=answers)
        except RowError as error:
            _skip(skipped, error)


def _text_files(paths: Iterable[Path], skipped: Skipped) -> Iterator[Document]:
    for path in paths:
        # a character has up to four bytes
        text = read_text(path, largest=4 * cells.LONGEST).strip()
        if text:
            cells.check_characters(text, str(path), "text")
            yield Document(text, origin_url=str(path))
        else:
            _skip(skipped, RowError(f"{path} must hold a text that is not blank; it has none", "blank text"))


def _skip(skipped: Skipped, error: RowError) -> None:
    """Count what is left out, or raise the error where nothing is counted."""
    if skipped is None:
        raise error
    skipped[error.reason] += 1


def read_rows(paths: Paths) -> list[tuple[str, Row]]:
    """All rows of all files with their sources (file:line), unchecked; UsageError for a file without any.

    A folder stands for its data files, or for the data set that `datasets` saved there.
    """
    rows = []
    for path in chain.from_iterable(map(data_files_of, map(Path, paths))):
        if not os.path.exists(path):  # noqa: PTH110 - a name may be too long for pathlib
            raise UsageError(f"data file must exist; there is no {path}{_way_to_hub(str(path))}")
        of_file = [(f"{path}:{line}", row) for line, row in file_rows(path)]
        if not of_file:
            raise UsageError(f"{path} must have at least one row; it has none")
        rows += of_file
    return rows


def _way_to_hub(place: str) -> str:
    """How to get a data set of the hub, where a place that does not exist could be the id of one."""
    if not REPOSITORY.fullmatch(place) or place.lower().endswith(READABLE):
        return ""
    return (
        "; of a data set of the hub, save a split first: "
        f"datasets.load_dataset({place!r}, split='train').to_json('data.jsonl')"
    )


def files_of_texts(path: Path) -> list[Path]:
    """The files of texts that a path stands for, in the order in which `read_texts` reads them."""
    return _plain_files(path) or data_files_of(path)


def _plain_files(path: Path) -> list[Path]:
    """The .txt files that a path stands for: itself, or those below a folder; none where there are data files."""
    if not os.path.isdir(path):  # noqa: PTH112 - a name may be too long for pathlib
        return [path] if path.suffix.lower() == ".txt" else []
    texts = named_below(path, [".txt"])
    tables = named_below(path, with_packed(TABLES))
    if texts and tables:
        names = f"{texts[0].name} and {tables[0].name}"
        raise UsageError(f"a folder must hold .txt files, one text each, or data files alone; {path} has {names}")
    if not (texts or tables):
        raise UsageError(
            f"a folder must hold .txt files, one text each, or data files ({', '.join(TABLES)}); {path} has neither"
        )
    return texts


def data_files_of(path: Path) -> list[Path]:
    """The data files below a folder, or those of a data set that `datasets` saved there; the path of a file itself.

    A UsageError for a folder without any, or with the splits of a data set, of which one must be chosen.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - a name may be too long for pathlib
        return [path]
    state = path / SAVED_STATE
    if state.is_file() and (path / "dataset_info.json").is_file():
        saved = read_json(JSON, state, "the state of a saved data set")
        with refusing(f"{state} must list the files of a saved data set; "):
            # Others beside them are caches, or of an earlier saving. Whatever a name says, the file is of this folder.
            return [path / Path(entry["filename"]).name for entry in saved["_data_files"]]
    splits = sorted(file.parent.name for file in path.glob(f"*/{SAVED_STATE}"))
    if splits:
        raise UsageError(
            f"data must be one split of a saved data set; {path} holds {', '.join(splits)}: give {path / splits[0]}"
        )
    return files_below(path, TABLES, "data")
