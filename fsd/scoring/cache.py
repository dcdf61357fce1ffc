"""Token statistics on disk, found again by what they were made of, so that a second run makes no forward pass.

A key names everything but the prompt that the numbers depend on (see `model_key`); its folder holds shards, files that
are written once, whole, under a name of their own, and never changed. So any number of processes may write at the
same time, and a shard that is being read may be deleted. `fsd.scoring.shards` is their format.
"""

import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import xxhash

from fsd.errors import UsageError
from fsd.scoring.shards import Shard, halves, opened, packed, prompt_hash
from fsd.token_stats import Prompt, Scorer, TokenStats

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel

ENGINE = 1
"""Raised whenever the engine's numbers change; older numbers are not found then."""
LIMIT = 2 * 2**30
"""Bytes of all shards together; the ones that were used longest ago go first."""
ROWS = 4096
"""Most prompts in a shard."""
SECONDS = 60
"""Most time whose work a killed process loses."""
LEFTOVER_SECONDS = 3600
"""Age at which an unfinished file has no writer any more."""


def default_folder() -> Path:
    """$FSD_CACHE, or `fsd` in the user's cache folder: the numbers depend on no checkout and no run."""
    named = os.environ.get("FSD_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fsd"


def model_key(language_model: "LanguageModel", *, tuned: bool) -> str:
    """What a model's numbers are made of: weights, adapter, tokenizer, precision, kind of device, libraries, engine.

    The size of a batch is not part of it: in float32 it moves a number by rounding alone.

    Raises:
        ValueError: if the model does not know its own weights, as one that was never saved.
    """
    from importlib.metadata import version

    from fsd.models.adapters import adapter_fingerprint

    identity = language_model.identity
    if not identity.fingerprint:
        raise ValueError("a model must have a fingerprint of its weights to be cached")
    tokenizer = language_model.tokenizer.backend_tokenizer.to_str()
    parts = (
        ENGINE,
        identity.fingerprint,
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


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


class StatsCache:
    """Shards of token statistics in a folder.

    Whatever is wrong with the folder costs speed and one line, never the run: a damaged shard is deleted and made
    again, a folder that cannot be written is only read.

    Args:
        folder: where; None for `default_folder()`.
        limit: bytes of all shards together.
        say: takes a line about the cache for the user; stderr by default.
    """

    def __init__(
        self, folder: Path | None = None, *, limit: int = LIMIT, say: Callable[[str], None] = _to_stderr
    ) -> None:
        if limit < 1:
            raise UsageError(f"the size of the cache must be at least 1 byte; got {limit}")
        self.folder = folder or default_folder()
        self.limit = limit
        self.say = say
        self.writing = True
        self._shards: dict[str, dict[Path, Shard | None]] = {}

    def find(self, key: str, prompts: Iterable[Prompt]) -> dict[Prompt, TokenStats]:
        """The statistics of those prompts that are known under a key."""
        missing = {prompt: prompt_hash(prompt) for prompt in prompts}
        found: dict[Prompt, TokenStats] = {}
        for shard in self._look(key):
            if not missing:
                break
            listed = list(missing)
            places = shard.find(halves(b"".join(missing.values())))
            with contextlib.suppress(OSError):  # dropped by another process
                for prompt, stats in shard.read([(listed[i], row) for i, row in places]) if places else ():
                    found[prompt] = stats
                    del missing[prompt]
        return found

    def _look(self, key: str) -> list[Shard]:
        """The shards of a key, with those that are new since the last look."""
        known = self._shards.setdefault(key, {})
        try:
            files = sorted((self.folder / key).glob("*.stats"))
        except OSError:
            files = []
        for file in files:
            if file not in known:
                known[file] = self._open(file)
        return [shard for shard in known.values() if shard]

    def _open(self, file: Path) -> Shard | None:
        try:
            shard = opened(file)
            with contextlib.suppress(OSError):
                os.utime(file)  # used now: the last to be dropped
        except FileNotFoundError:
            return None  # dropped by another process
        except OSError as error:
            self.say(f"cache: a file that cannot be read is left out: {file} ({error.strerror})")
            return None
        except (ValueError, KeyError, TypeError) as error:
            with contextlib.suppress(OSError):
                file.unlink()
            self.say(f"cache: a damaged file is left out and its texts are read again: {file} ({error})")
            return None
        return shard

    def keep(self, key: str, results: Sequence[tuple[Prompt, TokenStats]]) -> None:
        """Store statistics under a key, and drop the oldest shards beyond the limit."""
        if not self.writing or not results:
            return
        content = packed(results)
        if len(content) > self.limit:
            return
        file = self.folder / key / f"{uuid.uuid4().hex}.stats"
        draft = file.with_suffix(".tmp")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(content)
            draft.replace(file)
            self._drop(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink()
            self.writing = False
            self.say(f"cache: nothing more is kept, since {self.folder} cannot be written: {error.strerror or error}")

    def _drop(self, new: Path) -> None:
        files = []
        for file in self.folder.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):  # dropped by another process
                status = file.stat()
                if file.suffix == ".stats":
                    files.append((status.st_mtime, status.st_size, file))
                elif file.suffix == ".tmp" and time.time() - status.st_mtime > LEFTOVER_SECONDS:
                    file.unlink()
        excess = sum(size for _, size, _ in files) - self.limit
        for _, size, file in sorted(files):
            if excess <= 0:
                break
            if file != new:
                file.unlink(missing_ok=True)
                excess -= size


@runtime_checkable
class Reader(Protocol):
    """A scorer that hands prompts on when they are ready, as `fsd.scoring.model_scorer.ModelScorer` does."""

    def as_read(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, TokenStats]]: ...  # noqa: D102 - see above


class Store(Protocol):
    """Token statistics by key and prompt."""

    def find(self, key: str, prompts: Iterable[Prompt]) -> dict[Prompt, TokenStats]:
        """The stored statistics of those of the prompts that have any."""

    def keep(self, key: str, results: Sequence[tuple[Prompt, TokenStats]]) -> None:
        """Store statistics."""


class MemoryStore:
    """Token statistics in a dictionary."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, Prompt], TokenStats] = {}

    def find(self, key: str, prompts: Iterable[Prompt]) -> dict[Prompt, TokenStats]:
        """The stored statistics of those of the prompts that have any."""
        return {prompt: self.known[key, prompt] for prompt in prompts if (key, prompt) in self.known}

    def keep(self, key: str, results: Sequence[tuple[Prompt, TokenStats]]) -> None:
        """Store statistics."""
        self.known |= {(key, prompt): stats for prompt, stats in results}


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
        store: Store | None = None,
        key: str | Callable[[], str] = "",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scorer = scorer
        self.store = MemoryStore() if store is None else store
        self.key = key
        self.clock = clock

    @property
    def lacks(self) -> frozenset[str]:
        """Names of the statistics that the scorer does not provide."""
        lacks: frozenset[str] = getattr(self.scorer, "lacks", frozenset())
        return lacks

    def unknown(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """The distinct prompts that are not in the store."""
        known = self.store.find(self._key(), prompts)
        return [prompt for prompt in dict.fromkeys(prompts) if prompt not in known]

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order."""
        key = self._key()
        known = self.store.find(key, dict.fromkeys(prompts))
        unknown = [prompt for prompt in dict.fromkeys(prompts) if prompt not in known]
        if unknown:
            known |= self._kept(key, unknown)
        yield from (known[prompt] for prompt in prompts)

    def _key(self) -> str:
        return self.key if isinstance(self.key, str) else self.key()

    def _kept(self, key: str, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, TokenStats]]:
        """The prompts as they are read, kept from time to time, and at the end or at an interruption."""
        fresh: list[tuple[Prompt, TokenStats]] = []
        begun = self.clock()
        try:
            for pair in self._read(prompts):
                fresh.append(pair)
                yield pair
                if len(fresh) >= ROWS or self.clock() - begun >= SECONDS:
                    ready, fresh = fresh, []
                    self.store.keep(key, ready)
                    begun = self.clock()
        finally:
            self.store.keep(key, fresh)

    def _read(self, prompts: Sequence[Prompt]) -> Iterable[tuple[Prompt, TokenStats]]:
        """Prompts with their statistics, as soon as they are there where the scorer can say so."""
        if isinstance(self.scorer, Reader):
            return self.scorer.as_read(prompts)
        return zip(prompts, self.scorer(prompts), strict=True)
