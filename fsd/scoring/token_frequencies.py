"""Token frequencies of a reference corpus: how common each token is in the language, for DC-PDD.

A table is counted once (see `fsd.scoring.token_counting`), is small, and belongs to one tokenizer.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fsd.errors import UsageError
from fsd.token_stats import STD_FLOOR, FloatArray, IntArray, Prompt, Scorer, TokenStats

FORMAT = 1
"""Version of the table's file format."""


@dataclass(frozen=True)
class FrequencyTable:
    """Number of occurrences of each token of a model's vocabulary in a reference corpus of some documents.

    `counts` are (V,); V may exceed the vocabulary of the tokenizer, which `fingerprint` identifies.
    """

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
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as out:
                np.savez_compressed(out, counts=self.counts, about=np.array(json.dumps({"format": FORMAT} | fields)))
            temporary.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
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
            raise UsageError(
                f"frequency table must be a whole file made by pipelines.frequencies; {file} is not"
            ) from error


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
    """A scorer by token frequency alone, without context: logp_t = log f(x_t).

    The table is of the tokenizer that `tokenize` uses, see `FrequencyTable.matching`. The distribution is the same at
    every position, so `mean` = Σ f log f and `std` are constants of the table.
    """
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
