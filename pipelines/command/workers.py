"""Work on rows in any order: what a command gives to an extension that computes more of them than memory holds."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fsd.data.cells import Row
from fsd.data.documents import Document
from fsd.data.fields import parse_columns
from fsd.data.readers import parse_rows
from fsd.files import digest

if TYPE_CHECKING:
    import pandas as pd

    from fsd.models.language_model import LanguageModel

EXAMPLE = Document("An Example of a text.")
TableOfRows = Callable[[list[tuple[str, Row]]], "pd.DataFrame"]
"""Rows, each after its origin → a table of the same columns for any rows."""


class Worker(NamedTuple):
    """What makes tables of rows, by a model: what their numbers depend on, and the table."""

    identity: Mapping[str, str]
    table: TableOfRows


class RowWork(NamedTuple):
    """A command whose work can be done in parts, by what fills the socket `compute` of fsd/plugs.py.

    The `open_worker` of the `module` makes a worker of the settings, in whichever process it is needed. `together` are
    settings that need all rows at once, by name; `finish` makes further files of all tables, by name, from the output
    folder, its tables and the files that were read; the `checks` are those of a job.
    """

    command: str
    module: str
    config: Any
    places: Sequence[str]
    together: Mapping[str, object]
    finish: Callable[[Path, Sequence[Path], Sequence[str]], Mapping[str, Path]] | None = None
    checks: Sequence[Callable[[], object]] = ()

    def open(self) -> Worker:
        """Load the model."""
        # By its name, as the process that computes may be another one.
        worker: Worker = import_module(self.module).open_worker(self.config)
        return worker


def table_by_documents(
    config: Any,
    make: "Callable[[list[Document]], pd.DataFrame]",
    check: Callable[[list[Document]], None] | None = None,
    unread: Sequence[str] = (),
) -> TableOfRows:
    """A worker's table by a function of documents, which are never none: rows without any have the same columns.

    `check` refuses documents that cannot be computed; fields that are `unread` have no use.
    """
    columns = parse_columns(config.columns, answers=True, unread=unread)

    def table(rows: list[tuple[str, Row]]) -> "pd.DataFrame":
        # What is left out is counted for nobody: a part is one of many.
        skipped = Counter[str]() if config.cleaning.skip_invalid else None
        documents = list(parse_rows(rows, columns, answers=True, skipped=skipped))
        if check:
            check(documents)
        # Rows of which none can be read have the columns of the others.
        return make(documents or [EXAMPLE]).iloc[: len(documents)]

    return table


def identity(model: "LanguageModel", *files: Path | None) -> dict[str, str]:
    """What the numbers of a model depend on: weights, adapter, precision, versions; and files that it is used with."""
    from fsd.scoring.cache import model_key

    hashes = [digest(file)[:16] for file in files if file]
    identity = {
        "name": model.identity.id,
        "weights": model.identity.fingerprint,
        "numbers": model_key(model, tuned=model.adapted),
        "files": " ".join(hashes),
    }
    # By which chats are written.
    template = model.template or model.tokenizer.chat_template
    if template:
        identity["template"] = hashlib.sha256(str(template).encode()).hexdigest()[:16]
    return identity
