"""Token counts of a corpus, at constant memory and at a multiple of the speed of tokenising it.

A corpus repeats its words. If a tokenizer gives the same tokens for a text and for its words (see
`fsd.scoring.token_counting`), each distinct word is tokenised rarely and counted as often as it occurred. Any other
tokenizer processes the whole text. Words are found and counted as bytes, in numpy and Arrow; tokenising runs in Rust on
all cores.
"""

import json
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fsd.data.readers import Passage
from fsd.errors import UsageError
from fsd.scoring.token_frequencies import FrequencyTable, fingerprint
from fsd.token_stats import IntArray

CUT = 1
"""Flag of two bytes between which a text can be cut."""
MAYBE_SPACE = 2
"""Flag of two bytes that may end whitespace outside ASCII, after which there is no cut."""
INDENT = 4
"""Flag of whitespace and a space: a text can be cut between them if the space is `LAST`."""
LAST = 8
"""Flag of a space followed by no whitespace."""

_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
SEPARATING = frozenset(
    {
        _GPT_2,
        _LLAMA_3,
        _LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}"),
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    }
)
"""Patterns (GPT-2 and NeoX, Llama 3, Qwen, GPT-4o) without a match across a cut, see `_pairs`, and with no look-ahead
but for whitespace."""
PIECE = "^ ?(?:[A-Z]*[a-z]+|[A-Z]+)$"
"""Words that are one match of any of the patterns."""

_DIGITS, _LETTERS, _SPACES = (
    frozenset(letters.encode()) for letters in (string.digits, string.ascii_letters, string.whitespace)
)
_BREAKS = frozenset(b"\r\n")
_MARKS = frozenset(range(128)) - _DIGITS - _LETTERS - _SPACES
_BEYOND = frozenset(range(128, 256))
JOINED = re.compile(r"\S\s")
SPACES_BEYOND = (
    "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode White_Space outside ASCII."""


@dataclass(frozen=True)
class Cuts:
    """The cuts of one tokenizer.

    Attributes:
        flags: (65536,) sums of `CUT`, `MAYBE_SPACE`, `INDENT` and `LAST`, at 256·b + c for a byte b before a byte c.
        pieces: faster tokenizer with the same tokens for words that match `PIECE`, one word a line and "Ġ" for a
            space; None if there is none.
    """

    flags: NDArray[np.uint8]
    pieces: Any

    def words(self, texts: Sequence[bytes]) -> tuple[bytes, NDArray[np.int64]]:
        """The concatenated texts, none of them empty, and the offsets of the words in them, with the end."""
        data = b"".join(texts)
        code = np.frombuffer(data, np.uint8)
        pairs = code[:-1].astype(np.uint16)
        pairs <<= 8
        pairs |= code[1:]
        flags = self.flags[pairs]
        borders = np.cumsum([len(text) for text in texts[:-1]], dtype=np.int64)
        flags[borders - 1] = CUT
        begins = np.empty(code.size, dtype=np.bool_)
        begins[0] = True
        np.bitwise_and(flags, CUT, out=begins[1:].view(np.uint8))
        begins[2:] &= flags[:-1] & MAYBE_SPACE == 0
        begins[1:-1] |= flags[:-1] & INDENT & flags[1:] // (LAST // INDENT) != 0
        begins[borders] = True
        return data, np.append(np.flatnonzero(begins), code.size)


def cuts(backend: Any) -> Cuts | None:
    """The cuts at which a tokenizer gives the same tokens; None if they are not known.

    It must have a pattern of `SEPARATING`, a normaliser that neither adds whitespace nor composes ASCII with what
    precedes it, and added tokens that do not depend on their surroundings. There is no cut within an added token.
    """
    state = json.loads(backend.to_str())
    steps = _steps(state["pre_tokenizer"])
    if state["model"].get("dropout") or not _split(steps) or not _composes(state["normalizer"]):
        return None
    added = state["added_tokens"]
    for token in added:
        plain = state["normalizer"] is None or (token["content"].isascii() and not JOINED.search(token["content"]))
        if token["rstrip"] or token["single_word"] or not plain:
            return None
    flags = _pairs(gpt_2=all(step["type"] == "ByteLevel" or _pattern(step) in (None, _GPT_2) for step in steps))
    for token in added:
        code = token["content"].encode()
        flags[[256 * b + c for b, c in pairwise(code)]] &= MAYBE_SPACE
        flags[256 * ord(" ") + code[0]] &= ~np.uint8(LAST)  # whitespace before an added token stays together
    short = steps[-1]["type"] == "ByteLevel" and not any(
        re.fullmatch(" ?[A-Za-z]*", token["content"]) for token in added
    )
    return Cuts(flags, _of_pieces(backend, state) if short else None)


def _of_pieces(backend: Any, state: dict[str, Any]) -> Any:
    lines = {"type": "CharDelimiterSplit", "delimiter": "\n"}
    bare: dict[str, Any] = {
        "added_tokens": [],
        "normalizer": None,
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    return type(backend).from_str(json.dumps({**state, **bare, "pre_tokenizer": lines}))


def _pairs(*, gpt_2: bool) -> NDArray[np.uint8]:
    """(65536,) flags of two bytes. The second byte of a cut is ASCII, which composes with nothing before it.

    No match continues from a letter or digit to whitespace or a mark (except an apostrophe), from a letter or mark to a
    digit, from a digit to a letter, or from a mark to whitespace other than a line break. With GPT-2's pattern, none
    continues from a mark (except an apostrophe) to a line break or letter either. The last space of a run of whitespace
    belongs to the word that follows, or is a piece of its own before a digit.
    """
    flags = np.zeros((256, 256), dtype=np.uint8)

    def add(flag: int, before: Set[int], after: Set[int]) -> None:
        flags[np.ix_(sorted(before), sorted(after))] |= flag

    ascii_marks = _MARKS - {ord("'")}
    add(CUT, _LETTERS | _DIGITS, _SPACES | ascii_marks)
    add(CUT, _MARKS | _BEYOND, _SPACES - _BREAKS)
    add(CUT, _LETTERS | _MARKS, _DIGITS)
    add(CUT, _DIGITS, _LETTERS)
    if gpt_2:
        add(CUT, ascii_marks, _BREAKS | _LETTERS)
    add(INDENT, _SPACES, {ord(" ")})
    add(LAST, {ord(" ")}, _LETTERS | _DIGITS | _MARKS)
    for space in SPACES_BEYOND:
        before, last = space.encode()[-2:]
        flags[before, last] |= MAYBE_SPACE
    return flags.reshape(-1)


def _steps(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    return step.get("pretokenizers", [step]) if step else []


def _split(steps: Sequence[dict[str, Any]]) -> bool:
    """Whether one step of a pre-tokenizer separates and no other step undoes it."""
    harmless = (
        _separates(step) or step["type"] == "Digits" or (step["type"] == "ByteLevel" and step is steps[-1])
        for step in steps
    )
    return any(map(_separates, steps)) and all(harmless) and not any(step.get("add_prefix_space") for step in steps)


def _separates(step: dict[str, Any]) -> bool:
    if step["type"] == "ByteLevel":
        return bool(step["use_regex"])
    way = (step.get("behavior"), step.get("invert"))
    return _pattern(step) in SEPARATING and way in (("Isolated", False), ("Removed", True))


def _pattern(step: dict[str, Any]) -> str | None:
    return step["pattern"].get("Regex") if step["type"] == "Split" else None


def _composes(normalizer: dict[str, Any] | None) -> bool:
    forms = normalizer.get("normalizers", [normalizer]) if normalizer else []
    return all(form["type"] in ("NFC", "NFD") for form in forms)


BATCH = 2**21
"""Characters read before they are counted."""
PENDING = 2**26
"""Largest size in bytes of the distinct words and their counts before some are tokenised."""
WORDS = 2**17
"""Words tokenised before they are counted."""
BLOCK = 2**12
"""Words or texts tokenised in one call, enough for all cores."""


def count(
    passages: Iterable[Passage],
    tokenizer: Any,
    vocabulary: int,
    *,
    model: str,
    corpus: str,
    documents: int | None = None,
    tokens: int | None = None,
    advance: Callable[[], object] = lambda: None,
) -> FrequencyTable:
    """Count the tokens of a corpus, without start and end tokens; quoted special tokens count as plain text.

    The tokenizer is a fast one of transformers, for a model with a vocabulary of that size. Counting stops after
    `documents`, or after `tokens` at the end of a document (or passage of a long one). `advance` is called after every
    batch; `model` and `corpus` are recorded in the table.
    """
    for name, limit in (("documents", documents), ("tokens", tokens)):
        if limit is not None and limit < 1:
            raise UsageError(f"limit of {name} must be at least 1; got {limit}")
    identity = fingerprint(tokenizer)
    tally = Tally(tokenizer.backend_tokenizer, vocabulary)
    opened, full = 0, False
    for batch in _batches(passages, documents):
        before = tally.counts if tokens is None else tally.total().copy()
        tally.add(passage.text for passage in batch)
        if tokens is not None and tally.total().sum() >= tokens:
            tally.counts[:] = before
            batch, full = _up_to(tally, batch, tokens), True
        opened += sum(passage.opens for passage in batch)
        advance()
        if full:
            break
    counts = tally.total()
    if not counts.any():
        raise UsageError(f"corpus must hold at least one token; {corpus} holds none")
    return FrequencyTable(counts, identity, model, corpus, opened)


def _up_to(tally: "Tally", batch: list[Passage], tokens: int) -> list[Passage]:
    """Count a batch up to the passage with which the limit is reached; the passages up to it."""
    for number, passage in enumerate(batch, 1):
        tally.add([passage.text])
        if tally.total().sum() >= tokens:
            return batch[:number]
    return batch


def _batches(passages: Iterable[Passage], documents: int | None) -> Iterator[list[Passage]]:
    """The passages of the first documents, about `BATCH` characters at a time."""
    batch: list[Passage] = []
    opened = characters = 0
    for passage in passages:
        opened += passage.opens
        if documents is not None and opened > documents:
            break
        batch.append(passage)
        characters += len(passage.text)
        if characters >= BATCH:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class Tally:
    """Token counts of texts by a Rust tokenizer, for a model with a vocabulary of size V.

    `counts` are the (V,) counts of the words tokenised so far; `total()` tokenises the pending ones. `cuts` say where
    texts are cut into words; None for whole texts.
    """

    def __init__(self, backend: Any, vocabulary: int) -> None:
        # a copy without truncation and padding
        self.backend = type(backend).from_str(backend.to_str())
        self.backend.no_truncation()
        self.backend.no_padding()
        self.backend.encode_special_tokens = True  # "<|endoftext|>" in a text is plain text, as in scoring
        self.counts: IntArray = np.zeros(vocabulary, dtype=np.int64)
        self.cuts = cuts(backend)
        self._words: list[pa.Table] = []

    def add(self, texts: Iterable[str]) -> None:
        """Count the tokens of texts."""
        texts = [text for text in texts if text]
        if not texts:
            return
        if self.cuts is None:
            for begin in range(0, len(texts), BLOCK):
                block = texts[begin : begin + BLOCK]
                self._encode(self.backend, block, [1] * len(block))
            return
        self._words.append(_counted(texts, self.cuts))
        if _size(self._words) > PENDING:
            self._words = [_merged(self._words)]
            if _size(self._words) > PENDING // 2:
                # common words stay pending; a rare one may come again and is then tokenised again
                number = self._words[0]["number"]
                rare = pc.less_equal(number, pc.quantile(number, interpolation="lower")[0])
                self._tokenise(self.cuts, self._words[0].filter(rare))
                self._words = [self._words[0].filter(pc.invert(rare))]

    def total(self) -> IntArray:
        """(V,) counts of all texts so far."""
        if self._words and self.cuts is not None:
            self._tokenise(self.cuts, _merged(self._words))
        self._words = []
        return self.counts

    def _tokenise(self, cuts: Cuts, words: pa.Table) -> None:
        """Count the tokens of words, each as often as it occurred; words of equal counts share a text."""
        words = words.sort_by("number")
        for begin in range(0, len(words), WORDS):
            part = words.slice(begin, WORDS)
            piece = pc.match_substring_regex(part["word"], PIECE)
            if cuts.pieces is None:
                piece = pc.and_(piece, False)
            blocks = _blocks(part.filter(piece))
            texts = [b"\n".join(block).decode().replace(" ", "Ġ") for block, _ in blocks]
            self._encode(cuts.pieces, texts, [number for _, number in blocks])
            blocks = _blocks(part.filter(pc.invert(piece)))
            apart = [[word.decode() for word in block] for block, _ in blocks]
            self._encode(self.backend, apart, [number for _, number in blocks], is_pretokenized=True)

    def _encode(self, backend: Any, texts: Sequence[Any], times: list[int], **options: bool) -> None:
        """Add the tokens of each text, `times` times."""
        if not texts:
            return
        encodings = backend.encode_batch_fast(texts, add_special_tokens=False, **options)
        ids = [encoding.ids for encoding in encodings]
        weights = np.repeat(np.array(times, dtype=np.float64), [len(row) for row in ids])
        tokens = np.concatenate([np.asarray(row, dtype=np.int64) for row in ids])
        counts = np.bincount(tokens, weights, minlength=self.counts.size)
        if counts.size > self.counts.size:
            largest = counts.size - 1
            raise UsageError(f"the model's vocabulary must hold every token; {largest} is not below {self.counts.size}")
        self.counts += counts.astype(np.int64)  # exact: whole numbers far below 2^53


def _counted(texts: Sequence[str], cuts: Cuts) -> pa.Table:
    """The distinct words of texts with their counts."""
    data, begins = cuts.words([text.encode() for text in texts])
    buffers = [None, pa.py_buffer(begins), pa.py_buffer(data)]
    words = pa.LargeBinaryArray.from_buffers(pa.large_binary(), begins.size - 1, buffers)
    distinct = pc.value_counts(words)
    return pa.table({"word": distinct.field("values"), "number": distinct.field("counts")})


def _merged(words: Sequence[pa.Table]) -> pa.Table:
    """One table of distinct words with the sums of their counts."""
    table = pa.concat_tables(words)
    distinct = table["word"].combine_chunks().dictionary_encode()
    sums = np.bincount(np.from_dlpack(distinct.indices), np.from_dlpack(table["number"].combine_chunks()))
    number = pa.Int64Array.from_buffers(pa.int64(), sums.size, [None, pa.py_buffer(sums.astype(np.int64))])
    return pa.table({"word": distinct.dictionary, "number": number})


def _size(words: Sequence[pa.Table]) -> int:
    return sum(table.nbytes for table in words)


def _blocks(words: pa.Table) -> list[tuple[list[bytes], int]]:
    """Words sorted by count → blocks of words that share a count."""
    numbers = np.from_dlpack(words["number"].combine_chunks())
    spellings = words["word"].to_pylist()
    changes = np.flatnonzero(np.diff(numbers)) + 1
    bounds = np.unique(np.concatenate([changes, np.arange(0, len(spellings), BLOCK), [len(spellings)]]))
    return [(spellings[begin:end], int(numbers[begin])) for begin, end in pairwise(bounds)]
