"""The texts of a cell: read, changed and split, every benchmark read once."""

import functools
import json
from collections.abc import Sequence
from dataclasses import replace

from fsd.config import DataConfig, ModelConfig
from fsd.data import embedded
from fsd.data.documents import Document, Split, split
from fsd.errors import UsageError
from pipelines.common import datasets
from pipelines.study.grid import Cell

EMBEDDED = "embedded"
DATED = "dated"


@functools.lru_cache(maxsize=32)
def documents(entries: tuple[str, ...], columns: str = "") -> tuple[Document, ...]:
    """The labelled texts of files, published benchmarks or the embedded corpus, together one benchmark.

    Raises:
        UsageError: for no entry, a file that cannot be read, a benchmark that cannot be had, an unknown field.
    """
    if not entries:
        raise UsageError("a study must have texts: give --data FILE or the name of a benchmark")
    own = [entry for entry in entries if entry.partition(":")[0] == EMBEDDED]
    given = tuple(entry for entry in entries if entry not in own)
    found = datasets.gather(DataConfig(data=given, columns=columns), ModelConfig()).documents if given else []
    return (*found, *(document for entry in own for document in _embedded(entry.partition(":")[2])))


def _embedded(part: str) -> list[Document]:
    corpus = list(embedded.corpus())
    if not part:
        return corpus
    if part == DATED:
        return [replace(d, text=f"{d.date:%d %B %Y}. {d.text}") for d in corpus]
    rows = map(json.loads, embedded.CORPUS.read_text(encoding="utf-8").splitlines())
    field = {row["id"]: row["field"].partition(".")[0] for row in rows}
    wanted = set(part.split(","))
    if wanted - set(field.values()):
        raise UsageError(f"fields must be out of {', '.join(sorted(set(field.values())))}; got {part!r}")
    return [d for d in corpus if field[d.group] in wanted]


@functools.lru_cache(maxsize=64)
def _changed(entries: tuple[str, ...], columns: str, timestamps: str, words: int | None, where: str | None) -> Split:
    from fsd.data.ablations import retime, truncate
    from fsd.data.segments import segments

    found: Sequence[Document] = documents(entries, columns)
    if timestamps != "keep":
        found = retime(found, timestamps).documents  # type: ignore[arg-type]  # one of its choices, see Texts
    if words is not None and where:
        found = [replace(d, text=text) for d in found for text in segments(d.text, words, (where,))]
    elif words is not None:
        found = truncate(found, words).documents
    if not found:
        raise UsageError(f"texts must have at least {words} words; none of {', '.join(entries)} has")
    return Split((), (), tuple(found))


def prepare(cell: Cell, *, trained: bool) -> Split:
    """What a cell trains on, chooses thresholds on and tests on; without training, all texts are tested.

    Raises:
        UsageError: as `documents`, and where the texts are too few for the study.
    """
    from fsd.data.ablations import fine_tuning_set, mix, take_unseen

    data, texts, seed = cell.config.data, cell.texts, cell.config.seed
    whole = _changed(tuple(data.data), data.columns, texts.timestamps, texts.words, texts.where)
    if not trained:
        return whole
    if isinstance(data.unseen, str):
        raise UsageError(f"unseen must be a share between 0 and 1; got {data.unseen!r}")
    if texts.trained_on:
        return fine_tuning_set(
            whole.test,
            texts.trained_on,
            share=data.unseen,
            validation=data.validation,
            scheme=data.split,
            seed=seed,
        )
    parts = split(whole.test, unseen=data.unseen, validation=data.validation, scheme=data.split, seed=seed)
    if texts.foreign:
        foreign = [d for d in documents(texts.other, data.columns) if d.member is False]
        parts = mix(parts, foreign, texts.foreign, seed=seed)
    if texts.unseen_count is not None:
        if texts.unseen_count > len(parts.unseen):
            raise UsageError(
                f"unseen texts must be at least {texts.unseen_count}; the share {data.unseen} set aside "
                f"holds {len(parts.unseen)}: give more texts by --data"
            )
        parts = take_unseen(parts, texts.unseen_count, seed=seed)
    return parts
