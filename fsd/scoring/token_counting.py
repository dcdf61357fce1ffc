"""Counting the tokens of a corpus, for a table of token frequencies; tokenising runs in Rust on all cores."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from fsd.data.passages import Passage, Passages
from fsd.errors import UsageError, at_least
from fsd.scoring.token_frequencies import FrequencyTable, fingerprint
from fsd.token_stats import IntArray

# Characters tokenised in one call, enough for all cores.
BATCH = 2**21


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
        counted = tally.add([passage.text for passage in batch], tokens)
        opened += sum(passage.opens for passage in batch[:counted])
        advance()
        if tokens is not None and tally.counts.sum() >= tokens:
            break
    if not tally.counts.any():
        raise UsageError(f"corpus must hold at least one token; {corpus} holds none")
    return FrequencyTable(tally.counts, identity, model, corpus, opened)


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
    """`counts`, (V,), of tokens by a Rust tokenizer; with `first_tokens` no more than so many of each text count."""

    def __init__(self, backend: Any, vocabulary: int, first_tokens: int | None = None) -> None:
        self.backend = type(backend).from_str(backend.to_str())  # a copy without truncation and padding
        self.backend.no_truncation()
        self.backend.no_padding()
        self.backend.encode_special_tokens = True  # "<|endoftext|>" in a text is plain text, as in scoring
        if first_tokens:
            self.backend.enable_truncation(first_tokens)
        self.counts: IntArray = np.zeros(vocabulary, dtype=np.int64)

    def add(self, texts: Sequence[str], limit: int | None = None) -> int:
        """Count the tokens of texts, up to the one that reaches the limit of all tokens; return how many texts."""
        encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        sizes = np.cumsum([len(encoding.ids) for encoding in encodings])
        if limit is not None:
            missing = limit - self.counts.sum()
            encodings = encodings[: int(np.searchsorted(sizes, missing)) + 1]
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int64)
        counts = np.bincount(ids, minlength=self.counts.size)
        largest = counts.size - 1
        if largest >= self.counts.size:
            raise UsageError(f"the model's vocabulary must hold every token; {largest} is not below {self.counts.size}")
        self.counts += counts
        return len(encodings)
