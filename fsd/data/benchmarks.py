"""Published benchmarks, declared in benchmarks.yaml, and how they are read.

A benchmark is named by its block there, with an optional part after a colon, e.g. `wikimia:64` or
`mimir:arxiv/ngram_13_0.8`.
"""

import functools
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from pathlib import Path
from typing import Any, Literal

from fsd.data.documents import Benchmark, Document, Documents
from fsd.data.fields import Columns
from fsd.data.formats import as_text, json_rows
from fsd.data.near_duplicates import drop_contradictions
from fsd.data.periods import AFTER, UP_TO
from fsd.data.readers import parse_rows, read_files
from fsd.data.segments import PLACES, TAIL, WHOLE, Places, segments
from fsd.errors import UsageError, first_line
from fsd.files import JSON, digest
from fsd.net.hub import hub_reachable
from fsd.token_stats import written

Tables = Mapping[str, Any]
"""Split of a data set → its table."""
Splits = Sequence[str] | Mapping[str, bool]
"""Names of splits, or the label of each."""
Only = tuple[str, str] | None
"""Column and value of the rows to use; None for all rows."""


def hub_documents(
    name: str,
    columns: Columns,
    *,
    config: str | None = None,
    splits: Splits = (),
    only: Only = None,
    revision: str | None = None,
    start: int | None = None,
) -> Benchmark:
    """All labelled documents of a hub dataset; rows without a text or a label of 0 or 1 are left out and counted.

    `splits` may be empty for a dataset with one split; a mapping gives the label of each. `only` is the column and
    value of the rows to use. With `start`, the id of a start token, the column `text` holds token ids.
    """
    tables = _tables(name, config, revision)
    available = ", ".join(tables)
    if not splits and len(tables) != 1:
        raise UsageError(f"dataset {name} must have one split; it has {available}")
    title = f"{name}/{config}" if config else name
    needed = set(columns.values())
    if only:
        needed.add(only[0])
    documents: list[Document] = []
    left_out = Counter[str]()
    for split in splits or tables:
        if split not in tables:
            raise UsageError(f"dataset {name} must have split {split}; it has {available}")
        names = tables[split].column_names
        missing = sorted(needed - set(names))
        if missing:
            raise UsageError(f"{title}/{split} must have column {', '.join(missing)}; it has {', '.join(names)}")
        rows = _rows(tables[split], f"{title}/{split}", only)
        added: dict[str, object] = {}
        if isinstance(splits, Mapping):
            added["label"] = splits[split]
        texts = ((where, _as_text(row | added, columns["text"], start)) for where, row in rows)
        documents += parse_rows(texts, columns, labelled=True, skipped=left_out)
    return Benchmark(documents, title, ", ".join(sorted(_commits(tables))), left_out)


def _rows(table: Any, where: str, only: Only) -> Iterator[tuple[str, JSON]]:
    """Each row of a table, or of those with the value `only` in its column, after its origin."""
    places: Sequence[int] = range(len(table))
    if only:
        column, wanted = only
        # the column alone is read first: rows of other values may be many and long
        places = [place for place, value in enumerate(table[column]) if str(value) == wanted]
    for place, row in zip(places, table.select(places), strict=True):
        yield f"{where}:{place + 1}", row


def _as_text(row: JSON, column: str, start: int | None) -> JSON:
    """A row of token ids with a text in their place, without the start token; any other row as it is."""
    if start is None:
        return row
    ids = row[column]
    if ids[:1] == [start]:
        ids = ids[1:]
    return row | {column: written(ids)}


def hub_files(name: str, paths: Sequence[str], *, revision: str | None = None) -> tuple[list[Path], str]:
    """Files of a hub dataset with a loading script, downloaded or from the cache, and their commit."""
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import GatedRepoError

    online = hub_reachable()
    # file by file: a snapshot of the repository would take all parts of the benchmark
    local = []
    for path in paths:
        try:
            file = hf_hub_download(name, path, repo_type="dataset", revision=revision, local_files_only=not online)
        except GatedRepoError as error:
            raise UsageError(
                f"dataset {name} must be open to you; it is gated: accept its terms at "
                f"{constants.ENDPOINT}/datasets/{name} and set HF_TOKEN to a token of that account"
            ) from error
        except Exception as error:  # no common base class, as in _tables
            raise _unavailable(name, online, error) from error
        local.append(Path(file))
    # the cache keeps the files of a commit in a folder of its name
    parts = local[0].parts
    return local, parts[parts.index("snapshots") + 1]


def _tables(name: str, config: str | None, revision: str | None) -> Tables:
    """Split → table of a data set, from the hub, or from its cache where the hub is out of reach."""
    import datasets

    online = hub_reachable()
    try:
        load_tables = datasets.load_dataset if online else _cached
        loaded = load_tables(name, config, revision=revision)
    except Exception as error:  # the errors of the libraries have no common base class
        raise _unavailable(name, online, error) from error
    # the library takes another commit from the cache if the given one is missing
    other_commits = _commits(loaded) - {revision}
    if revision and other_commits:
        raise UsageError(
            f"dataset {name} must be at commit {revision}; the cache holds {', '.join(sorted(other_commits))}"
        )
    return loaded


def _cached(name: str, config: str | None, *, revision: str | None) -> Tables:
    """A given commit from the cache, or else the newest there, for which alone the library itself looks offline."""
    from datasets.packaged_modules.cache.cache import Cache

    common = {"repo_id": name, "dataset_name": name.split("/")[-1]}
    cache = Cache(**common, config_name=config or "default", hash=revision or "")
    if not revision or not Path(cache.cache_dir).is_dir():
        cache = Cache(**common, config_name=config, hash="auto", version="auto")
    tables: Tables = cache.as_dataset()
    return tables


def _unavailable(name: str, online: bool, error: Exception) -> UsageError:
    from huggingface_hub import constants

    if online:
        cause = first_line(error)
    else:
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} does not answer"
        cause = f"{why}, and from the local cache: nothing"
    return UsageError(
        f"dataset {name} must be on the hub and within reach: {cause}; "
        "go online, set HF_ENDPOINT to a mirror, or give files by --data FILE"
    )


def _commits(tables: Tables) -> set[str]:
    """Commits of the tables: the name of their folder in the cache."""
    commits = set()
    for table in tables.values():
        for file in table.cache_files:
            commits.add(Path(file["filename"]).parent.name)
    return commits


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

    columns: Mapping[str, str]  # column of each field of a document, see `fsd.data.fields.FIELDS`
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
    obtain: str = ""  # how to get its files, if they are not on the hub


@functools.cache
def sources() -> Mapping[str, Source]:
    """All benchmarks by name."""
    import pydantic
    import yaml

    blocks = yaml.safe_load(DECLARATIONS.read_text(encoding="utf-8"))
    return pydantic.TypeAdapter(dict[str, Source]).validate_python(blocks)


def source_of(entry: str) -> Source | None:
    """The benchmark that an entry of --data names; None for a file, and where the name before the colon is unknown."""
    if os.path.exists(entry):  # noqa: PTH110 - a name may be too long
        return None
    return sources().get(entry.partition(":")[0])


def is_name(entry: str) -> bool:
    """Whether an entry of --data names a benchmark."""
    return source_of(entry) is not None


def start_of(entry: str) -> int | None:
    """The start token of a benchmark whose rows are token ids; None for one of texts, and for files."""
    source = source_of(entry)
    return source.start if source else None


def control_of(entries: Iterable[str], model: str) -> str:
    """The model that the benchmarks name as the control of a model; "" if there is none."""
    for source in filter(None, map(source_of, entries)):
        for part, control in source.control.items():
            if part in model:
                return model.replace(part, control)
    return ""


def check_entry(entry: str) -> None:
    """Refuse a part of a benchmark that is not declared, before it is downloaded; a file has none."""
    source = source_of(entry)
    # Others have parts that only their files tell.
    if source and source.reader == "hub":
        name, _, part = entry.partition(":")
        _check_hub_part(name, source, part)


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
    if not loaded.documents:
        reasons = [f"{count} {reason}" for reason, count in loaded.left_out.items()]
        raise UsageError(
            f"benchmark {entry} must have texts labelled 0 or 1; it has none: {', '.join(reasons) or 'no rows'}"
        )
    return _with_periods(loaded, source, part)


def _with_periods(loaded: Benchmark, source: Source, part: str) -> Benchmark:
    """The benchmark with the periods and the first day of later texts that are declared, if they are known."""
    if source.later is None:  # not even whether the two sides are of one time
        return loaded
    since = source.later.get(part) if isinstance(source.later, Mapping) else source.later or None
    documents = []
    for document in loaded.documents:
        later = since and not document.member
        documents.append(replace(document, period=AFTER if later else UP_TO))
    return loaded._replace(documents=documents, since=since)


def without_contradictions(loaded: Benchmark) -> Benchmark:
    """The benchmark without copies of a text that is labelled both 1 and 0, which are counted."""
    documents, contradicted = drop_contradictions(loaded.documents)
    if not contradicted:
        return loaded
    return loaded._replace(documents=documents, left_out={**loaded.left_out, BOTH_LABELS: contradicted})


def _check_part(name: str, source: Source, part: str) -> None:
    """Refuse a part that is not declared, or no part of a benchmark that is not loaded whole."""
    if part in source.parts or (not part and source.whole):
        return
    if not source.parts:
        raise UsageError(f"{name} must be loaded whole, it has no parts; got {part!r}")
    raise UsageError(f"part of {name} must be one of {', '.join(source.parts)}; got {part!r}")


def _check_hub_part(name: str, source: Source, part: str) -> None:
    # a dataset may have got more configurations than are declared; the hub refuses those that it does not have
    is_config = bool(source.splits) and "{part}" not in source.dataset
    if not (is_config and part):
        _check_part(name, source, part)


def _from_hub(name: str, source: Source, part: str) -> Benchmark:
    """A dataset of the hub, or its dataset, configuration, split or rows for the part."""
    is_dataset = "{part}" in source.dataset
    is_config = bool(source.splits) and not is_dataset
    _check_hub_part(name, source, part)
    splits: Splits = source.splits or ()
    if source.split:
        parts = [part] if part else source.parts
        splits = [source.split.format(part=declared) for declared in parts]
    only = None
    if part and source.part_column:
        only = (source.part_column, part)
    dataset = source.dataset.format(part=part)
    config = None
    if is_config and part:
        config = part
    return hub_documents(
        dataset, source.columns, config=config, splits=splits, only=only, revision=source.revision, start=source.start
    )


def _from_mimir(name: str, source: Source, part: str) -> Benchmark:
    """Two files of JSON strings, a text a line: members of train/ and non-members of test/."""
    if f"{part}/{MIMIR_GROUP}" in source.parts:
        part = f"{part}/{MIMIR_GROUP}"
    _check_part(name, source, part)
    size = 10000 if part == "full_pile" else 1000
    folder = f"cache_100_200_{size}_512"
    file_name = f"{part.replace('/', '_')}.jsonl"
    paths = [f"{folder}/train/{file_name}", f"{folder}/test/{file_name}"]
    files, revision = hub_files(source.dataset, paths, revision=source.revision)
    names = [f"{source.dataset}/{path}" for path in paths]
    return _of_sides(files, names, source, f"{source.dataset}/{part}", revision)


def _of_sides(files: Sequence[Path], names: Sequence[str], source: Source, title: str, revision: str) -> Benchmark:
    """The texts of a JSONL file of members, and of one of non-members, which have names for messages."""
    rows = []
    for member, file, name in zip((True, False), files, names, strict=True):
        for number, row in json_rows(name, io.StringIO(as_text(name, file.read_bytes()), newline="\n")):
            rows.append((f"{name}:{number}", {"text": row["text"], "label": member}))
    left_out = Counter[str]()
    documents = list(parse_rows(rows, source.columns, labelled=True, skipped=left_out))
    return Benchmark(documents, title, revision, left_out)


def _from_olmo_detect(name: str, source: Source, part: str) -> Benchmark:
    """Members and non-members of a domain in a clone of the repository; members that are aligned, unless `shifted`."""
    folder, _, rest = part.partition(",")
    domain, _, alignment = (piece.strip() for piece in rest.partition(","))
    if not domain or alignment not in ("", SHIFTED):
        raise UsageError(
            f"benchmark {name} must be given as {name}:FOLDER,PART or {name}:FOLDER,PART,{SHIFTED}; got {part!r}"
        )
    # a domain may be there in both alignments
    other_alignment = "matched" if alignment else SHIFTED
    by_domain = _olmo_detect_files(Path(folder).expanduser(), other_alignment)
    files = by_domain.get(domain, {})
    if len(files) < 2:
        raise UsageError(
            f"part of {name} must have files of both sides in {folder}/benchmark; got {domain!r}, it has "
            f"{', '.join(sorted(by_domain)) or 'none'}"
        )
    # Members first, as their labels are given.
    sides = [files[True], files[False]]
    parsed = _of_sides(sides, list(map(str, sides)), source, f"{folder}: {domain}", f"sha256:{digest(*sides)}")
    if alignment == SHIFTED:
        return parsed
    # aligned sides are of one range of time, by construction
    return parsed._replace(documents=[replace(document, period=UP_TO) for document in parsed.documents])


def _olmo_detect_files(folder: Path, leave_out: str) -> dict[str, dict[bool, Path]]:
    """Domain → the test file of the members (True) and of the non-members (False), as far as they are there."""
    files: dict[str, dict[bool, Path]] = {}
    for file in sorted(folder.glob("benchmark/**/*.jsonl")):
        prefix, _, words = file.stem.partition("contaminated_")  # the prefix is "" or "un"
        pieces = words.split("_")[1:]
        if "test" not in pieces or leave_out in pieces:
            continue
        # the words come in varying order, and "math-mix" on one side alone
        name = [piece for piece in pieces if piece not in ("test", "matched", SHIFTED, "math-mix")]
        files.setdefault("_".join(name), {})[not prefix] = file
    return files


def _from_file(name: str, source: Source, part: str) -> Benchmark:
    """A file of the user's, with the benchmark's columns."""
    files = _files(name, source, part.split(","))
    left_out = Counter[str]()
    documents = read_files(files, source.columns, labelled=True, skipped=left_out)
    return Benchmark(documents, str(files[0]), f"sha256:{digest(*files)}", left_out)


def _from_books(name: str, source: Source, part: str) -> Benchmark:
    """Segments of the texts of two files; after the files, `part` may name one place and a length in words."""
    pieces = [piece.strip() for piece in part.split(",")]
    words, places = _segment_options(name, pieces[2:], part)
    files = _files(name, source, pieces[:2])
    left_out = Counter[str]()
    members = read_files(files[:1], source.columns, skipped=left_out)
    nonmembers = read_files(files[1:], skipped=left_out)
    rows_of_book = Counter(document.group or document.origin_url for document in nonmembers)
    name_of_book, rows = rows_of_book.most_common(1)[0]
    most = TAIL if places == ("tail",) else 1
    if len(places) == 1 and rows > most:  # rows do not record their place in the book
        raise UsageError(
            f"{files[1]} must have at most {most} rows a book for {places[0]} alone; {name_of_book} has {rows}: "
            f"collect with --options places={places[0]}"
        )
    documents = []
    for file, member, books in zip(files, (True, False), (members, nonmembers), strict=True):
        texts = _book_segments(books, member, words, places)
        if not texts:
            raise UsageError(f"{file} must have texts of at least {words} words; all {len(books)} are shorter")
        documents += texts
    return Benchmark(documents, f"{files[0]}, {files[1]}", f"sha256:{digest(*files)}", left_out)


def _book_segments(books: Documents, member: bool, words: int, places: Places) -> list[Document]:
    # the same number may be of different books on the two sides
    prefix = "dolma:" if member else "new:"
    documents = []
    for book in books:
        labelled = replace(book, member=member, group=prefix + (book.group or book.origin_url))
        documents += [replace(labelled, text=text) for text in segments(book.text, words, places)]
    return documents


def _segment_options(name: str, options: Sequence[str], part: str) -> tuple[int, Places]:
    """The length in words and the places of segments, from the options after the files."""
    sizes = [int(option) for option in options if option.isdecimal() and int(option)]
    places = tuple(option for option in options if option == WHOLE or option in PLACES)
    # an option that is neither, or one that is there twice, is a mistake
    if len(sizes) + len(places) < len(options) or max(len(sizes), len(places)) > 1:
        raise UsageError(
            f"{name} must be followed by two files, then one of {', '.join(PLACES)}, {WHOLE} or none, and one number "
            f"of words or none; got {part!r}"
        )
    return sizes[0] if sizes else WORDS, places or PLACES


def _files(name: str, source: Source, names: Iterable[str]) -> list[Path]:
    """The files named after the colon."""
    files = [Path(path.strip()).expanduser() for path in names if path.strip()]
    if len(files) != len(source.parts):
        wanted = ",".join(source.parts)
        got = ",".join(names)
        raise UsageError(f"benchmark {name} must be given as {name}:{wanted}; got {got!r}; {source.obtain}")
    for file in files:
        if not file.is_file():
            raise UsageError(f"benchmark {name} must be given files that exist; there is no {file}: {source.obtain}")
    return files


READERS = {
    "hub": _from_hub,
    "mimir": _from_mimir,
    "file": _from_file,
    "books": _from_books,
    "olmo_detect": _from_olmo_detect,
}
"""How a benchmark is read: name, declaration and part → texts."""
