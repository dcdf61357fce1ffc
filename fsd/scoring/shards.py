"""A shard of token statistics: a file that is written once, whole, and never changed.

Columns (hash of the prompt, end of its row, token, logp, mean, std) stand behind a header with a checksum. In memory
stays only an index of 20 bytes a prompt; rows are read through a map that is closed again.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from fsd.token_stats import Prompt, TokenStats

MAGIC = b"FSDSTAT1"
ALIGNMENT = 64
PIECE = 2**20
"""Bytes read at once for the checksum."""
_Array = np.ndarray[Any, Any]


def prompt_hash(prompt: Prompt) -> bytes:
    """16 bytes that stand for a text and its context."""
    text, context = (part.encode("utf-8", "surrogatepass") for part in prompt)
    return xxhash.xxh3_128_digest(len(text).to_bytes(8, "little") + text + context)


def halves(hashes: bytes | memoryview) -> _Array:
    """(N, 2) unsigned 64-bit halves of N hashes."""
    return np.frombuffer(hashes, "<u8").reshape(-1, 2)


def packed(results: Sequence[tuple[Prompt, TokenStats]]) -> bytes:
    """A shard's bytes; numbers are kept as float32 where that loses nothing, as with our own engine, else float64."""
    hashes = b"".join(prompt_hash(prompt) for prompt, _ in results)
    ends = np.cumsum([stats.token.size for _, stats in results]).astype("<i8")
    token = np.concatenate([stats.token for _, stats in results]).astype("<i4")
    values = np.concatenate([[stats.logp, stats.mean, stats.std] for _, stats in results], axis=1)
    kind = "<f4" if np.array_equal(values.astype("<f4"), values, equal_nan=True) else "<f8"
    body = hashes + ends.tobytes() + token.tobytes() + values.astype(kind).tobytes()
    header: dict[str, Any] = {"rows": len(results), "tokens": int(ends[-1]), "kind": kind}
    header["sum"] = _checksum(header, [body])
    line = json.dumps(header).encode()
    line += b" " * (-(len(MAGIC) + 8 + len(line)) % ALIGNMENT)
    return MAGIC + len(line).to_bytes(8, "little") + line + body


def _checksum(header: dict[str, Any], pieces: Sequence[bytes] | Iterator[bytes]) -> str:
    digest = xxhash.xxh3_128(f"{header['rows']} {header['tokens']} {header['kind']} ".encode())
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


@dataclass(frozen=True)
class Shard:
    """Where a shard's rows lie.

    Attributes:
        file: the shard.
        begin: byte at which its columns begin.
        tokens: T of all rows together.
        kind: type of its numbers.
        low: (N,) first halves of the prompts' hashes, sorted.
        rows: (N,) the rows that they stand in.
    """

    file: Path
    begin: int
    tokens: int
    kind: str
    low: _Array
    rows: _Array

    def find(self, wanted: _Array) -> list[tuple[int, int]]:
        """(index of a hash, row that may be its own) for (M, 2) `halves`; `read` compares the rest of the hash."""
        at = np.minimum(np.searchsorted(self.low, wanted[:, 0]), len(self.low) - 1)
        hits = np.flatnonzero(self.low[at] == wanted[:, 0])
        return [(int(i), int(self.rows[at[i]])) for i in hits]

    def read(self, wanted: Sequence[tuple[Prompt, int]]) -> Iterator[tuple[Prompt, TokenStats]]:
        """The statistics of prompts, of those whose hash the row has.

        Raises:
            OSError: if the file is gone.
        """
        raw = np.memmap(self.file, np.uint8, mode="r")[self.begin :]
        n = len(self.rows)
        hashes, ends, token, values = np.split(raw, np.cumsum([16 * n, 8 * n, 4 * self.tokens]))
        hashes, ends, token = hashes.reshape(n, 16), ends.view("<i8"), token.view("<i4")
        values = values.view(self.kind).reshape(3, self.tokens)
        for prompt, i in wanted:
            if hashes[i].tobytes() == prompt_hash(prompt):
                span = slice(int(ends[i - 1]) if i else 0, int(ends[i]))
                yield (
                    prompt,
                    TokenStats(prompt.text, token[span].astype(np.int64), *values[:, span].astype(np.float64)),
                )


def opened(file: Path) -> Shard:
    """Check a shard whole, and keep where its rows lie.

    Raises:
        ValueError: if it is damaged.
        OSError: if it cannot be read.
    """
    with file.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise ValueError("it is no shard")
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(min(length, PIECE)))
        begin, rows = stream.tell(), int(header["rows"])
        if _checksum(header, iter(lambda: stream.read(PIECE), b"")) != header["sum"]:
            raise ValueError("its checksum is wrong")
        stream.seek(begin)
        low = halves(stream.read(16 * rows))[:, 0]
    order = np.argsort(low, kind="stable")
    return Shard(file, begin, int(header["tokens"]), str(header["kind"]), low[order], order.astype("<i4"))
