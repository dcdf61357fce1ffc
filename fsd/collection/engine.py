"""From an order to a file: ask the source, drop with a reason, remember, write rows and manifest."""

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd.collection import domains
from fsd.collection import language_check as languages
from fsd.collection.domains import Domain
from fsd.collection.resume import Partial, as_json, from_row, keyed, line, write_atomically
from fsd.collection.source import Window
from fsd.data.documents import Document, content_hash
from fsd.data.near_duplicates import families, words
from fsd.data.readers import read_files
from fsd.errors import UsageError
from fsd.net.http import Clock
from fsd.progress import progress

if TYPE_CHECKING:
    from fsd.tracking import Run

SHORTEST = 32


@dataclass(frozen=True)
class Order:
    """What is to be collected; a run with an equal order goes on where another one stopped.

    Attributes:
        domain: name of the source.
        window: days of first publication; its `before` alone asks for members, anything else for non-members.
        language: that each text must be in; "" for any.
        options: of the source.
        min_words: texts of fewer words are dropped; of scripts without spaces, two signs are a word.
        benchmark: files whose texts and near-duplicates of them must not be in the result.
        because: why that window: the fact that its day was taken from.
    """

    domain: str
    window: Window
    language: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    min_words: int = SHORTEST
    benchmark: tuple[str, ...] = ()
    because: str = ""

    @property
    def member(self) -> bool:
        """Label of the texts."""
        return self.window.after is None


@dataclass(frozen=True)
class Collected:
    """A finished collection.

    Attributes:
        documents: labelled and dated, the day nearest to the cutoff first.
        manifest: see `collect`.
        path: of the rows; the manifest lies beside it.
    """

    documents: list[Document]
    manifest: dict[str, Any]
    path: Path


def collect(order: Order, limit: int, out: Path, *, clock: Clock | None = None, shown: bool = True) -> Collected:
    """Collect up to `limit` texts into a JSONL file that `pipelines.fsd` reads.

    Rows have text, label, date, group, source and sha256. FILE.manifest.json beside it says what was asked for
    and when, how many texts the source gave and for which reason each of the others was dropped, what the result
    hashes to and with which versions it was made. If the source ends early, fewer texts come.

    A killed run goes on from where it was when it is started again with the same order, see
    `fsd.collection.resume`. Near-duplicates are looked for among all rows at once, so a few more than `limit`
    may be fetched.

    Args:
        order: what.
        limit: most texts.
        out: the file to write; must not be there yet.
        clock: time, and a way to wait.
        shown: whether progress is shown.

    Raises:
        UsageError: for an order that cannot be met, a source that cannot be reached or gives nothing.
    """
    clock = clock or Clock()
    domain = domains.load(order.domain)
    _check(order, limit, out, domain, clock)
    benchmark = read_files(order.benchmark) if order.benchmark else []
    known = [document.text for document in benchmark]
    partial = Partial(out, keyed(order), clock)
    try:
        ended = _gather(order, limit, domain, partial, known, shown)
        kept, copies = distinct(partial.documents, known)
        dropped = partial.dropped + copies
        if len(kept) > limit:
            dropped["over the limit"] += len(kept) - limit
        documents = kept[:limit]
        if not documents:
            raise _nothing(order, partial, dropped)
        content = b"".join(map(line, documents))
        manifest = _manifest(order, limit, documents, content, clock) | {
            "found": partial.found,
            "dropped": dict(sorted(dropped.items())),
            "source_ended": ended,
        }
        write_atomically(manifest_path(out), as_json(manifest))
        write_atomically(out, content)
        partial.remove()
    finally:
        partial.close()
    return Collected(documents, manifest, out)


def reusable(order: Order, limit: int, out: Path) -> Collected | None:
    """What an earlier run with an equal order wrote, if it is there and unchanged; else None."""
    if not (out.is_file() and manifest_path(out).is_file()):
        return None
    content = out.read_bytes()
    manifest = json.loads(manifest_path(out).read_bytes())
    asked = {"order": keyed(order), "limit": limit, "sha256": hashlib.sha256(content).hexdigest()}
    if any(manifest.get(name) != value for name, value in asked.items()):
        return None
    return Collected([from_row(json.loads(row)) for row in content.splitlines()], manifest, out)


def manifest_path(out: Path) -> Path:
    """FILE.jsonl → FILE.manifest.json."""
    return out.with_name(f"{out.stem}.manifest.json")


def log_manifest(run: "Run", collected: Collected) -> None:
    """The manifest as an artifact, its numbers as metrics, the texts as a dataset of the run."""
    manifest = collected.manifest
    run.log_file(manifest_path(collected.path))
    numbers = {"kept": manifest["kept"], "found": manifest["found"]}
    numbers |= {f"dropped.{reason}": count for reason, count in manifest["dropped"].items()}
    run.log_metrics({f"collect/{name}": float(value) for name, value in numbers.items()})
    texts = [document.text for document in collected.documents]
    run.log_dataset(collected.path.stem, texts, source=str(collected.path), context="collected")


def distinct(documents: Sequence[Document], known: Sequence[str] = ()) -> tuple[list[Document], Counter[str]]:
    """The first text of each family of near-duplicates, and how many others there were.

    Args:
        documents: in order.
        known: texts of a benchmark; whatever is related to one of them goes.
    """
    number = families([Document(text) for text in (*known, *(document.text for document in documents))])
    seen = set(number[: len(known)])
    old = frozenset(seen)
    kept, dropped = [], Counter[str]()
    for document, family in zip(documents, number[len(known) :], strict=True):
        if family in old:
            dropped["near-duplicate of the benchmark"] += 1
        elif family in seen:
            dropped["near-duplicate"] += 1
        else:
            seen.add(family)
            kept.append(document)
    return kept, dropped


def _check(order: Order, limit: int, out: Path, domain: Domain, clock: Clock) -> None:
    if limit < 1:
        raise UsageError(f"limit must be at least 1; got {limit}")
    if order.min_words < 1:
        raise UsageError(f"min_words must be at least 1; got {order.min_words}")
    if out.suffix != ".jsonl":
        raise UsageError(f"out must be a file that ends in .jsonl; got {out}")
    for name, day in (("after", order.window.after), ("before", order.window.before)):
        if day is None:
            continue
        if day >= clock.today:
            raise UsageError(
                f"{name} must be a day before today, {clock.today}; got {day}: there are no such texts yet"
            )
        if day < domain.first or (name == "before" and day == domain.first):
            raise UsageError(f"{name} must be a day of {domain.name}, which begins on {domain.first}; got {day}")


def _gather(order: Order, limit: int, domain: Domain, partial: Partial, known: Sequence[str], shown: bool) -> bool:
    """Fill the partial file until `limit` texts are left of it without near-duplicates; whether the source ended."""
    old = {content_hash(text) for text in known}
    seen = {content_hash(document.text) for document in partial.documents}
    wanted = limit
    arriving = _arriving(order, domain, partial)
    with progress(limit, f"{domain.name}", "texts", shown=shown) as bar:
        bar.update(min(limit, len(partial.documents)))
        while True:
            missing = wanted - len(partial.documents)
            for document in islice(_fit(order, arriving, partial, old, seen), max(0, missing)):
                partial.add(document)
                bar.update()
            if len(partial.documents) < wanted:
                return True
            short = limit - len(distinct(partial.documents, known)[0])
            if short <= 0:
                return False
            bar.update(-min(short, bar.n))
            wanted += short


def _arriving(order: Order, domain: Domain, partial: Partial) -> Iterator[Document]:
    for document in domain.texts(order.window, partial, **order.options):
        partial.found += 1
        yield replace(document, member=order.member)


def _fit(
    order: Order, arriving: Iterator[Document], partial: Partial, old: set[str], seen: set[str]
) -> Iterator[Document]:
    """Texts that may stay, as far as one text alone can tell; others are counted by reason."""
    for document in arriving:
        reason = _unfit(order, document)
        if not reason:
            digest = content_hash(document.text)
            reason = "in the benchmark" if digest in old else "duplicate" if digest in seen else ""
        if reason:
            partial.dropped[reason] += 1
            continue
        seen.add(digest)
        yield document


def _unfit(order: Order, document: Document) -> str:
    if document.date is None:
        return "no date"
    if document.date not in order.window:
        return "outside the dates"
    if any("\ud800" <= sign <= "\udfff" for sign in document.text):
        return "not valid Unicode"
    found = words(document.text)
    unspaced = sum(1 for word in found if len(word) == 1 and ord(word) > 0x2E7F)
    if len(found) - unspaced / 2 < order.min_words:
        return "too short"
    if order.language and not languages.speaks(document.text, order.language):
        return f"not in {order.language}"
    return ""


def _nothing(order: Order, partial: Partial, dropped: Counter[str]) -> UsageError:
    partial.remove()
    dates = " and ".join(f"{n} {d}" for n, d in (("after", order.window.after), ("before", order.window.before)) if d)
    reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.most_common()) or "nothing"
    return UsageError(
        f"{order.domain} must have texts published {dates} that fit; of {partial.found} found none is left: {reasons}"
    )


def _manifest(order: Order, limit: int, documents: Sequence[Document], content: bytes, clock: Clock) -> dict[str, Any]:
    days = [document.date.isoformat() for document in documents if document.date]
    checked = bool(order.language) and languages.known(order.language)
    return {
        "order": keyed(order),
        "label": int(order.member),
        "limit": limit,
        "kept": len(documents),
        "first_date": min(days),
        "last_date": max(days),
        "groups": len({document.group for document in documents}),
        "language_checked": checked,
        "sha256": hashlib.sha256(content).hexdigest(),
        "benchmark_sha256": {file: hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in order.benchmark},
        "finished": datetime.fromtimestamp(clock.wall(), UTC).isoformat(timespec="seconds"),
        "versions": {
            "fsd": metadata.version("fsd"),
            "python": platform.python_version(),
            "requests": metadata.version("requests"),
        },
    }
