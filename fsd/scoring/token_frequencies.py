"""Token frequencies of a reference corpus: how common each token is in the language, for DC-PDD.

A table is counted once, is small, and belongs to one tokenizer. Counting takes constant memory and a fraction of the
time of tokenising: a corpus repeats its words. If a tokenizer gives the same tokens for a text and for its words, each
distinct word is tokenised rarely and counted as often as it occurred; any other tokenizer processes whole texts. Words
are found and counted as bytes, in numpy and Arrow; tokenising runs in Rust on all cores.
"""

import hashlib
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fsd.data.readers import Passage
from fsd.errors import UsageError, at_least
from fsd.leftovers import replacing
from fsd.token_stats import STD_FLOOR, FloatArray, IntArray, Prompt, Scorer, TokenStats

FORMAT = 1
"""Version of the table's file format."""


@dataclass(frozen=True)
class FrequencyTable:
    """(V,) occurrences of each token in a corpus; V may exceed the vocabulary, which `fingerprint` identifies."""

    counts: IntArray
    fingerprint: str
    model: str
    corpus: str
    documents: int

    def __post_init__(self) -> None:
        counts = self.counts
        if counts.ndim != 1 or counts.dtype != np.int64 or counts.size == 0 or counts.min() < 0:
            raise ValueError(f"counts must be (V,) int64, none negative, got {counts.dtype} {counts.shape}")

    @property
    def tokens(self) -> int:
        """N': number of tokens of the corpus."""
        return int(self.counts.sum())

    @property
    def vocabulary(self) -> int:
        """V: size of the model's vocabulary."""
        return self.counts.size

    def log_frequency(self) -> FloatArray:
        """(V,) log f(v), nats, with f(v) = (count(v) + 1)/(N' + V), which sums to one.

        Source: DC-PDD, arXiv:2409.14781, eq. 5 (Laplace smoothing; tokens are counted, not documents).
        """
        smoothed: FloatArray = np.log((self.counts + 1.0) / (self.tokens + self.vocabulary))
        return smoothed

    def matching(self, tokenizer: Any, vocabulary: int, model: str) -> "FrequencyTable":
        """This table for a model with the same tokenizer, whose vocabulary may be padded to another size."""
        if fingerprint(tokenizer) != self.fingerprint:
            raise UsageError(
                f"frequency table must be made with the tokenizer of {model!r}; "
                f"got one made with that of {self.model!r}"
            )
        if self.counts[vocabulary:].any():
            raise UsageError(f"frequency table must count no token beyond the vocabulary of {vocabulary} of {model!r}")
        counts = np.zeros(vocabulary, dtype=np.int64)
        shared = min(vocabulary, self.vocabulary)
        counts[:shared] = self.counts[:shared]
        return replace(self, counts=counts, model=model)

    def save(self, file: Path) -> None:
        """Write the table atomically: `.npz` without pickles, the same bytes for the same table."""
        fields = {name: getattr(self, name) for name in ("fingerprint", "model", "corpus", "documents", "tokens")}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(file) as draft, draft.open("wb") as out:
                np.savez_compressed(out, counts=self.counts, about=np.array(json.dumps({"format": FORMAT} | fields)))
        except OSError as error:
            raise UsageError(f"frequency table must be a file that can be written; {file}: {error.strerror}") from error

    @classmethod
    def load(cls, file: Path) -> "FrequencyTable":
        """Read a table; a file that is not a whole one is refused."""
        if not file.is_file():
            raise UsageError(f"frequency table must be a file; there is no file {file}")
        try:
            with file.open("rb") as raw, np.load(raw, allow_pickle=False) as arrays:
                counts, about = arrays["counts"], json.loads(str(arrays["about"]))
            if about["format"] != FORMAT or counts.sum() != about["tokens"]:
                raise ValueError("format or sum")
            return cls(counts, about["fingerprint"], about["model"], about["corpus"], about["documents"])
        except Exception as error:  # a damaged archive raises many types of errors
            raise UsageError(f"frequency table must be a whole file made by fsd frequencies; {file} is not") from error


def fingerprint(tokenizer: Any) -> str:
    """Hash of a fast tokenizer, without its truncation and padding, which each caller sets."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UsageError(f"tokenizer must be a fast one (tokenizer.json); got {type(tokenizer).__name__}")
    state = json.loads(backend.to_str())
    state.update(truncation=None, padding=None)
    canonical = json.dumps(state, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def unigram_scorer(table: FrequencyTable, tokenize: Callable[[Sequence[str]], list[list[int]]]) -> Scorer:
    """A scorer by token frequency alone: logp_t = log f(x_t), and `mean` and `std` are constants of the table."""
    log_f = table.log_frequency()
    f = np.exp(log_f)
    mean = float(f @ log_f)
    std = max(float(np.sqrt(f @ np.square(log_f - mean))), STD_FLOOR)

    def score(prompts: Sequence[Prompt]) -> Iterator[TokenStats]:
        for begin in range(0, len(prompts), 1024):
            chunk = prompts[begin : begin + 1024]
            for prompt, ids in zip(chunk, tokenize([prompt.text for prompt in chunk]), strict=True):
                token = np.asarray(ids, dtype=np.int64)
                constant = np.ones(token.size)
                yield TokenStats(prompt.text, token, log_f[token], mean * constant, std * constant)

    return score


CUT = 1
"""Flag of two bytes between which a text can be cut."""
MAYBE_SPACE = 2
"""Flag of two bytes that may end whitespace outside ASCII, after which there is no cut."""

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
SPACES_BEYOND = (
    "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode White_Space outside ASCII."""


@dataclass(frozen=True)
class Cuts:
    """The cuts of one tokenizer."""

    flags: NDArray[np.uint8]  # (65536,) sums of `CUT` and `MAYBE_SPACE`, at 256·b + c for a byte b before a byte c
    pieces: Any  # a faster tokenizer with the same tokens for words that match `PIECE`: a word a line, "Ġ" for a space

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
        begins[borders] = True
        return data, np.append(np.flatnonzero(begins), code.size)


def cuts(backend: Any) -> Cuts | None:
    """The cuts at which a tokenizer gives the same tokens; None if they are not known.

    It must have a pattern of `SEPARATING`, a normaliser that neither adds whitespace nor composes ASCII with what
    precedes it, and added tokens that do not depend on their surroundings, within which there is no cut.
    """
    state = json.loads(backend.to_str())
    added, normalizer, splitter = state["added_tokens"], state["normalizer"] or {}, state["pre_tokenizer"] or {}
    steps = splitter.get("pretokenizers", [splitter]) if splitter else []
    forms = normalizer.get("normalizers", [normalizer]) if normalizer else []
    harmless = (
        _separates(step) or step["type"] == "Digits" or (step["type"] == "ByteLevel" and step is steps[-1])
        for step in steps
    )
    if (
        state["model"].get("dropout")
        or not any(map(_separates, steps))
        or not all(harmless)
        or any(step.get("add_prefix_space") for step in steps)
        or any(form["type"] not in ("NFC", "NFD") for form in forms)
        or any(token["rstrip"] or token["single_word"] for token in added)
        or (forms and any(not t["content"].isascii() or re.search(r"\S\s", t["content"]) for t in added))
    ):
        return None
    flags = _pairs(gpt_2=all(step["type"] == "ByteLevel" or _pattern(step) in (None, _GPT_2) for step in steps))
    for token in added:
        flags[[256 * b + c for b, c in pairwise(token["content"].encode())]] &= MAYBE_SPACE
    if steps[-1]["type"] != "ByteLevel" or any(re.fullmatch(" ?[A-Za-z]*", token["content"]) for token in added):
        return Cuts(flags, None)
    bare = dict.fromkeys(("normalizer", "post_processor", "truncation", "padding")) | {"added_tokens": []}
    lines = {"pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": "\n"}}
    return Cuts(flags, type(backend).from_str(json.dumps({**state, **bare, **lines})))


def _pairs(*, gpt_2: bool) -> NDArray[np.uint8]:
    """(65536,) flags of two bytes. The second byte of a cut is ASCII, which composes with nothing before it.

    No match continues from a letter or digit to whitespace or a mark (except an apostrophe), from a letter or mark to a
    digit, from a digit to a letter, or from a mark to whitespace other than a line break. With GPT-2's pattern, none
    continues from a mark (except an apostrophe) to a line break or letter either.
    """
    flags = np.zeros((256, 256), dtype=np.uint8)

    def add(before: Set[int], after: Set[int]) -> None:
        flags[np.ix_(sorted(before), sorted(after))] = CUT

    ascii_marks = _MARKS - {ord("'")}
    add(_LETTERS | _DIGITS, _SPACES | ascii_marks)
    add(_MARKS | _BEYOND, _SPACES - _BREAKS)
    add(_LETTERS | _MARKS, _DIGITS)
    add(_DIGITS, _LETTERS)
    if gpt_2:
        add(ascii_marks, _BREAKS | _LETTERS)
    for space in SPACES_BEYOND:
        before, last = space.encode()[-2:]
        flags[before, last] |= MAYBE_SPACE
    return flags.reshape(-1)


def _separates(step: dict[str, Any]) -> bool:
    if step["type"] == "ByteLevel":
        return bool(step["use_regex"])
    way = (step.get("behavior"), step.get("invert"))
    return _pattern(step) in SEPARATING and way in (("Isolated", False), ("Removed", True))


def _pattern(step: dict[str, Any]) -> str | None:
    return step["pattern"].get("Regex") if step["type"] == "Split" else None


BATCH = 2**21
"""Characters taken before they are counted."""
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
    """Count the tokens of a corpus by a fast tokenizer; quoted special tokens count as plain text.

    Counting stops after `documents`, or after `tokens` at the end of a document. `advance` is called after every batch.
    """
    at_least(1, **{"limit of documents": documents, "limit of tokens": tokens})
    identity = fingerprint(tokenizer)
    tally = Tally(tokenizer.backend_tokenizer, vocabulary)
    opened, full = 0, False
    for batch in _batches(passages, documents):
        texts = [passage.text for passage in batch]
        before = tally.counts if tokens is None else tally.total().copy()
        tally.add(texts)
        if tokens is not None and tally.total().sum() >= tokens:
            sizes = [len(encoding.ids) for encoding in tally.encoded(texts)]
            last = int(np.searchsorted(np.cumsum(sizes), tokens - before.sum())) + 1
            tally.counts[:] = before
            tally.add(texts[:last])
            batch, full = batch[:last], True
        opened += sum(passage.opens for passage in batch)
        advance()
        if full:
            break
    counts = tally.total()
    if not counts.any():
        raise UsageError(f"corpus must hold at least one token; {corpus} holds none")
    return FrequencyTable(counts, identity, model, corpus, opened)


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
    """(V,) token counts by a Rust tokenizer: `counts` of the words tokenised so far, `total()` of all."""

    def __init__(self, backend: Any, vocabulary: int) -> None:
        self.backend = type(backend).from_str(backend.to_str())  # a copy without truncation and padding
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
                self._count(self.encoded(texts[begin : begin + BLOCK]))
            return
        data, begins = self.cuts.words([text.encode() for text in texts])
        buffers = [None, pa.py_buffer(begins), pa.py_buffer(data)]
        distinct = pc.value_counts(pa.LargeBinaryArray.from_buffers(pa.large_binary(), begins.size - 1, buffers))
        self._words.append(pa.table({"word": distinct.field("values"), "number": distinct.field("counts")}))
        if sum(table.nbytes for table in self._words) > PENDING:
            self._words = [_merged(self._words)]
            if self._words[0].nbytes > PENDING // 2:
                self.total()

    def total(self) -> IntArray:
        """(V,) counts of all texts so far."""
        if self._words and self.cuts is not None:
            self._tokenise(_merged(self._words), self.cuts.pieces)
        self._words = []
        return self.counts

    def encoded(self, texts: Sequence[Any], **options: bool) -> list[Any]:
        """The encodings of whole texts, without start and end tokens."""
        encodings: list[Any] = self.backend.encode_batch_fast(texts, add_special_tokens=False, **options)
        return encodings

    def _tokenise(self, words: pa.Table, pieces: Any) -> None:
        """Count the tokens of words, each as often as it occurred; words of equal counts share a text."""
        words = words.sort_by("number")
        for begin in range(0, len(words), WORDS):
            part = words.slice(begin, WORDS)
            short = pc.match_substring_regex(part["word"], PIECE)
            if pieces is None:
                short = pc.and_(short, False)
            else:
                blocks = _blocks(part.filter(short))
                texts = [b"\n".join(block).decode().replace(" ", "Ġ") for block, _ in blocks]
                self._count(pieces.encode_batch_fast(texts, add_special_tokens=False), [number for _, number in blocks])
            blocks = _blocks(part.filter(pc.invert(short)))
            apart = [[word.decode() for word in block] for block, _ in blocks]
            self._count(self.encoded(apart, is_pretokenized=True), [number for _, number in blocks])

    def _count(self, encodings: Sequence[Any], times: Sequence[int] | None = None) -> None:
        """Add the tokens of each encoding, `times` times."""
        if not encodings:
            return
        ids = [np.asarray(encoding.ids, dtype=np.int64) for encoding in encodings]
        weights = np.repeat(np.array(times or [1] * len(ids), dtype=np.float64), [row.size for row in ids])
        counts = np.bincount(np.concatenate(ids), weights, minlength=self.counts.size)
        if counts.size > self.counts.size:
            largest = counts.size - 1
            raise UsageError(f"the model's vocabulary must hold every token; {largest} is not below {self.counts.size}")
        self.counts += counts.astype(np.int64)  # exact: whole numbers far below 2^53


def _merged(words: Sequence[pa.Table]) -> pa.Table:
    """One table of distinct words with the sums of their counts."""
    table = pa.concat_tables(words)
    distinct = table["word"].combine_chunks().dictionary_encode()
    sums = np.bincount(np.from_dlpack(distinct.indices), np.from_dlpack(table["number"].combine_chunks()))
    number = pa.Int64Array.from_buffers(pa.int64(), sums.size, [None, pa.py_buffer(sums.astype(np.int64))])
    return pa.table({"word": distinct.dictionary, "number": number})


def _blocks(words: pa.Table) -> list[tuple[list[bytes], int]]:
    """Words sorted by count → blocks of words that share a count."""
    numbers = np.from_dlpack(words["number"].combine_chunks())
    spellings = words["word"].to_pylist()
    changes = np.flatnonzero(np.diff(numbers)) + 1
    bounds = np.unique(np.concatenate([changes, np.arange(0, len(spellings), BLOCK), [len(spellings)]]))
    return [(spellings[begin:end], int(numbers[begin])) for begin, end in pairwise(bounds)]
