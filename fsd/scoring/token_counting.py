"""Token counts of a corpus, at constant memory and at a multiple of the speed of tokenising it.

A corpus repeats its words. If a tokenizer gives the same tokens for a text and for its words (see
`fsd.scoring.pretokenizer_cuts`), each distinct word is tokenised rarely and counted as often as it occurred. Any other
tokenizer processes the whole text. Words are found and counted as bytes, in numpy and Arrow; tokenising runs in Rust on
all cores.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsd.data.streaming import Passage
from fsd.errors import UsageError
from fsd.scoring.pretokenizer_cuts import PIECE, Cuts, cuts
from fsd.scoring.token_frequencies import FrequencyTable, fingerprint
from fsd.token_stats import IntArray

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
