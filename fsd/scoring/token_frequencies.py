"""Token frequencies of a reference corpus: how common each token is in the language, for DC-PDD.

A table is counted once (see `fsd.scoring.token_counting`), is small, and belongs to one tokenizer.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fsd.errors import UsageError
from fsd.leftovers import replacing
from fsd.token_stats import STD_FLOOR, FloatArray, IntArray, Prompts, Scorer, Tokenize, TokenStats

# Version of the table's file format.
FORMAT = 1
# What a file says about its table beside the counts.
FIELDS = ("fingerprint", "model", "corpus", "documents")
# Texts tokenised in one call, so that the tokens of a large data set are never in memory together.
SCORED = 1024


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
        return np.log((self.counts + 1.0) / (self.tokens + self.vocabulary))

    def matching(self, tokenizer: Any, vocabulary: int, model: str) -> "FrequencyTable":
        """This table for a model with the same tokenizer, whose vocabulary may be padded to another size."""
        if not made_for(tokenizer, self.fingerprint):
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
        about = {"format": FORMAT}
        for name in (*FIELDS, "tokens"):
            about[name] = getattr(self, name)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(file) as draft, draft.open("wb") as out:
                np.savez_compressed(out, counts=self.counts, about=np.array(json.dumps(about)))
        except OSError as error:
            raise UsageError(f"frequency table must be a file that can be written; {file}: {error.strerror}") from error

    @classmethod
    def load(cls, file: Path) -> "FrequencyTable":
        """Read a table; a file that is not a whole one is refused."""
        if not file.is_file():
            raise UsageError(f"frequency table must be a file; there is no file {file}")
        try:
            # A pickle in the file could run code, and the file may come from somebody else.
            with file.open("rb") as raw, np.load(raw, allow_pickle=False) as arrays:
                counts = arrays["counts"]
                about = json.loads(str(arrays["about"]))
            # The sum is a check of our own, for damage that the archive's checksums let through.
            if about["format"] != FORMAT or counts.sum() != about["tokens"]:
                raise ValueError("format or sum")
            return cls(counts, **{name: about[name] for name in FIELDS})
        except Exception as error:  # a damaged archive raises many types of errors
            raise UsageError(f"frequency table must be a whole file made by fsd frequencies; {file} is not") from error


def made_for(tokenizer: Any, expected: str) -> bool:
    """Whether a hash is that of a tokenizer, as it is made now or was before special tokens were left out."""
    return expected in (fingerprint(tokenizer), fingerprint(tokenizer, special=True))


def fingerprint(tokenizer: Any, *, special: bool = False) -> str:
    """Hash of what a fast tokenizer makes of texts.

    Truncation and padding, which each caller sets, are no part of it; nor are special tokens, which no text is read as
    and to which many a fine-tuning adds one, but if `special`.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UsageError(f"tokenizer must be a fast one (tokenizer.json); got {type(tokenizer).__name__}")
    state = json.loads(backend.to_str())
    state.update(truncation=None, padding=None)
    if not special:
        state["added_tokens"] = [token for token in state["added_tokens"] if not token["special"]]
        # They surround a text with special tokens, and put tokens together again.
        state.update(post_processor=None, decoder=None)
    # Saved tables hold this hash, so the spelling of the JSON must never change.
    canonical = json.dumps(state, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def unigram_scorer(table: FrequencyTable, tokenize: Tokenize) -> Scorer:
    """A scorer by token frequency alone: logp_t = log f(x_t), and `mean` and `std` are constants of the table."""
    log_f = table.log_frequency()
    f = np.exp(log_f)
    mean = float(f @ log_f)
    # A flat table has no spread at all, and detectors divide by `std`.
    std = max(float(np.sqrt(f @ np.square(log_f - mean))), STD_FLOOR)

    def score(prompts: Prompts) -> Iterator[TokenStats]:
        for begin in range(0, len(prompts), SCORED):
            batch = prompts[begin : begin + SCORED]
            rows = iter(tokenize([prompt.text for prompt in batch if prompt.marked is None]))
            for prompt in batch:
                if prompt.marked:
                    token = np.array(prompt.marked.ids)[np.array(prompt.marked.scored)]
                else:
                    token = np.array(next(rows), dtype=np.int64)
                yield TokenStats(
                    prompt.text, token, log_f[token], np.full(token.shape, mean), np.full(token.shape, std)
                )

    return score
