"""Counting the tokens of a corpus, for a table of token frequencies.

Counting takes constant memory and a fraction of the time of tokenising: a corpus repeats its words. If a tokenizer
gives the same tokens for a text and for its words, each distinct word is tokenised rarely and counted as often as it
occurred; any other tokenizer processes whole texts. Words are found and counted as bytes, in numpy and Arrow;
tokenising runs in Rust on all cores.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsd.data.passages import Passage, Passages
from fsd.errors import UsageError, at_least
from fsd.scoring.token_frequencies import FrequencyTable, fingerprint
from fsd.scoring.word_cuts import PIECE, cuts
from fsd.token_stats import IntArray

# Characters taken before they are counted.
BATCH = 2**21
# Largest size in bytes of the distinct words and their counts before some are tokenised.
PENDING = 2**26
# Words tokenised before they are counted.
WORDS = 2**17
# Words or texts tokenised in one call, enough for all cores.
BLOCK = 2**12


def count(  # noqa: PLR0913 - each limit is a choice of its own
    passages: Passages,
    tokenizer: Any,
    vocabulary: int,
    *,
    model: str,
    corpus: str,
    documents: int | None = None,
    tokens: int | None = None,
    document_tokens: int | None = None,
    advance: Callable[[], object] = lambda: None,
) -> FrequencyTable:
    """Count the tokens of a corpus by a fast tokenizer; quoted special tokens count as plain text.

    Counting stops after `documents`, or after `tokens` at the end of a document; of each document all tokens count, or
    the first `document_tokens`. `advance` is called after every batch.
    """
    at_least(1, **{"limit of documents": documents, "limit of tokens": tokens, "document-tokens": document_tokens})
    identity = fingerprint(tokenizer)
    tally = Tally(tokenizer.backend_tokenizer, vocabulary, document_tokens)
    if document_tokens:
        # The first part of a document holds 131,072 characters, and so its first tokens.
        passages = (passage for passage in passages if passage.opens)
    opened = 0
    for batch in _batches(passages, documents):
        counted = _add(tally, batch, tokens)
        opened += sum(passage.opens for passage in counted)
        advance()
        if tokens is not None and tally.total().sum() >= tokens:
            break
    counts = tally.total()
    if not counts.any():
        raise UsageError(f"corpus must hold at least one token; {corpus} holds none")
    return FrequencyTable(counts, identity, model, corpus, opened)


def _add(tally: "Tally", batch: list[Passage], limit: int | None) -> list[Passage]:
    """Count the passages of a batch until `limit` tokens are counted in all, and return those that were counted."""
    texts = [passage.text for passage in batch]
    if limit is None:
        tally.add(texts)
        return batch
    counted = tally.total().copy()
    tally.add(texts)
    if tally.total().sum() < limit:
        return batch
    # Words do not tell where in the batch the limit lies: it is counted anew, up to the text that reaches the limit.
    sizes = [len(encoding.ids) for encoding in tally.encoded(texts)]
    missing = limit - counted.sum()
    needed = int(np.searchsorted(np.cumsum(sizes), missing)) + 1
    tally.counts[:] = counted
    tally.add(texts[:needed])
    return batch[:needed]


def _batches(passages: Passages, documents: int | None) -> Iterator[list[Passage]]:
    """The passages of the first documents, about `BATCH` characters at a time."""
    batch = []
    opened = characters = 0
    for passage in passages:
        opened += passage.opens
        if documents is not None and opened > documents:
            break
        batch.append(passage)
        characters += len(passage.text)
        if characters >= BATCH:
            yield batch
            batch = []
            characters = 0
    if batch:
        yield batch


class Tally:
    """(V,) token counts by a Rust tokenizer: `counts` of the words tokenised so far, `total()` of all.

    With `first_tokens` no more than so many tokens of each text count.
    """

    def __init__(self, backend: Any, vocabulary: int, first_tokens: int | None = None) -> None:
        self.backend = type(backend).from_str(backend.to_str())  # a copy without truncation and padding
        self.backend.no_truncation()
        self.backend.no_padding()
        self.backend.encode_special_tokens = True  # "<|endoftext|>" in a text is plain text, as in scoring
        self.counts: IntArray = np.zeros(vocabulary, dtype=np.int64)
        self.cuts = cuts(backend)
        if first_tokens:
            # Words do not tell which of them are the first of a document.
            self.backend.enable_truncation(first_tokens)
            self.cuts = None
        self._words: list[pa.Table] = []

    def add(self, texts: Iterable[str]) -> None:
        """Count the tokens of texts."""
        texts = [text for text in texts if text]
        if not texts:
            return
        if self.cuts is None:
            for begin in range(0, len(texts), BLOCK):
                block = texts[begin : begin + BLOCK]
                self._count(self.encoded(block), [1] * len(block))
            return
        data, begins = self.cuts.words(list(map(str.encode, texts)))
        # Arrow reads the words where they are: neither strings nor copies are made of them.
        buffers = [None, pa.py_buffer(begins), pa.py_buffer(data)]
        words = pa.LargeBinaryArray.from_buffers(pa.large_binary(), begins.size - 1, buffers)
        distinct = pc.value_counts(words)
        table = pa.table(distinct.flatten(), ["word", "number"])
        self._words.append(table)
        if sum(table.nbytes for table in self._words) > PENDING:
            self._words = [_merged(self._words)]
            # Where merging saves little, the next batches would merge the same words again and again.
            if self._words[0].nbytes > PENDING // 2:
                self.total()

    def total(self) -> IntArray:
        """(V,) counts of all texts so far."""
        if self._words:
            self._tokenise(_merged(self._words))
        self._words = []
        return self.counts

    def encoded(self, texts: Sequence[Any], **options: bool) -> list[Any]:
        """The encodings of whole texts, without start and end tokens."""
        encodings: list[Any] = self.backend.encode_batch_fast(texts, add_special_tokens=False, **options)
        return encodings

    def _tokenise(self, words: pa.Table) -> None:
        """Count the tokens of words, each as often as it occurred."""
        pieces = self.cuts.pieces if self.cuts else None
        words = words.sort_by("number")  # so that words of equal counts share a block
        for begin in range(0, len(words), WORDS):
            part = words.slice(begin, WORDS)
            if pieces:
                short = pc.match_substring_regex(part["word"], PIECE)
                blocks, times = _blocks(part.filter(short))
                lines = [b"\n".join(block).decode().replace(" ", "Ġ") for block in blocks]
                encodings = pieces.encode_batch_fast(lines, add_special_tokens=False)
                self._count(encodings, times)
                part = part.filter(pc.invert(short))
            blocks, times = _blocks(part)
            apart = [[word.decode() for word in block] for block in blocks]
            self._count(self.encoded(apart, is_pretokenized=True), times)

    def _count(self, encodings: Sequence[Any], times: Sequence[int]) -> None:
        """Add the tokens of each encoding as often as `times` says."""
        if not encodings:
            return
        ids = [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        weights = np.repeat(np.array(times, dtype=np.float64), list(map(len, ids)))
        vocabulary = self.counts.size
        counts = np.bincount(np.concatenate(ids), weights, minlength=vocabulary)
        largest = counts.size - 1
        if largest >= vocabulary:
            raise UsageError(f"the model's vocabulary must hold every token; {largest} is not below {vocabulary}")
        self.counts += counts.astype(np.int64)  # exact: whole numbers far below 2^53


def _merged(words: Sequence[pa.Table]) -> pa.Table:
    """One table of distinct words with the sums of their counts."""
    table = pa.concat_tables(words)
    distinct = table["word"].combine_chunks().dictionary_encode()
    sums = np.bincount(np.from_dlpack(distinct.indices), np.from_dlpack(table["number"].combine_chunks()))
    number = pa.array(sums.astype(np.int64))
    return pa.table([distinct.dictionary, number], ["word", "number"])


def _blocks(words: pa.Table) -> tuple[list[list[bytes]], list[int]]:
    """Words sorted by count → blocks of words that share a count, and the count of each block."""
    numbers = np.from_dlpack(words["number"].combine_chunks())
    spellings = words["word"].to_pylist()
    changes = np.flatnonzero(np.diff(numbers)) + 1
    count = len(spellings)
    steps = np.arange(0, count, BLOCK)
    bounds = np.unique(np.concatenate([changes, steps, [count]]))
    blocks = [spellings[begin:end] for begin, end in pairwise(bounds)]
    return blocks, numbers[bounds[:-1]].tolist()
