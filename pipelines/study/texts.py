"""The texts of a cell: loaded, changed and split. Each benchmark is read once."""

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta

from fsd.config import CleaningConfig, DataConfig, ModelConfig
from fsd.data import embedded
from fsd.data.documents import Document
from fsd.data.splitting import Split, split
from fsd.errors import UsageError
from pipelines.common import datasets
from pipelines.study.grid import Cell

DATED = "dated"
LATER = timedelta(days=912)
"""Length of the embedded corpus's period: by so much the non-members of `embedded:dated` are later than their dates."""


def load_documents(
    entries: tuple[str, ...], columns: str = "", cleaning: CleaningConfig | None = None
) -> tuple[Document, ...]:
    """Labelled texts of files, published benchmarks and the embedded corpus, merged into one benchmark.

    Raises:
        UsageError: for no entries, an unreadable file, an unavailable benchmark, members that are copies of
            non-members, or an unknown field.
    """
    return _load(entries, columns, cleaning or CleaningConfig())[0]


@functools.lru_cache(maxsize=32)
def _load(
    entries: tuple[str, ...], columns: str, cleaning: CleaningConfig
) -> tuple[tuple[Document, ...], tuple[str, ...]]:
    """The texts, and remarks on those that were left out."""
    if not entries:
        raise UsageError("a study must have texts: give --data FILE or the name of a benchmark")
    own = [entry for entry in entries if entry.partition(":")[0] == "embedded"]
    others = tuple(entry for entry in entries if entry not in own)
    documents = tuple(document for entry in own for document in _embedded(entry.partition(":")[2]))
    if not others:
        return documents, ()
    loaded = datasets.load_texts(DataConfig(data=others, columns=columns, cleaning=cleaning), ModelConfig())
    return (*loaded.documents, *documents), loaded.remarks


def _embedded(part: str) -> list[Document]:
    """The embedded corpus, with dates put before the texts (`dated`), or only its texts of some fields.

    The dates that are put before members and non-members are of two periods, as in a benchmark that is split by time.
    """
    corpus = list(embedded.corpus())
    if not part:
        return corpus
    if part == DATED:
        return [replace(d, text=f"{_shown_date(d):%d %B %Y}. {d.text}") for d in corpus]
    rows = map(json.loads, embedded.CORPUS.read_text(encoding="utf-8").splitlines())
    field = {row["id"]: row["field"].partition(".")[0] for row in rows}
    fields = set(part.split(","))
    if fields - set(field.values()):
        raise UsageError(f"fields must be out of {', '.join(sorted(set(field.values())))}; got {part!r}")
    return [d for d in corpus if field[d.group] in fields]


def _shown_date(document: Document) -> date:
    day = document.date or embedded.CUTOFF
    return day if document.member else day + LATER


@functools.lru_cache(maxsize=64)
def _ablated(
    entries: tuple[str, ...],
    columns: str,
    cleaning: CleaningConfig,
    timestamps: str,
    words: int | None,
    where: str | None,
) -> tuple[Document, ...]:
    from fsd.data.ablations import retime, truncate
    from fsd.data.segments import segments

    documents: Sequence[Document] = load_documents(entries, columns, cleaning)
    if timestamps != "keep":
        documents = retime(documents, timestamps)  # type: ignore[arg-type]  # see TextOptions.timestamps
    if words is not None and where:
        documents = [replace(d, text=text) for d in documents for text in segments(d.text, words, (where,))]
    elif words is not None:
        documents = truncate(documents, words)
    if not documents:
        raise UsageError(f"texts must have at least {words} words; none of {', '.join(entries)} has")
    return tuple(documents)


def remarks(cell: Cell) -> tuple[str, ...]:
    """What was left out of the texts of a cell before they were split."""
    data = cell.config.data
    return _load(tuple(data.data), data.columns, data.cleaning)[1]


def split_texts(cell: Cell, *, trained: bool) -> Split:
    """Unseen, validation and test texts of a cell; without training all texts are test texts.

    Raises:
        UsageError: as `load_documents`, and for too few texts.
    """
    from fsd.data.ablations import add_unseen, fine_tuning_set, take_unseen

    data, options, seed = cell.config.data, cell.texts, cell.config.seed
    documents = _ablated(
        tuple(data.data), data.columns, data.cleaning, options.timestamps, options.words, options.where
    )
    if not trained:
        return Split((), (), documents)
    if isinstance(data.unseen, str):
        raise UsageError(f"unseen must be a share between 0 and 1; got {data.unseen!r}")
    if options.trained_on:
        return fine_tuning_set(
            documents,
            options.trained_on,
            share=data.unseen,
            validation=data.validation,
            scheme=data.split,
            seed=seed,
        )
    parts = split(documents, unseen=data.unseen, validation=data.validation, scheme=data.split, seed=seed)
    if options.unseen_from != "own":
        other = load_documents(options.other, data.columns, data.cleaning)
        unseen = split(other, unseen=data.unseen, validation=data.validation, scheme=data.split, seed=seed).unseen
        parts = add_unseen(parts, unseen, own=options.unseen_from == "both")
    if options.unseen_count is not None:
        if options.unseen_count > len(parts.unseen):
            raise UsageError(
                f"unseen texts must be at least {options.unseen_count}; the share {data.unseen} set aside "
                f"holds {len(parts.unseen)}: give more texts by --data"
            )
        parts = take_unseen(parts, options.unseen_count, seed=seed)
    return parts
