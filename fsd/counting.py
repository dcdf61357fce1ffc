"""Count the tokens of a corpus, at constant memory and at a multiple of the speed of tokenising it.

A corpus repeats its words. A tokenizer that cuts text by the GPT-2 pattern or its successors gives the same tokens
when the text is cut before whitespace: so each distinct word, with the whitespace before it, is tokenised once in a
while and counts as often as it occurred. Any other tokenizer reads the whole text, in Rust and on all cores.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fsd.corpora import Passage
from fsd.errors import UsageError
from fsd.frequencies import FrequencyTable, fingerprint
from fsd.stats import IntArray

BATCH = 2**21
"""Characters read before they are counted."""
DISTINCT = 2**20
"""Distinct words kept before they are tokenised."""
DISTINCT_CHARACTERS = 2**26
BLOCK = 2**15
"""Characters of words tokenised in one call, so that there is work for all cores."""

_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # Unicode White_Space
WORDS = re.compile(rf"[{_SPACE}]*+[^{_SPACE}]++(?:(?<=[\W_])[\r\n][{_SPACE}]*+[^{_SPACE}]*+)*+|[{_SPACE}]+")
"""Words with the whitespace before them; a line break right after punctuation stays with it, as Llama 3 has it."""
JOINED = re.compile(rf"[^{_SPACE}][{_SPACE}]")

_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
SEPARATING = frozenset(
    {
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        _LLAMA_3,
        _LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}"),
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    }
)
"""Patterns (GPT-2 and NeoX, Llama 3, Qwen, GPT-4o) of which no match holds whitespace after something else, but for
line breaks after punctuation, and whose only look-ahead is for whitespace: a cut between `WORDS` changes no match."""


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
        passages: the corpus, e.g. `fsd.corpora.Corpus`.
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
    if tally.total().sum() < tokens:
        return len(batch), False
    tally.counts[:] = before
    for read, passage in enumerate(batch, 1):
        tally.add([passage.text])
        if tally.total().sum() >= tokens:
            return read, True
    raise AssertionError("a batch must count the same whole and in parts")


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
    """

    def __init__(self, backend: Any, vocabulary: int) -> None:
        # A copy, for truncation and padding to be switched off in.
        self.backend = type(backend).from_str(backend.to_str())
        self.backend.no_truncation()
        self.backend.no_padding()
        self.backend.encode_special_tokens = True  # a text that quotes "<|endoftext|>" is text, as where it is scored
        self.counts: IntArray = np.zeros(vocabulary, dtype=np.int64)
        self.separable = separable(backend)
        self._words: Counter[str] = Counter()
        self._ends: Counter[str] = Counter()
        self._bound = 0  # on the characters of both

    def add(self, texts: Iterable[str]) -> None:
        """Count the tokens of some texts."""
        if not self.separable:
            self._encode([text for text in texts if text], 1)
            return
        for text in texts:
            words = WORDS.findall(text)
            # The first has nothing before it, and what becomes of whitespace at the end depends on that being the end.
            for at in (-1, 0):
                if words and (at == 0 or words[-1][-1].isspace()):
                    self._ends[words.pop(at)] += 1
            self._words.update(words)
            self._bound += len(text)
        if len(self._words) + len(self._ends) > DISTINCT or self._kept() > DISTINCT_CHARACTERS:
            self.total()

    def _kept(self) -> int:
        """Characters of the waiting words, or less than allowed: the sum is made only when it may be too much."""
        if self._bound > DISTINCT_CHARACTERS:
            kept = sum(map(len, self._words)) + sum(map(len, self._ends))
            if kept > DISTINCT_CHARACTERS // 2:
                return self._bound
            self._bound = kept
        return self._bound

    def total(self) -> IntArray:
        """(V,) counts of all texts so far."""
        for ends, kept in ((False, self._words), (True, self._ends)):
            times: dict[int, list[str]] = defaultdict(list)
            for word, number in kept.items():
                times[number].append(word)
            kept.clear()
            for number, words in times.items():
                self._encode(words if ends else list(_joined(words)), number)
        self._bound = 0
        return self.counts

    def _encode(self, texts: list[str], times: int) -> None:
        """Count the tokens of `texts`, each text standing for `times` of them."""
        for begin in range(0, len(texts), 1024):
            encodings = self.backend.encode_batch_fast(texts[begin : begin + 1024], add_special_tokens=False)
            ids = np.concatenate([np.asarray(encoding.ids, dtype=np.int64) for encoding in encodings])
            found = np.bincount(ids, minlength=self.counts.size)
            if found.size > self.counts.size:
                largest = found.size - 1
                raise UsageError(
                    f"the model's vocabulary must hold every token; {largest} is not below {self.counts.size}"
                )
            self.counts += times * found


def _joined(words: Iterable[str]) -> Iterator[str]:
    """The words, each with the whitespace before it, in texts of about `BLOCK` characters that keep them apart.

    A word that begins with a line break must not come after punctuation, which would take the break.
    """
    kinds: dict[tuple[bool, bool], list[str]] = {(a, b): [] for a in (False, True) for b in (False, True)}
    for word in words:
        kinds[word[0] in "\r\n", word[-1].isalnum()].append(word)
    after, spaced = kinds[True, False], kinds[False, True]
    pairs = min(len(after), len(spaced))
    order = kinds[True, True] + [word for pair in zip(after, spaced, strict=False) for word in pair]
    order += spaced[pairs:] + kinds[False, False]
    begin = characters = 0
    for end, word in enumerate(order, 1):
        characters += len(word)
        if characters >= BLOCK or end == len(order):
            yield "".join(order[begin:end])
            begin, characters = end, 0
    yield from after[pairs:]


def separable(backend: Any) -> bool:
    """Whether a tokenizer gives the same tokens when a text is cut into `WORDS`; false where that is not known.

    It needs a cut into words that agrees (see `SEPARATING`), a normaliser that composes no whitespace with its
    neighbours, and added tokens that neither hold whitespace after something else nor look at what follows them.
    """
    state = json.loads(backend.to_str())
    normalizer, splitter = state["normalizer"], state["pre_tokenizer"]
    forms = normalizer.get("normalizers", [normalizer]) if normalizer else []
    plain = all(form["type"] in ("NFC", "NFD") for form in forms)
    steps = splitter.get("pretokenizers", [splitter]) if splitter else []
    cuts = any(_separates(step) for step in steps)
    harmless = all(_separates(step) or step["type"] in ("ByteLevel", "Digits") for step in steps)
    added = all(
        not (token["rstrip"] or token["single_word"] or JOINED.search(token["content"]))
        for token in state["added_tokens"]
    )
    return plain and cuts and harmless and added and not state["model"].get("dropout")


def _separates(step: dict[str, Any]) -> bool:
    if step["type"] == "ByteLevel":
        return bool(step["use_regex"])
    if step["type"] != "Split" or step["pattern"].get("Regex") not in SEPARATING:
        return False
    return (step["behavior"], step["invert"]) in (("Isolated", False), ("Removed", True))
