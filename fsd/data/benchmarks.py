"""Published benchmarks, declared in benchmarks.yaml, and how they are read.

A benchmark is named by its block there, with an optional part after a colon, e.g. `wikimia:64` or
`mimir:arxiv/ngram_13_0.8`.
"""

import functools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from pathlib import Path
from typing import Any, Literal

from fsd.data.documents import PLACES, Benchmark, Document, segments
from fsd.data.near_duplicates import drop_contradictions
from fsd.data.readers import parse_rows, read_files
from fsd.data.splitting import AFTER, UP_TO
from fsd.errors import UsageError, first_line
from fsd.files import digest
from fsd.net.hub import hub_reachable
from fsd.token_stats import written


def hub_documents(
    name: str,
    columns: Mapping[str, str],
    *,
    config: str | None = None,
    splits: Sequence[str] | Mapping[str, bool] = (),
    only: tuple[str, str] | None = None,
    revision: str | None = None,
    start: int | None = None,
) -> Benchmark:
    """All labelled documents of a hub dataset; rows without a text or a label of 0 or 1 are left out and counted.

    `splits` may be empty for a dataset with one split; a mapping gives the label of each. `only` is the column and
    value of the rows to use. With `start`, the id of a start token, the column `text` holds token ids.
    """
    tables = _tables(name, config, revision)
    chosen, there = tuple(splits or tables), ", ".join(tables)
    if not splits and len(tables) != 1:
        raise UsageError(f"dataset {name} must have one split; it has {there}")
    title = f"{name}/{config}" if config else name
    documents: list[Document] = []
    left_out = Counter[str]()
    for split in chosen:
        if split not in tables:
            raise UsageError(f"dataset {name} must have split {split}; it has {there}")
        table, names = tables[split], tables[split].column_names
        missing = sorted({*columns.values(), *(only or ())[:1]} - set(names))
        if missing:
            raise UsageError(f"{title}/{split} must have column {', '.join(missing)}; it has {', '.join(names)}")
        label = {"label": splits[split]} if isinstance(splits, Mapping) else {}
        places: Sequence[int] = range(len(table))
        if only:
            places = [at for at, value in enumerate(table[only[0]]) if str(value) == only[1]]
        rows = (
            (f"{title}/{split}:{at + 1}", {**row, **label} | _of_ids(row, columns.get("text", ""), start))
            for at, row in zip(places, table.select(places), strict=True)
        )
        documents += parse_rows(rows, columns, labelled=True, skipped=left_out)
    if not documents and not left_out:
        wanted, has = "rows", f"split {', '.join(chosen)} has none"
        if only:
            values = sorted({str(value) for split in chosen for value in tables[split].unique(only[0])})
            wanted, has = f"rows with {only[0]} {only[1]}", f"it has {', '.join(values)}"
        raise UsageError(f"dataset {name} must have {wanted}; {has}")
    return Benchmark(documents, title, ", ".join(sorted(_commits(tables))), left_out)


def _of_ids(row: Mapping[str, Any], column: str, start: int | None) -> dict[str, str]:
    """The text of a row of token ids, without the start token; nothing for a row that holds a text."""
    return {} if start is None else {column: written(row[column][row[column][:1] == [start] :])}


def hub_files(name: str, paths: Sequence[str], *, revision: str | None = None) -> tuple[list[Path], str]:
    """Files of a hub dataset with a loading script, downloaded or from the cache, and their commit."""
    from huggingface_hub import HfApi, constants, hf_hub_download
    from huggingface_hub.errors import GatedRepoError, RemoteEntryNotFoundError

    online = hub_reachable()
    local = []
    for path in paths:
        try:
            file = hf_hub_download(name, path, repo_type="dataset", revision=revision, local_files_only=not online)
        except GatedRepoError as error:
            raise UsageError(
                f"dataset {name} must be open to you; it is gated: accept its terms at "
                f"{constants.ENDPOINT}/datasets/{name} and set HF_TOKEN to a token of that account"
            ) from error
        except RemoteEntryNotFoundError as error:
            folder = path.rpartition("/")[0]
            all_files = HfApi().list_repo_files(name, repo_type="dataset", revision=revision)
            there = ", ".join(sorted(other for other in all_files if other.rpartition("/")[0] == folder))
            raise UsageError(
                f"dataset {name} must have file {path}; it has {there or f'nothing in {folder}/'}"
            ) from error
        except Exception as error:  # no common base class, as in _tables
            raise _unavailable(name, online, error) from error
        local.append(Path(file))
    return local, local[0].parts[local[0].parts.index("snapshots") + 1]


def _tables(name: str, config: str | None, revision: str | None) -> Mapping[str, Any]:
    import datasets

    online = hub_reachable()
    try:
        load_tables = datasets.load_dataset if online else _cached
        loaded: Mapping[str, Any] = load_tables(name, config, revision=revision)
    except Exception as error:  # the errors of the libraries have no common base class
        raise _unavailable(name, online, error) from error
    others = sorted(_commits(loaded) - {revision}) if revision else []
    if others:  # the library takes another commit from the cache if the given one is missing
        raise UsageError(f"dataset {name} must be at commit {revision}; the cache holds {', '.join(others)}")
    return loaded


def _cached(name: str, config: str | None, *, revision: str | None) -> Mapping[str, Any]:
    """A given commit from the cache, or else the newest there, for which alone the library itself looks offline."""
    from datasets.packaged_modules.cache.cache import Cache

    common = {"repo_id": name, "dataset_name": name.split("/")[-1]}
    cache = Cache(**common, config_name=config or "default", hash=revision or "")
    if not revision or not Path(cache.cache_dir).is_dir():
        cache = Cache(**common, config_name=config, hash="auto", version="auto")
    tables: Mapping[str, Any] = cache.as_dataset()
    return tables


def _unavailable(name: str, online: bool, error: Exception) -> UsageError:
    from huggingface_hub import constants

    why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} does not answer"
    cause = first_line(error) if online else f"{why}, and from the local cache: nothing"
    return UsageError(
        f"dataset {name} must be on the hub and within reach: {cause}; "
        "go online, set HF_ENDPOINT to a mirror, or give files by --data FILE"
    )


def _commits(tables: Mapping[str, Any]) -> set[str]:
    """Commits of the tables: the name of their folder in the cache."""
    return {Path(file["filename"]).parent.name for table in tables.values() for file in table.cache_files}


DECLARATIONS = Path(__file__).with_suffix(".yaml")
SHIFTED = "shifted"
"""Members of OLMo-Detect that are not aligned with the non-members."""
BOTH_LABELS = "copies labelled both 1 and 0"
"""Reason for which texts are left out."""
MIMIR_GROUP = "ngram_13_0.8"
"""Group of a domain of MIMIR that is named alone."""
WORDS = 512
"""Length of the segments of dolma_book."""


@dataclass(frozen=True)
class Source:
    """A published benchmark."""

    columns: Mapping[str, str]  # column of each field of a document, see `fsd.data.readers.NAMES`
    labels: str  # meaning of label 1 and label 0
    dataset: str = ""  # id on the hub, owner/name; "" for a benchmark of local files
    revision: str | None = None  # commit on the hub; None for the newest
    group: str = ""  # what the texts of one group share; "" if rows have no group
    parts: tuple[str, ...] = ()  # known parts, or what the files are that are named after the colon
    whole: bool = True  # whether it can be loaded without a part
    split: str = ""  # name of the split that holds a part
    part_column: str = ""  # column that names the part of a row
    splits: Mapping[str, bool] | None = None  # label of each split, where rows have none; a part is a configuration
    later: Date | Literal[False] | Mapping[str, Date] | None = None  # first day of later non-members, by part
    control: Mapping[str, str] = field(default_factory=dict)  # in the model's name → in that of its control, the twin
    start: int | None = None  # the start token of rows that are token ids, in the column of the text; None for texts
    reader: str = "hub"  # how it is read, see `READERS`


@functools.cache
def sources() -> Mapping[str, Source]:
    """All benchmarks by name."""
    import pydantic
    import yaml

    blocks = yaml.safe_load(DECLARATIONS.read_text(encoding="utf-8"))
    return pydantic.TypeAdapter(dict[str, Source]).validate_python(blocks)


def is_name(entry: str) -> bool:
    """Whether an entry of --data names a benchmark: it is not a file, and the name before the colon is known."""
    return entry.partition(":")[0] in sources() and not os.path.exists(entry)  # noqa: PTH110 - a name may be too long


def start_of(entry: str) -> int | None:
    """The start token of a benchmark whose rows are token ids; None for one of texts, and for files."""
    return sources()[entry.partition(":")[0]].start if is_name(entry) else None


def control_of(entries: Iterable[str], model: str) -> str:
    """The model that the benchmarks name as the control of a model; "" if there is none."""
    names = [entry.partition(":")[0] for entry in entries if is_name(entry)]
    pairs = [pair for name in names for pair in sources()[name].control.items() if pair[0] in model]
    return model.replace(*pairs[0]) if pairs else ""


def load(entry: str) -> Benchmark:
    """Load a benchmark, or the part named after the colon; rows that cannot be used are left out and counted."""
    name, colon, part = entry.partition(":")
    if name not in sources():
        raise UsageError(f"benchmark must be one of {', '.join(sorted(sources()))}; got {name!r}")
    source = sources()[name]
    if colon and not part:
        parts = f"its parts are {', '.join(source.parts)}" if source.parts else "it has no parts"
        raise UsageError(f"benchmark {name} must be followed by a part after the colon; {parts}; got {entry!r}")
    loaded = READERS[source.reader](name, source, part)
    if source.start is None:  # copies among rows of token ids are found once these are texts
        loaded = without_contradictions(loaded)
    documents = loaded.documents
    if not documents:
        reasons = ", ".join(f"{count} {reason}" for reason, count in loaded.left_out.items()) or "no rows"
        raise UsageError(f"benchmark {entry} must have texts labelled 0 or 1; it has none: {reasons}")
    since = source.later.get(part) if isinstance(source.later, Mapping) else source.later or None
    if source.later is not None:
        documents = [replace(d, period=AFTER if since and not d.member else UP_TO) for d in documents]
    return loaded._replace(documents=documents, since=since)


def without_contradictions(loaded: Benchmark) -> Benchmark:
    """The benchmark without copies of a text that is labelled both 1 and 0, which are counted."""
    documents, contradicted = drop_contradictions(loaded.documents)
    left_out = {**loaded.left_out, **({BOTH_LABELS: contradicted} if contradicted else {})}
    return loaded._replace(documents=documents, left_out=left_out)


def _check_part(name: str, source: Source, part: str, *, other: bool = False) -> None:
    """Refuse a part that is not declared, or no part of a benchmark that is not loaded whole."""
    if part in source.parts or (source.whole if not part else other):
        return
    if not source.parts:
        raise UsageError(f"{name} must be loaded whole, it has no parts; got {part!r}")
    raise UsageError(f"part of {name} must be one of {', '.join(source.parts)}; got {part!r}")


def _from_hub(name: str, source: Source, part: str) -> Benchmark:
    """A dataset of the hub, or its split, rows or configuration for the part; other configurations are not refused."""
    each = "{part}" in source.dataset
    _check_part(name, source, part, other=bool(source.splits) and not each)
    parts = [part] if part else source.parts
    return hub_documents(
        source.dataset.format(part=part),
        source.columns,
        config=part if source.splits and not each else None,
        splits=source.splits or [source.split.format(part=each) for each in parts if source.split],
        only=(source.part_column, part) if part and source.part_column else None,
        revision=source.revision,
        start=source.start,
    )


def _from_mimir(name: str, source: Source, part: str) -> Benchmark:
    """Two files of JSON strings, a text a line: members of train/ and non-members of test/."""
    if f"{part}/{MIMIR_GROUP}" in source.parts:
        part = f"{part}/{MIMIR_GROUP}"
    _check_part(name, source, part)
    folder = f"cache_100_200_{10000 if part == 'full_pile' else 1000}_512"
    paths = [f"{folder}/{side}/{part.replace('/', '_')}.jsonl" for side in ("train", "test")]
    files, revision = hub_files(source.dataset, paths, revision=source.revision)
    rows = [
        (where, {**(value if isinstance(value, dict) else {"text": value}), "label": member})
        for member, file, path in zip((True, False), files, paths, strict=True)
        for where, value in _json_lines(file, f"{source.dataset}/{path}")
    ]
    return _parsed(rows, source, f"{source.dataset}/{part}", revision)


def _parsed(rows: Iterable[tuple[str, Any]], source: Source, title: str, revision: str) -> Benchmark:
    left_out = Counter[str]()
    documents = list(parse_rows(rows, source.columns, labelled=True, skipped=left_out))
    return Benchmark(documents, title, revision, left_out)


def _json_lines(file: Path, path: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
        try:
            if line.strip():
                yield f"{path}:{number}", json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}:{number}: must be a JSON string; {error}") from error


def _from_olmo_detect(name: str, source: Source, part: str) -> Benchmark:
    """Members and non-members of a domain in a clone of the repository; members that are aligned, unless `shifted`."""
    folder, _, rest = part.partition(",")
    key, _, aligned = (piece.strip() for piece in rest.partition(","))
    if not key or aligned not in ("", SHIFTED):
        raise UsageError(
            f"benchmark {name} must be given as {name}:FOLDER,PART or {name}:FOLDER,PART,{SHIFTED}; got {part!r}"
        )
    found: dict[str, dict[bool, Path]] = {}
    for file in sorted(Path(folder).expanduser().glob("benchmark/**/*.jsonl")):
        side, _, words = file.stem.partition("contaminated_")
        pieces = [piece for piece in words.split("_")[1:] if piece != "math-mix"]
        if "test" in pieces and (SHIFTED if aligned == "" else "matched") not in pieces:
            rest = "_".join(piece for piece in pieces if piece not in ("test", "matched", SHIFTED))
            found.setdefault(rest, {})[not side] = file
    whole = {part: files for part, files in found.items() if len(files) == 2}
    if key not in whole:
        there = ", ".join(sorted(whole)) or "none"
        raise UsageError(
            f"part of {name} must have files of both sides in {folder}/benchmark; got {key!r}, it has {there}"
        )
    rows = [
        (where, {"text": row["text"], "label": member})
        for member, file in sorted(whole[key].items(), reverse=True)
        for where, row in _json_lines(file, str(file))
    ]
    parsed = _parsed(rows, source, f"{folder}: {key}", f"sha256:{digest(*whole[key].values())}")
    if not aligned:  # of one range of time, by construction
        parsed = parsed._replace(documents=[replace(document, period=UP_TO) for document in parsed.documents])
    return parsed


def _from_file(name: str, source: Source, part: str) -> Benchmark:
    """A file of the user's, with the benchmark's columns."""
    files = _files(name, source, part)
    left_out = Counter[str]()
    documents = read_files(files, source.columns, labelled=True, skipped=left_out)
    return Benchmark(documents, str(files[0]), f"sha256:{digest(*files)}", left_out)


def _from_books(name: str, source: Source, part: str) -> Benchmark:
    """Segments of the texts of two files; after the files, `part` may name one place and a length in words."""
    pieces = [piece.strip() for piece in part.split(",")]
    sizes = [int(piece) for piece in pieces[2:] if piece.isdecimal() and int(piece)]
    places = tuple(place for place in PLACES if place in pieces[2:])
    if len(sizes) + len(places) < len(pieces[2:]) or len(sizes) > 1 or len(places) > 1:
        raise UsageError(
            f"{name} must be followed by two files, then one of {', '.join(PLACES)} or none, and one number of "
            f"words or none; got {part!r}"
        )
    files = _files(name, source, ",".join(pieces[:2]))
    words = sizes[0] if sizes else WORDS
    left_out = Counter[str]()
    members = read_files(files[:1], source.columns, skipped=left_out)
    others = read_files(files[1:], skipped=left_out)
    book, rows = Counter(d.group or d.source for d in others).most_common(1)[0]
    if places and rows > 1:  # rows do not record their place in the book
        raise UsageError(
            f"{files[1]} must have one row a book if {places[0]} alone is asked for; {book} has {rows}: collect with "
            f"--options places={places[0]}"
        )
    documents = []
    for file, side, member, prefix in zip(files, (members, others), (True, False), ("dolma:", "new:"), strict=True):
        cut = [
            replace(d, text=text, member=member, group=prefix + (d.group or d.source))  # no group of both sides
            for d in side
            for text in segments(d.text, words, places or PLACES)
        ]
        if not cut:
            raise UsageError(f"{file} must have texts of at least {words} words; all {len(side)} are shorter")
        documents += cut
    return Benchmark(documents, ", ".join(map(str, files)), f"sha256:{digest(*files)}", left_out)


def _files(name: str, source: Source, part: str) -> list[Path]:
    """The files named after the colon, separated by commas."""
    pieces = [piece.strip() for piece in part.split(",") if piece.strip()]
    if len(pieces) != len(source.parts):
        raise UsageError(f"benchmark {name} must be given as {name}:{','.join(source.parts)}; got {part!r}")
    files = [Path(piece).expanduser() for piece in pieces]
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise UsageError(f"benchmark {name} must be given files that exist; there is no {missing[0]}")
    return files


READERS: Mapping[str, Callable[[str, Source, str], Benchmark]] = {
    "hub": _from_hub,
    "mimir": _from_mimir,
    "file": _from_file,
    "books": _from_books,
    "olmo_detect": _from_olmo_detect,
}
"""How a benchmark is read: name, declaration and part → texts."""
