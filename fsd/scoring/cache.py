"""Memoized token statistics and hidden states: results by model and prompt, in memory or in an SQLite file."""

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import xxhash

from fsd.errors import UsageError
from fsd.net.hub import default_folder
from fsd.progress import note
from fsd.token_stats import Continuations, FloatArray, IntArray, PairStats, Prompt, Prompts, Scored, Scorer, TokenStats

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel

T = TypeVar("T")
Stored = dict[Prompt, Any]

# Version of the engine's numbers, part of every key; raised whenever they change.
ENGINE = 2
# Name of the database in the cache folder.
FILE = "statistics.sqlite"
# Size of the database in bytes beyond which the rows that were used longest ago are deleted.
LIMIT = 2 * 2**30
# Most prompts whose statistics wait to be stored.
ROWS = 4096
# Most seconds of work that a killed process loses.
SECONDS = 60
# Longest wait for another process that writes.
BUSY_SECONDS = 30
# Precision of the time of last use, so that most reading needs no writing.
TOUCH_SECONDS = 3600

# The tables of earlier versions had other columns.
OLD = "DROP TABLE IF EXISTS statistics; DROP TABLE IF EXISTS results;"
SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    model TEXT NOT NULL, prompt BLOB NOT NULL, used INTEGER NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (model, prompt)
);
CREATE INDEX IF NOT EXISTS answers_by_use ON answers (used);
"""


def model_key(language_model: "LanguageModel", *, tuned: bool) -> str:
    """Hash of what numbers depend on; not of the batch, which in float32 changes them by rounding alone."""
    from importlib.metadata import version

    from fsd.models.adapters import adapter_fingerprint

    # An adapter that changed its base has changed the numbers, but not the base's name or fingerprint.
    language_model.check_intact()
    fingerprint = language_model.identity.fingerprint
    if not fingerprint:
        raise ValueError("a model must have a fingerprint of its weights to be cached")
    adapter = adapter_fingerprint(language_model) if tuned else ""
    tokenizer = xxhash.xxh3_128_hexdigest(language_model.tokenizer.backend_tokenizer.to_str().encode())
    start = None
    if language_model.starts:
        start = language_model.start
    # The order is part of the hash: another one would make every stored number unknown.
    parts = [
        ENGINE,
        fingerprint,
        language_model.settings,
        adapter,
        tokenizer,
        start,
        language_model.context,
        language_model.precision,
        language_model.device.type,
    ]
    libraries = ["torch", "transformers"]
    if language_model.bits:
        libraries.append("bitsandbytes")
    parts += map(version, libraries)
    return xxhash.xxh3_128_hexdigest(json.dumps(parts).encode())


def prompt_hash(prompt: Prompt) -> bytes:
    """16 bytes that identify a text and its context; of a chat, its tokens and which of them are scored."""
    # A text from JSON may hold half of a surrogate pair, which plain UTF-8 refuses.
    text = prompt.text.encode("utf-8", "surrogatepass")
    context = prompt.context.encode("utf-8", "surrogatepass")
    # With the length of the text, no other division of the same bytes has this hash.
    identity = len(text).to_bytes(8, "little") + text + context
    if prompt.marked is None:
        return xxhash.xxh3_128_digest(identity)
    # With another seed, no text has the hash of a chat.
    return xxhash.xxh3_128_digest(identity + json.dumps(prompt.marked).encode(), seed=1)


# Kinds of rows: results in JSON that depend on more than one text, continuations, hidden states of a whole text, and
# statistics of its tokens under one model or two, whose numbers are those of the text alone, or are not.
TEXT = "text"
CONTINUATIONS = "continuations"
STATES = "states"
TOKENS = "tokens"
PAIR = "pair"
PAIR_NOT_ALONE = "pair, not alone"
# Numbers of a token under one model, and under two.
SINGLE_ROWS = 4
PAIR_ROWS = 11


class Row(NamedTuple):
    """What is stored of a result: its kind, and its content."""

    kind: str
    data: bytes


def encode(result: TokenStats | PairStats | Continuations | FloatArray | str) -> Row:
    """The row of a result; of T tokens there are 5T numbers (float64) with the ids, of two models 12T."""
    if isinstance(result, str):
        return Row(TEXT, result.encode())
    if isinstance(result, Continuations):
        return Row(CONTINUATIONS, json.dumps(result).encode())
    if isinstance(result, np.ndarray):
        return Row(STATES, result.astype("<f8").tobytes())
    kind = TOKENS
    if isinstance(result, PairStats):
        kind = PAIR if result.alone else PAIR_NOT_ALONE
    # The ids are exact as float64, so that all numbers are one block.
    numbers = np.vstack([result.token, *_numbers(result)])
    return Row(kind, numbers.astype("<f8").tobytes())


def _numbers(stats: TokenStats | PairStats) -> list[FloatArray]:
    """What is stored of each token besides its id, in order."""
    if isinstance(stats, PairStats):
        singles = _numbers(stats.target) + _numbers(stats.reference)
        return [*singles, stats.mean, stats.std, stats.reference_mean]
    return [stats.logp, stats.mean, stats.std, stats.top]


def decode(text: str, row: Row) -> Any:
    """The result of a text that has this row."""
    if row.kind == TEXT:
        return row.data.decode()
    if row.kind == CONTINUATIONS:
        truth, samples, greedy = json.loads(row.data)
        return Continuations(truth, tuple(samples), greedy)
    numbers = np.frombuffer(row.data, "<f8").astype(np.float64)
    if row.kind == STATES:
        return numbers
    count = SINGLE_ROWS if row.kind == TOKENS else PAIR_ROWS
    values = numbers.reshape(1 + count, -1)
    token = values[0].astype(np.int64)
    if row.kind == TOKENS:
        return TokenStats(text, token, *values[1:])
    return from_rows(text, token, values[1:], alone=row.kind == PAIR)


def from_rows(text: str, token: IntArray, rows: FloatArray, *, alone: bool) -> PairStats:
    """The statistics of a text under two models from (11, T) numbers: either model's own, then those of both."""
    target = TokenStats(text, token, *rows[:SINGLE_ROWS])
    reference = TokenStats(text, token, *rows[SINGLE_ROWS : 2 * SINGLE_ROWS])
    mean, std, reference_mean = rows[2 * SINGLE_ROWS :]
    return PairStats(target, reference, mean, std, reference_mean, alone=alone)


class MemoryStore:
    """Token statistics in a dictionary."""

    def __init__(self) -> None:
        self._stored: dict[tuple[str, Prompt], TokenStats] = {}

    def load(self, key: str, prompts: Iterable[Prompt]) -> Stored:
        """The stored statistics of those of the prompts that have any."""
        stored = {}
        for prompt in prompts:
            if (key, prompt) in self._stored:
                stored[prompt] = self._stored[key, prompt]
        return stored

    def save(self, key: str, results: Sequence[Scored]) -> None:
        """Store statistics."""
        for prompt, stats in results:
            self._stored[key, prompt] = stats


@dataclass(eq=False)
class SQLiteStore:
    """Token statistics in an SQLite file of at most `limit` bytes, shared by any number of processes and threads.

    A file that cannot be read or written costs speed and one line, never the run. Every call opens its own connection,
    so that none is shared between threads or inherited by a child process. A `required` file must be writable at the
    first `load`.
    """

    file: Path = field(default_factory=lambda: default_folder() / FILE)
    limit: int | None = LIMIT
    required: bool = False
    usable = True

    def load(self, key: str, prompts: Iterable[Prompt]) -> Stored:
        """The stored statistics of those of the prompts that have any."""
        if self.required:
            # Taking the lock for writing is the one trial that changes nothing.
            self._run(lambda db: db.execute("BEGIN IMMEDIATE"))
            self.required = False
        by_hash = {prompt_hash(prompt): prompt for prompt in prompts}
        query = "SELECT prompt, used, kind, data FROM answers WHERE model = ? AND prompt = ?"

        def select(db: sqlite3.Connection) -> list[Any]:
            selected: list[Any] = []
            for digest in by_hash:
                selected += db.execute(query, (key, digest))
            return selected

        stored: Stored = {}
        old = []
        now = int(time.time())
        for digest, used, *row in self._run(select) or []:
            prompt = by_hash[digest]
            stored[prompt] = decode(prompt.text, Row(*row))
            if used < now - TOUCH_SECONDS:
                old.append((now, key, digest))
        if old:
            self._write("UPDATE answers SET used = ? WHERE model = ? AND prompt = ?", old)
        return stored

    def save(self, key: str, results: Sequence[tuple[Prompt, Any]]) -> None:
        """Store statistics, in one transaction, and delete the rows used longest ago beyond the limit."""
        now = int(time.time())
        rows = []
        size = 0
        for prompt, stats in results:
            row = encode(stats)
            rows.append((key, prompt_hash(prompt), now, *row))
            size += len(row.data)
        room = None if self.limit is None else self.limit - size
        # Rows larger than the whole file are not stored, as nothing that is deleted would make room for them.
        if rows and (room is None or room >= 0):
            self._write("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", rows, room)

    def delete(self) -> None:
        """Delete the file, and what SQLite keeps beside it."""
        for ending in ("", "-journal", "-wal", "-shm"):
            self.file.with_name(self.file.name + ending).unlink(missing_ok=True)

    def _write(self, query: str, rows: Sequence[tuple[Any, ...]], room: int | None = None) -> None:
        def write(db: sqlite3.Connection) -> None:
            # A transaction that begins by reading can fail when it turns to writing, however long it waits.
            db.execute("BEGIN IMMEDIATE")
            with db:
                if room is not None:
                    _shrink(db, room)
                db.executemany(query, rows)

        self._run(write)

    def _run(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        """The result of an action on the database; None if it is not possible."""
        if not self.usable:
            return None
        try:
            with contextlib.closing(self._connect()) as db:
                return action(db)
        except (sqlite3.Error, OSError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if self.required:
                raise UsageError(f"{self.file} must be a database that can be written; got: {why}") from error
            note(f"cache: {self.file} cannot be used: {why}; the run goes on without it")
            self.usable = False
        return None

    def _connect(self) -> sqlite3.Connection:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.file, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            db.execute("PRAGMA page_size = 16384")  # for rows of some kilobytes
            db.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last rows, which are computed again
            # Without a limit, the file is the user's own, and its answers were paid for.
            db.executescript(SCHEMA if self.limit is None else OLD + SCHEMA)
        except sqlite3.Error:
            db.close()
            raise
        return db


def _shrink(db: sqlite3.Connection, limit: int) -> None:
    """Delete the rows that were used longest ago until the used pages take at most `limit` bytes."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, page = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    # Deleted rows leave free pages in the file, which later ones fill: the file never shrinks.
    excess = (pages - free) * page - limit
    if excess > 0:
        # Rows are deleted while those used before them, themselves left out, have not freed enough.
        total = "SUM(length(data)) OVER (ORDER BY used, rowid) - length(data) AS before"
        older = f"SELECT rowid FROM (SELECT rowid, {total} FROM answers) WHERE before < ?"
        db.execute(f"DELETE FROM answers WHERE rowid IN ({older})", (excess,))


class Store(Protocol):
    """What keeps statistics by the key of a model and by prompt."""

    def load(self, key: str, prompts: Iterable[Prompt]) -> Stored:
        """The stored statistics of those of the prompts that have any."""

    def save(self, key: str, results: Sequence[Scored]) -> None:
        """Store statistics."""


@dataclass(eq=False)
class MemoizedScorer:
    """A scorer whose statistics of a prompt are computed once, by its `as_read` if it has one, and then stored."""

    scorer: Scorer
    store: Store = field(default_factory=MemoryStore)
    key: str | Callable[[], str] = ""  # of all but the prompt; a function is called anew, as an adapter may change

    @property
    def lacks(self) -> frozenset[str]:
        """Fields that the scorer does not give."""
        return getattr(self.scorer, "lacks", frozenset())

    def unknown(self, prompts: Prompts) -> list[Prompt]:
        """The distinct prompts that are not in the store."""
        stored = self.store.load(self._key(), prompts)
        return [prompt for prompt in dict.fromkeys(prompts) if prompt not in stored]

    def __call__(self, prompts: Prompts) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order."""
        key = self._key()
        distinct = dict.fromkeys(prompts)
        stored = self.store.load(key, distinct)
        # Without this question an API would be asked about nothing, and a network loaded for nothing.
        if unknown := [prompt for prompt in distinct if prompt not in stored]:
            # They come one by one, and each is stored on the way: what a killed command has computed is kept.
            stored |= self._computed(key, unknown)
        yield from (stored[prompt] for prompt in prompts)

    def _key(self) -> str:
        if isinstance(self.key, str):
            return self.key
        return self.key()

    def _computed(self, key: str, prompts: Prompts) -> Iterator[Scored]:
        """The prompts as they become ready, stored from time to time, and at the end or at an interruption."""
        as_read = getattr(self.scorer, "as_read", None)
        pairs = as_read(prompts) if as_read else zip(prompts, self.scorer(prompts), strict=True)
        fresh = []
        begun = time.monotonic()
        try:
            for pair in pairs:
                fresh.append(pair)
                yield pair
                if len(fresh) >= ROWS or time.monotonic() - begun >= SECONDS:
                    # Emptied first: an interruption while these are stored must not store them twice.
                    ready = fresh
                    fresh = []
                    self.store.save(key, ready)
                    begun = time.monotonic()
        finally:
            self.store.save(key, fresh)


def memoized(scorer: Scorer, store: Store | None, key: str | Callable[[], str], *models: "LanguageModel") -> Scorer:
    """The scorer behind a store, if there is one and the weights of the models, on which the numbers depend, are known.

    Else it is the scorer itself.
    """
    if store is None or not all(model.identity.fingerprint for model in models):
        return scorer
    return MemoizedScorer(scorer, store, key)
