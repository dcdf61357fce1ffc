"""Count the tokens of a corpus, at constant memory and at a multiple of the speed of tokenising it.

A corpus repeats its words. Where a tokenizer gives the same tokens for a text and for its words (see
`fsd.scoring.pretokenizer_cuts`), each distinct word is tokenised once in a while and counts as often as it occurred.
Any other tokenizer reads the whole text. Words are found and counted as bytes, in numpy and Arrow; tokenising is done
in Rust and on all cores.
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
KEPT = 2**26
"""Bytes of distinct words and their numbers that are kept before some are tokenised."""
WORDS = 2**17
"""Words tokenised before they are counted."""
BLOCK = 2**12
"""Words or texts tokenised in one call, so that there is work for all cores."""


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
    """Count the content tokens of a corpus: none added at start or end, none read out of quoted special tokens.

    Args:
        passages: the corpus, e.g. `fsd.data.streaming.Corpus`.
        tokenizer: a fast transformers tokenizer; its truncation and padding are ignored.
        vocabulary: V of the model.
        model: whose tokenizer it is, for the record.
        corpus: what is counted, for the record.
        documents: most documents to count.
        tokens: stop after the document (or passage of a long one) with which this many are reached.
        advance: called after every batch, for progress.

    Raises:
        UsageError: for a slow tokenizer, limits below one, a token outside the vocabulary, a corpus of no tokens.
    """
    for name, limit in (("documents", documents), ("tokens", tokens)):
        if limit is not None and limit < 1:
            raise UsageError(f"limit of {name} must be at least 1; got {limit}")
    mark = fingerprint(tokenizer)
    tally = Tally(tokenizer.backend_tokenizer, vocabulary)
    opened = 0
    for batch in _batches(_first(passages, documents)):
        read, full = _add(tally, batch, tokens)
        opened += sum(passage.opens for passage in batch[:read])
        advance()
        if full:
            break
    counts = tally.total()
    if not counts.any():
        raise UsageError(f"corpus must hold at least one token; {corpus} holds none")
    return FrequencyTable(counts, mark, model, corpus, opened)


def _add(tally: "Tally", batch: Sequence[Passage], tokens: int | None) -> tuple[int, bool]:
    """Count a batch; the number of passages read, and whether `tokens` is reached with the last of them."""
    if tokens is None:
        tally.add(passage.text for passage in batch)
        return len(batch), False
    before = tally.total().copy()
    tally.add(passage.text for passage in batch)
    if tally.total().sum() < tokens or len(batch) == 1:
        return len(batch), bool(tally.counts.sum() >= tokens)
    tally.counts[:] = before
    half = len(batch) // 2
    read, full = _add(tally, batch[:half], tokens)
    if not full:
        more, full = _add(tally, batch[half:], tokens)
        read += more
    return read, full


def _first(passages: Iterable[Passage], documents: int | None) -> Iterator[Passage]:
    opened = 0
    for passage in passages:
        opened += passage.opens
        if documents is not None and opened > documents:
            return
        yield passage


def _batches(passages: Iterable[Passage]) -> Iterator[list[Passage]]:
    batch: list[Passage] = []
    characters = 0
    for passage in passages:
        batch.append(passage)
        characters += len(passage.text)
        if characters >= BATCH:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class Tally:
    """Counts of the tokens of texts.

    Args:
        backend: the Rust tokenizer.
        vocabulary: V of the model.

    Attributes:
        counts: (V,) of what has been tokenised; `total()` tokenises what waits.
        cuts: how texts are cut into words; None to read whole texts.
    """

    def __init__(self, backend: Any, vocabulary: int) -> None:
        # A copy, for truncation and padding to be switched off in.
        self.backend = type(backend).from_str(backend.to_str())
        self.backend.no_truncation()
        self.backend.no_padding()
        self.backend.encode_special_tokens = True  # a text that quotes "<|endoftext|>" is text, as where it is scored
        self.counts: IntArray = np.zeros(vocabulary, dtype=np.int64)
        self.cuts = cuts(backend)
        self._words: list[pa.Table] = []

    def add(self, texts: Iterable[str]) -> None:
        """Count the tokens of some texts."""
        kept = [text for text in texts if text]
        if not kept:
            return
        if self.cuts is None:
            for begin in range(0, len(kept), BLOCK):
                some = kept[begin : begin + BLOCK]
                self._encode(self.backend, some, [1] * len(some))
            return
        self._words.append(_counted(kept, self.cuts))
        if _size(self._words) > KEPT:
            self._words = [_merged(self._words)]
            if _size(self._words) > KEPT // 2:
                # The common words wait to be tokenised once; the rest may come again, and then are tokenised again.
                number = self._words[0]["number"]
                rare = pc.less_equal(number, pc.quantile(number, interpolation="lower")[0])
                self._tokenise(self.cuts, self._words[0].filter(rare))
                self._words = [self._words[0].filter(pc.invert(rare))]
            if _size(self._words) > KEPT // 2:
                self.total()

    def total(self) -> IntArray:
        """(V,) counts of all texts so far."""
        if self._words and self.cuts is not None:
            self._tokenise(self.cuts, _merged(self._words))
        self._words = []
        return self.counts

    def _tokenise(self, cuts: Cuts, words: pa.Table) -> None:
        """Count the tokens of words, each as often as it occurred; words of the same number share a text."""
        words = words.sort_by("number")
        for begin in range(0, len(words), WORDS):
            some = words.slice(begin, WORDS)
            piece = pc.match_substring_regex(some["word"], PIECE)
            if cuts.pieces is None:
                piece = pc.and_(piece, False)
            blocks = _blocks(some.filter(piece))
            texts = [b"\n".join(block).decode().replace(" ", "Ġ") for block, _ in blocks]
            self._encode(cuts.pieces, texts, [number for _, number in blocks])
            blocks = _blocks(some.filter(pc.invert(piece)))
            apart = [[word.decode() for word in block] for block, _ in blocks]
            self._encode(self.backend, apart, [number for _, number in blocks], is_pretokenized=True)

    def _encode(self, backend: Any, texts: Sequence[Any], times: list[int], **options: bool) -> None:
        """Count the tokens of each text so many times."""
        if not texts:
            return
        encodings = backend.encode_batch_fast(texts, add_special_tokens=False, **options)
        ids = [encoding.ids for encoding in encodings]
        weights = np.repeat(np.array(times, dtype=np.float64), [len(some) for some in ids])
        tokens = np.concatenate([np.asarray(some, dtype=np.int64) for some in ids])
        found = np.bincount(tokens, weights, minlength=self.counts.size)
        if found.size > self.counts.size:
            largest = found.size - 1
            raise UsageError(f"the model's vocabulary must hold every token; {largest} is not below {self.counts.size}")
        self.counts += found.astype(np.int64)  # exact: whole numbers far below 2^53


def _counted(texts: Sequence[str], cuts: Cuts) -> pa.Table:
    """The distinct words of texts, and how often each occurs."""
    data, begins = cuts.words([text.encode() for text in texts])
    buffers = [None, pa.py_buffer(begins), pa.py_buffer(data)]
    words = pa.LargeBinaryArray.from_buffers(pa.large_binary(), begins.size - 1, buffers)
    distinct = pc.value_counts(words)
    return pa.table({"word": distinct.field("values"), "number": distinct.field("counts")})


def _merged(words: Sequence[pa.Table]) -> pa.Table:
    table = pa.concat_tables(words)
    distinct = table["word"].combine_chunks().dictionary_encode()
    sums = np.bincount(np.from_dlpack(distinct.indices), np.from_dlpack(table["number"].combine_chunks()))
    number = pa.Int64Array.from_buffers(pa.int64(), sums.size, [None, pa.py_buffer(sums.astype(np.int64))])
    return pa.table({"word": distinct.dictionary, "number": number})


def _size(words: Sequence[pa.Table]) -> int:
    return sum(table.nbytes for table in words)


def _blocks(words: pa.Table) -> list[tuple[list[bytes], int]]:
    """The words, of which each number stands together, in blocks of one number."""
    numbers = np.from_dlpack(words["number"].combine_chunks())
    spelt = words["word"].to_pylist()
    changes = np.flatnonzero(np.diff(numbers)) + 1
    bounds = np.unique(np.concatenate([changes, np.arange(0, len(spelt), BLOCK), [len(spelt)]]))
    return [(spelt[begin:end], int(numbers[begin])) for begin, end in pairwise(bounds)]
