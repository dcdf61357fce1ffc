"""The texts of a cell: loaded, changed and split. Each benchmark is read once."""

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from fsd.config import CleaningConfig, DataConfig, ModelConfig
from fsd.data import embedded
from fsd.data.documents import Document
from fsd.data.splitting import Split, split
from fsd.errors import UsageError
from pipelines.common import experiment
from pipelines.common.experiment import LabelledTexts
from pipelines.study.catalogue import TextOptions
from pipelines.study.grid import Cell

DATED = "dated"
LATER = timedelta(days=912)
"""Length of the embedded corpus's period: by so much the non-members of `embedded:dated` are later than their dates."""


def load(entries: tuple[str, ...], columns: str = "", cleaning: CleaningConfig | None = None) -> LabelledTexts:
    """Labelled texts of files, published benchmarks and the embedded corpus, merged into one benchmark."""
    return _load(entries, columns, cleaning or CleaningConfig(), Path.cwd())


@functools.lru_cache(maxsize=32)
def _load(entries: tuple[str, ...], columns: str, cleaning: CleaningConfig, _folder: Path) -> LabelledTexts:
    """The same, kept for the working folder, in which the files are."""
    if not entries:
        raise UsageError("a study must have texts: give --data FILE or the name of a benchmark")
    own = [entry.partition(":")[2] for entry in entries if entry.partition(":")[0] == "embedded"]
    others = tuple(entry for entry in entries if entry.partition(":")[0] != "embedded")
    loaded = LabelledTexts([], {})
    if others:
        loaded = experiment.load_texts(DataConfig(data=others, columns=columns, cleaning=cleaning), ModelConfig())
    return loaded._replace(documents=[*loaded.documents, *(d for part in own for d in _embedded(part))])


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
    """Unseen, validation and test texts of a cell; without training all texts are test texts."""
    from fsd.data.ablations import add_unseen, fine_tuning_set, take_unseen

    data, options, seed = cell.config.data, cell.texts, cell.config.seed
    documents = _changed(_of(data.data, cell).documents, options)
    if not documents:
        raise UsageError(f"texts must have at least {options.words} words; none of {', '.join(data.data)} has")
    if not trained:
        return Split((), (), tuple(documents))
    share = float(data.unseen)
    how: dict[str, Any] = {"validation": data.validation, "scheme": data.split, "seed": seed}
    if options.trained_on:
        return fine_tuning_set(documents, options.trained_on, share=share, **how)
    parts = split(documents, unseen=share, **how)
    if options.unseen_from != "own":
        foreign = split(_of(options.other, cell).documents, unseen=share, **how).unseen
        parts = add_unseen(parts, foreign, own=options.unseen_from == "both")
    if options.unseen_count is None:
        return parts
    if options.unseen_count > len(parts.unseen):
        raise UsageError(
            f"unseen texts must be at least {options.unseen_count}; the share {share} set aside "
            f"holds {len(parts.unseen)}: give more texts by --data"
        )
    return take_unseen(parts, options.unseen_count, seed=seed)


def _changed(documents: Sequence[Document], options: TextOptions) -> Sequence[Document]:
    """The texts with other timestamps, and cut to a number of words."""
    from fsd.data.ablations import retime, truncate
    from fsd.data.documents import segments

    if options.timestamps != "keep":
        documents = retime(documents, options.timestamps)
    if options.words is None:
        return documents
    if options.where is None:
        return truncate(documents, options.words)
    return [replace(d, text=text) for d in documents for text in segments(d.text, options.words, (options.where,))]
