"""Memoized token statistics: a scorer's results by model and prompt, in memory or in an SQLite file.

With the file, a second run on the same texts makes no forward pass. `model_key` identifies everything but the prompt
that the numbers depend on.
"""

import contextlib
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import xxhash

from fsd.errors import UsageError
from fsd.token_stats import Prompt, Scorer, TokenStats

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel

T = TypeVar("T")

ENGINE = 1
"""Version of the engine's numbers, part of every key; raised whenever they change."""
FILE = "statistics.sqlite"
"""Name of the database in the cache folder."""
LIMIT = 2 * 2**30
"""Size of the database in bytes beyond which the rows that were used longest ago are deleted."""
ROWS = 4096
"""Most prompts whose statistics wait to be stored."""
SECONDS = 60
"""Most seconds of work that a killed process loses."""
BUSY_SECONDS = 30
"""Longest wait for another process that writes."""
TOUCH_SECONDS = 3600
"""Precision of the time of last use, so that most reading needs no writing."""
QUERY_PROMPTS = 500
"""Prompts per SELECT."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS statistics (
    model TEXT NOT NULL, prompt BLOB NOT NULL, used INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (model, prompt)
);
CREATE INDEX IF NOT EXISTS statistics_by_use ON statistics (used);
"""


def default_folder() -> Path:
    """$FSD_CACHE, else `fsd` in the user's cache folder, since the numbers depend on no checkout and no run."""
    named = os.environ.get("FSD_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fsd"


def model_key(language_model: "LanguageModel", *, tuned: bool) -> str:
    """Hash of what a model's numbers depend on.

    That is its weights, configuration, adapter, tokenizer, precision, device type, libraries, and the engine. The batch
    is not part of it: in float32 it changes a number only by rounding, since `ModelScorer` separates texts to which the
    model would apply other position encodings together than alone.

    Raises:
        UsageError: if an adapter has changed the base.
        ValueError: if the model's weights have no fingerprint, as those of a model that was never saved.
    """
    from importlib.metadata import version

    from fsd.models.adapters import adapter_fingerprint

    language_model.check_intact()
    identity = language_model.identity
    if not identity.fingerprint:
        raise ValueError("a model must have a fingerprint of its weights to be cached")
    tokenizer = language_model.tokenizer.backend_tokenizer.to_str()
    parts = (
        ENGINE,
        identity.fingerprint,
        language_model.settings,
        adapter_fingerprint(language_model) if tuned else "",
        xxhash.xxh3_128_hexdigest(tokenizer.encode()),
        language_model.start,
        language_model.context,
        language_model.precision,
        language_model.device.type,
        version("torch"),
        version("transformers"),
        *([version("bitsandbytes")] if language_model.bits else []),
    )
    return xxhash.xxh3_128_hexdigest(json.dumps(parts).encode())


def prompt_hash(prompt: Prompt) -> bytes:
    """16 bytes that identify a text and its context."""
    text, context = (part.encode("utf-8", "surrogatepass") for part in prompt)
    return xxhash.xxh3_128_digest(len(text).to_bytes(8, "little") + text + context)


def encode(key: str, prompt: bytes, stats: TokenStats) -> bytes:
    """Statistics as bytes: a checksum, the size of a number, T token ids (int32), and 3T numbers.

    The numbers are float32 where that loses nothing, as with our own engine, else float64.
    """
    values = np.stack([stats.logp, stats.mean, stats.std])
    with np.errstate(over="ignore"):
        numbers = values.astype("<f4")
    if not np.array_equal(numbers, values, equal_nan=True):
        numbers = values.astype("<f8")
    body = bytes([numbers.itemsize]) + stats.token.astype("<i4").tobytes() + numbers.tobytes()
    return xxhash.xxh3_64_digest(key.encode() + prompt + body) + body


def decode(key: str, prompt: bytes, text: str, data: bytes) -> TokenStats:
    """The statistics of a text that `encode` wrote.

    Raises:
        ValueError: if the checksum is wrong.
    """
    checksum, body = data[:8], data[8:]
    if xxhash.xxh3_64_digest(key.encode() + prompt + body) != checksum:
        raise ValueError("wrong checksum")
    size = body[0]
    tokens = (len(body) - 1) // (4 + 3 * size)
    token = np.frombuffer(body, "<i4", tokens, 1).astype(np.int64)
    values = np.frombuffer(body, f"<f{size}", 3 * tokens, 1 + 4 * tokens).reshape(3, tokens).astype(np.float64)
    return TokenStats(text, token, *values)


class MemoryStore:
    """Token statistics in a dictionary."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, Prompt], TokenStats] = {}

    def load(self, key: str, prompts: Iterable[Prompt]) -> dict[Prompt, TokenStats]:
        """The stored statistics of those of the prompts that have any."""
        return {prompt: self.known[key, prompt] for prompt in prompts if (key, prompt) in self.known}

    def save(self, key: str, results: Sequence[tuple[Prompt, TokenStats]]) -> None:
        """Store statistics."""
        self.known |= {(key, prompt): stats for prompt, stats in results}


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


class SQLiteStore:
    """Token statistics in an SQLite file, shared by any number of processes and threads.

    An error of the file costs speed and one line, never the run: a damaged file is renamed to FILE.damaged and made
    anew, a damaged row is missing, a file that cannot be written is only read, and one that stays locked is not used.
    Every call opens its own connection, so that none is shared between threads or inherited by a child process.

    Args:
        file: the database; None for `FILE` in `default_folder()`.
        limit: size in bytes beyond which the rows that were used longest ago are deleted; None for no limit.
        required: whether a file that cannot be opened for writing is an error, found by the first `load`.
        warn: receives one line about the file for the user; prints it to stderr by default.
    """

    def __init__(
        self,
        file: Path | None = None,
        *,
        limit: int | None = LIMIT,
        required: bool = False,
        warn: Callable[[str], None] = _to_stderr,
    ) -> None:
        if limit is not None and limit < 1:
            raise UsageError(f"the size of the cache must be at least 1 byte; got {limit}")
        self.file = file or default_folder() / FILE
        self.limit = limit
        self.required = required
        self.warn = warn
        self.mode: Literal["write", "read", "off"] = "write"

    def load(self, key: str, prompts: Iterable[Prompt]) -> dict[Prompt, TokenStats]:
        """The stored statistics of those of the prompts that have any.

        Raises:
            UsageError: if the file is required and cannot be opened for writing.
        """
        by_hash = {prompt_hash(prompt): prompt for prompt in prompts}
        rows = self._run(lambda db: _select(db, key, list(by_hash))) or []
        known: dict[Prompt, TokenStats] = {}
        for prompt, _, data in rows:
            with contextlib.suppress(ValueError, TypeError):
                known[by_hash[prompt]] = decode(key, prompt, by_hash[prompt].text, data)
        if len(known) < len(rows):
            self.warn(f"cache: {len(rows) - len(known)} damaged rows of {self.file} are computed again")
        now = int(time.time())
        old = [(now, key, prompt) for prompt, used, _ in rows if used < now - TOUCH_SECONDS]
        if old:
            update = "UPDATE statistics SET used = ? WHERE model = ? AND prompt = ?"
            self._run(lambda db: _write(db, update, old), writes=True)
        return known

    def save(self, key: str, results: Sequence[tuple[Prompt, TokenStats]]) -> None:
        """Store statistics, in one transaction, and delete the rows used longest ago beyond the limit."""
        now, hashes = int(time.time()), [prompt_hash(prompt) for prompt, _ in results]
        rows = [(key, h, now, encode(key, h, stats)) for h, (_, stats) in zip(hashes, results, strict=True)]
        size = sum(len(data) for *_, data in rows)
        if rows and (self.limit is None or size <= self.limit):
            insert, room = "INSERT OR REPLACE INTO statistics VALUES (?, ?, ?, ?)", self.limit and self.limit - size
            self._run(lambda db: _write(db, insert, rows, room), writes=True)

    def delete(self) -> None:
        """Delete the file."""
        for file in (self.file, *self._beside()):
            file.unlink(missing_ok=True)

    def _beside(self) -> list[Path]:
        """The files that SQLite keeps beside an open database."""
        return [self.file.with_name(self.file.name + ending) for ending in ("-wal", "-shm")]

    def _run(self, action: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> T | None:
        """The result of an action on the database, repeated after a mended error; None if it is not possible."""
        while self.mode == "write" or (self.mode == "read" and not writes):
            connect = self._connect if self.mode == "write" else self._connect_for_reading
            try:
                with contextlib.closing(connect()) as db:
                    result = action(db)
            except (sqlite3.Error, OSError) as error:
                self._recover(error)
            else:
                self.required = False  # it could be opened
                return result
        return None

    def _connect(self) -> sqlite3.Connection:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + BUSY_SECONDS
        db = sqlite3.connect(self.file, timeout=BUSY_SECONDS, isolation_level=None)
        while True:
            try:
                db.execute("PRAGMA page_size = 16384")  # for rows of some kilobytes
                db.execute("PRAGMA journal_mode = WAL")  # readers and a writer do not wait for each other
                db.execute("PRAGMA synchronous = NORMAL")
                db.executescript(SCHEMA)
            except sqlite3.Error as error:
                # the change to WAL by two processes at once fails without a wait
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    db.close()
                    raise
                time.sleep(0.05)
            else:
                return db

    def _connect_for_reading(self) -> sqlite3.Connection:
        """A connection that writes nothing, not even the index of the log where the folder does not allow it."""
        address, option = self.file.absolute().as_uri(), "mode=ro"
        try:
            with contextlib.closing(sqlite3.connect(f"{address}?{option}", uri=True)) as db:
                db.execute("SELECT 1 FROM statistics LIMIT 1")
        except sqlite3.Error:
            option = "immutable=1"
        return sqlite3.connect(f"{address}?{option}", uri=True, timeout=BUSY_SECONDS)

    def _recover(self, error: sqlite3.Error | OSError) -> None:
        """After an error, set a damaged file aside; else only read the file, or no longer use it."""
        why = getattr(error, "strerror", None) or str(error)
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if self.required:
            raise UsageError(f"{self.file} must be a database that can be written; got: {why}") from error
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) and self.mode == "write":
            with contextlib.suppress(OSError):
                for file in self._beside():
                    file.unlink(missing_ok=True)
                aside = self.file.replace(self.file.with_name(f"{self.file.name}.damaged"))
                self.warn(f"cache: {self.file} is damaged ({why}); it is now {aside.name}, and a new one is made")
                return
        if self.mode == "write":
            self.warn(f"cache: nothing more is stored, because {self.file} cannot be written: {why}")
        locked = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        self.mode = "read" if self.mode == "write" and not locked else "off"


def _select(db: sqlite3.Connection, key: str, prompts: Sequence[bytes]) -> list[tuple[bytes, int, bytes]]:
    """(prompt, used, data) of those of the prompts that are stored."""
    rows: list[tuple[bytes, int, bytes]] = []
    for begin in range(0, len(prompts), QUERY_PROMPTS):
        part = prompts[begin : begin + QUERY_PROMPTS]
        marks = ", ".join("?" * len(part))
        query = f"SELECT prompt, used, data FROM statistics WHERE model = ? AND prompt IN ({marks})"
        rows += db.execute(query, (key, *part))
    return rows


def _write(db: sqlite3.Connection, query: str, rows: Sequence[tuple[Any, ...]], room: int | None = None) -> None:
    """Write rows in one transaction, after deleting what exceeds `room` bytes."""
    db.execute("BEGIN IMMEDIATE")
    with db:
        if room is not None:
            _shrink(db, room)
        db.executemany(query, rows)


def _shrink(db: sqlite3.Connection, limit: int) -> None:
    """Delete the rows that were used longest ago until the used pages take at most `limit` bytes."""
    pages, free, page = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    excess, rows = (pages - free) * page - limit, []
    for row, size in db.execute("SELECT rowid, length(data) FROM statistics ORDER BY used, rowid"):
        if excess <= 0:
            break
        rows.append((row,))
        excess -= size
    db.executemany("DELETE FROM statistics WHERE rowid = ?", rows)


class MemoizedScorer:
    """A scorer that computes the statistics of a prompt once and then takes them from a store.

    The scorer below is any `fsd.token_stats.Scorer`: a callable that takes a list of prompts and yields their
    statistics in the same order. It is called with distinct prompts that are not in the store. If it also has
    `as_read`, which yields (prompt, statistics) pairs as they become ready, in any order, that is used instead.

    Args:
        scorer: computes what is not stored.
        store: where statistics are stored; memory by default.
        key: identifies everything but the prompt that the statistics depend on; a function is called anew at every
            call, for a model whose adapter may change.
        clock: time in seconds, to store what is ready from time to time.
    """

    def __init__(
        self,
        scorer: Scorer,
        store: MemoryStore | SQLiteStore | None = None,
        key: str | Callable[[], str] = "",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scorer = scorer
        self.store = store or MemoryStore()
        self.key = key
        self.clock = clock

    @property
    def lacks(self) -> frozenset[str]:
        """Names of the statistics that the scorer does not provide."""
        lacks: frozenset[str] = getattr(self.scorer, "lacks", frozenset())
        return lacks

    def unknown(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """The distinct prompts that are not in the store."""
        known = self.store.load(self._key(), prompts)
        return [prompt for prompt in dict.fromkeys(prompts) if prompt not in known]

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order."""
        key = self._key()
        known = self.store.load(key, dict.fromkeys(prompts))
        unknown = [prompt for prompt in dict.fromkeys(prompts) if prompt not in known]
        if unknown:
            known |= self._computed(key, unknown)
        yield from (known[prompt] for prompt in prompts)

    def _key(self) -> str:
        return self.key if isinstance(self.key, str) else self.key()

    def _computed(self, key: str, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, TokenStats]]:
        """The prompts as they become ready, stored from time to time, and at the end or at an interruption."""
        fresh: list[tuple[Prompt, TokenStats]] = []
        begun = self.clock()
        try:
            for pair in self._results(prompts):
                fresh.append(pair)
                yield pair
                if len(fresh) >= ROWS or self.clock() - begun >= SECONDS:
                    ready, fresh = fresh, []
                    self.store.save(key, ready)
                    begun = self.clock()
        finally:
            self.store.save(key, fresh)

    def _results(self, prompts: Sequence[Prompt]) -> Iterable[tuple[Prompt, TokenStats]]:
        as_read = getattr(self.scorer, "as_read", None)
        return as_read(prompts) if as_read else zip(prompts, self.scorer(prompts), strict=True)
