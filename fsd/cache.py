"""Token statistics on disk, found again by what they were made of, so that a second run makes no forward pass.

A key names everything but the prompt that the numbers depend on (see `model_key`); its folder holds shards, files that
are written once, whole, under a name of their own, and never changed. So any number of processes may write at the
same time, and a shard that is being read may be deleted. A shard holds columns (hash of the prompt, end of its row,
token, logp, mean, std) behind a header with a checksum, and is mapped into memory, not read.
"""

import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from fsd.errors import UsageError
from fsd.stats import Prompt, Scorer, TokenStats

if TYPE_CHECKING:
    from fsd.models import LanguageModel

ENGINE = 1
"""Raised whenever the engine's numbers change; older numbers are not found then."""
LIMIT = 2 * 2**30
"""Bytes of all shards together; the ones that were used longest ago go first."""
ROWS = 4096
"""Most prompts in a shard."""
MAGIC = b"FSDSTAT1"
ALIGNMENT = 64
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

    from fsd.adapters import adapter_fingerprint

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
    )
    return xxhash.xxh3_128_hexdigest(json.dumps(parts).encode())


def prompt_hash(prompt: Prompt) -> bytes:
    """16 bytes that stand for a text and its context."""
    text, context = (part.encode("utf-8", "surrogatepass") for part in prompt)
    return xxhash.xxh3_128_digest(len(text).to_bytes(8, "little") + text + context)


@dataclass(frozen=True)
class _Shard:
    """Mapped columns of a shard; row i's tokens are those from ends[i − 1] to ends[i]."""

    hashes: np.ndarray[Any, Any]
    ends: np.ndarray[Any, Any]
    token: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]

    def row(self, i: int, text: str) -> TokenStats:
        span = slice(int(self.ends[i - 1]) if i else 0, int(self.ends[i]))
        return TokenStats(text, self.token[span].astype(np.int64), *self.values[:, span].astype(np.float64))


def _packed(results: Sequence[tuple[Prompt, TokenStats]]) -> bytes:
    """A shard's bytes; numbers are kept as float32 where that loses nothing, as with our own engine, else float64."""
    hashes = b"".join(prompt_hash(prompt) for prompt, _ in results)
    ends = np.cumsum([stats.token.size for _, stats in results]).astype("<i8")
    token = np.concatenate([stats.token for _, stats in results]).astype("<i4")
    values = np.concatenate([[stats.logp, stats.mean, stats.std] for _, stats in results], axis=1)
    kind = "<f4" if np.array_equal(values.astype("<f4"), values, equal_nan=True) else "<f8"
    body = hashes + ends.tobytes() + token.tobytes() + values.astype(kind).tobytes()
    header: dict[str, Any] = {"rows": len(results), "tokens": int(ends[-1]), "kind": kind}
    header["sum"] = _checksum(header, body)
    line = json.dumps(header).encode()
    line += b" " * (-(len(MAGIC) + 8 + len(line)) % ALIGNMENT)
    return MAGIC + len(line).to_bytes(8, "little") + line + body


def _checksum(header: dict[str, Any], body: bytes | memoryview) -> str:
    digest = xxhash.xxh3_128(f"{header['rows']} {header['tokens']} {header['kind']} ".encode())
    digest.update(body)
    return digest.hexdigest()


def _opened(file: Path) -> _Shard:
    """Map a shard.

    Raises:
        ValueError: if it is damaged.
        OSError: if it cannot be read.
    """
    raw = np.memmap(file, np.uint8, mode="r")
    begin = len(MAGIC) + 8
    if bytes(raw[: len(MAGIC)]) != MAGIC:
        raise ValueError("it is no shard")
    begin += int.from_bytes(bytes(raw[len(MAGIC) : begin]), "little")
    header = json.loads(bytes(raw[len(MAGIC) + 8 : begin]))
    body = raw[begin:]
    if _checksum(header, body.data) != header["sum"]:
        raise ValueError("its checksum is wrong")
    rows, tokens = header["rows"], header["tokens"]
    hashes, ends, token, values = np.split(body, np.cumsum([16 * rows, 8 * rows, 4 * tokens]))
    return _Shard(
        hashes.view("V16"), ends.view("<i8"), token.view("<i4"), values.view(header["kind"]).reshape(3, tokens)
    )


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
        self._shards: dict[Path, _Shard | None] = {}
        self._places: dict[tuple[str, bytes], tuple[_Shard, int]] = {}

    def find(self, key: str, prompts: Iterable[Prompt]) -> dict[Prompt, TokenStats]:
        """The statistics of those prompts that are known under a key."""
        self._look(key)
        found = {}
        for prompt in prompts:
            place = self._places.get((key, prompt_hash(prompt)))
            if place is not None:
                shard, i = place
                found[prompt] = shard.row(i, prompt.text)
        return found

    def _look(self, key: str) -> None:
        """Map the shards of a key that are new since the last look."""
        try:
            files = sorted((self.folder / key).glob("*.stats"))
        except OSError:
            return
        for file in files:
            if file not in self._shards:
                shard = self._shards[file] = self._open(file)
                if shard is not None:
                    self._places |= {(key, bytes(h)): (shard, i) for i, h in enumerate(shard.hashes)}

    def _open(self, file: Path) -> _Shard | None:
        try:
            shard = _opened(file)
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
        content = _packed(results)
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


class CachedScorer:
    """A scorer whose answers are kept: only prompts that are not known yet are read.

    Args:
        scorer: reads what is not known.
        cache: where answers are kept.
        key: what the scorer's numbers are made of; a function is asked anew at every call, for a model whose
            adapter may change.
    """

    def __init__(self, scorer: Scorer, cache: StatsCache, key: str | Callable[[], str]) -> None:
        self.scorer = scorer
        self.cache = cache
        self.key = key

    def __call__(self, prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        """Statistics of each prompt's text, in order."""
        key = self.key if isinstance(self.key, str) else self.key()
        known = self.cache.find(key, dict.fromkeys(prompts))
        unknown = [prompt for prompt in dict.fromkeys(prompts) if prompt not in known]
        if unknown:
            fresh: list[tuple[Prompt, TokenStats]] = []
            try:
                for pair in zip(unknown, self.scorer(unknown), strict=True):
                    fresh.append(pair)
                    if len(fresh) % ROWS == 0:
                        self.cache.keep(key, fresh[-ROWS:])
            finally:  # what an interrupted scorer has given is not lost
                self.cache.keep(key, fresh[len(fresh) - len(fresh) % ROWS :])
            known |= fresh
        yield from (known[prompt] for prompt in prompts)
