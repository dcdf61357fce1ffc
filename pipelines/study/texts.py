"""The texts of a cell: loaded, changed and split. Each benchmark is read once."""

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from fsd.config import CleaningConfig, DataConfig, ModelConfig
from fsd.data import embedded
from fsd.data.documents import Document
from fsd.data.splitting import Split, split
from fsd.errors import UsageError
from pipelines.common import datasets
from pipelines.common.datasets import LabelledTexts
from pipelines.study.catalogue import TextOptions
from pipelines.study.grid import Cell

DATED = "dated"
LATER = timedelta(days=912)
"""Length of the embedded corpus's period: by so much the non-members of `embedded:dated` are later than their dates."""


@functools.lru_cache(maxsize=32)
def load(entries: tuple[str, ...], columns: str = "", cleaning: CleaningConfig | None = None) -> LabelledTexts:
    """Labelled texts of files, published benchmarks and the embedded corpus, merged into one benchmark.

    Raises:
        UsageError: for no entries, an unreadable file, an unavailable benchmark, members that are copies of
            non-members, or an unknown field.
    """
    if not entries:
        raise UsageError("a study must have texts: give --data FILE or the name of a benchmark")
    own = [entry.partition(":")[2] for entry in entries if entry.partition(":")[0] == "embedded"]
    others = tuple(entry for entry in entries if entry.partition(":")[0] != "embedded")
    loaded = LabelledTexts([], {})
    if others:
        data = DataConfig(data=others, columns=columns, cleaning=cleaning or CleaningConfig())
        loaded = datasets.load_texts(data, ModelConfig())
    return replace(loaded, documents=[*loaded.documents, *(d for part in own for d in _embedded(part))])


def _embedded(part: str) -> list[Document]:
    """The embedded corpus, with dates put before the texts (`dated`), or only its texts of some fields.

    The dates that are put before members and non-members are of two periods, as in a benchmark that is split by time.
    """
    corpus = list(embedded.corpus())
    if not part:
        return corpus
    if part == DATED:
        shown = [(d.date or embedded.CUTOFF) + (timedelta() if d.member else LATER) for d in corpus]
        return [replace(d, text=f"{day:%d %B %Y}. {d.text}") for d, day in zip(corpus, shown, strict=True)]
    rows = map(json.loads, embedded.CORPUS.read_text(encoding="utf-8").splitlines())
    field = {row["id"]: row["field"].partition(".")[0] for row in rows}
    fields = set(part.split(","))
    if fields - set(field.values()):
        raise UsageError(f"fields must be out of {', '.join(sorted(set(field.values())))}; got {part!r}")
    return [d for d in corpus if field[d.group] in fields]


def _of(entries: tuple[str, ...], cell: Cell) -> LabelledTexts:
    return load(entries, cell.config.data.columns, cell.config.data.cleaning)


def remarks(cell: Cell) -> tuple[str, ...]:
    """What was left out of the texts of a cell before they were split."""
    return _of(cell.config.data.data, cell).remarks


def split_texts(cell: Cell, *, trained: bool) -> Split:
    """Unseen, validation and test texts of a cell; without training all texts are test texts.

    Raises:
        UsageError: as `load`, and for too few texts.
    """
    from fsd.data.ablations import add_unseen, fine_tuning_set, take_unseen

    data, options, seed = cell.config.data, cell.texts, cell.config.seed
    documents = _changed(_of(data.data, cell).documents, options)
    if not documents:
        raise UsageError(f"texts must have at least {options.words} words; none of {', '.join(data.data)} has")
    if not trained:
        return Split((), (), tuple(documents))
    if isinstance(data.unseen, str):
        raise UsageError(f"unseen must be a share between 0 and 1; got {data.unseen!r}")
    divide = functools.partial(split, unseen=data.unseen, validation=data.validation, scheme=data.split, seed=seed)
    if options.trained_on:
        return fine_tuning_set(
            documents,
            options.trained_on,
            share=data.unseen,
            validation=data.validation,
            scheme=data.split,
            seed=seed,
        )
    parts = divide(documents)
    if options.unseen_from != "own":
        unseen = divide(_of(options.other, cell).documents).unseen
        parts = add_unseen(parts, unseen, own=options.unseen_from == "both")
    if options.unseen_count is not None:
        if options.unseen_count > len(parts.unseen):
            raise UsageError(
                f"unseen texts must be at least {options.unseen_count}; the share {data.unseen} set aside "
                f"holds {len(parts.unseen)}: give more texts by --data"
            )
        parts = take_unseen(parts, options.unseen_count, seed=seed)
    return parts


def _changed(documents: Sequence[Document], options: TextOptions) -> Sequence[Document]:
    """The texts with other timestamps, and cut to a number of words."""
    from fsd.data.ablations import retime, truncate
    from fsd.data.segments import segments

    if options.timestamps != "keep":
        documents = retime(documents, options.timestamps)
    if options.words is None:
        return documents
    if options.where is None:
        return truncate(documents, options.words)
    return [replace(d, text=text) for d in documents for text in segments(d.text, options.words, (options.where,))]
