"""Counting a corpus against the usual Python loop: python -m benchmarks.frequencies --help.

The loop is `Counter.update(tokenizer(text)["input_ids"])`, quoted special tokens read as text. Both sides count the
same text in the same process, in turns and with one Rust thread, so that the ratio is per core; it is printed for
processor time, which other work on the machine does not stretch, and for wall time. The counts must be equal.

Three corpora: English-like text whose words follow Zipf's law with an open vocabulary; docstrings of the installed
packages, in the order of a shuffle; and their source code.
"""

import ast
import os
import re
import resource
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import numpy as np
import tyro

from fsd.scoring.token_counting import BATCH, Tally


def sources() -> Iterator[str]:
    files = sorted(Path(sysconfig.get_path("purelib")).rglob("*.py"))
    for at in np.random.default_rng(0).permutation(len(files)):
        try:
            text = files[at].read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if text:
            yield text


def docstrings() -> Iterator[str]:
    warnings.simplefilter("ignore", SyntaxWarning)
    for text in sources():
        try:
            nodes = list(ast.walk(ast.parse(text)))
        except (SyntaxError, ValueError):
            continue
        for node in nodes:
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (found := ast.get_docstring(node)):
                yield found


def english() -> Iterator[str]:
    """Documents of about 300 words: ranks by a Zipf law of exponent 1.15, so that the vocabulary keeps growing."""
    rng = np.random.default_rng(0)
    common = list(dict.fromkeys(w for text in islice(docstrings(), 2000) for w in text.split() if w.isalpha()))[:2000]
    syllables = re.findall("..", "anberconderelfigrahoinjokalomenoorpraquirestatiunwoxiylzan")

    def word(rank: int) -> str:
        if rank < len(common):
            return common[rank]
        spelt = ""
        while rank:
            rank, digit = divmod(rank, len(syllables))
            spelt += syllables[digit]
        return spelt

    while True:
        ranks = rng.zipf(1.15, size=400)
        ends = rng.random(400)
        words = [word(int(rank) - 1) for rank in ranks if rank < 3_000_000]
        marks = (". " if end < 0.06 else ", " if end < 0.12 else ".\n\n" if end < 0.13 else " " for end in ends)
        yield "".join(map("".join, zip(words, marks, strict=False)))


def timed(call: Callable[[Any], object], batch: Sequence[str]) -> Any:
    """Processor and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    call(batch)
    return np.array([time.process_time() - cpu, time.perf_counter() - wall])


def batches(texts: Iterator[str], size: float) -> Iterator[list[str]]:
    read = 0
    while read < size:
        batch: list[str] = []
        characters = 0
        while characters < min(BATCH, size - read):
            batch.append(next(texts, ""))
            if not batch[-1]:
                return
            characters += len(batch[-1])
        read += characters
        yield batch


def compare(name: str, texts: Iterator[str], size: float, tokenizer: Any, vocabulary: int) -> None:
    usual: Counter[int] = Counter()
    tally = Tally(tokenizer.backend_tokenizer, vocabulary)

    def loop(batch: Sequence[str]) -> None:
        for text in batch:
            encoded = tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)
            usual.update(encoded["input_ids"])

    spent = np.zeros((2, 2))
    characters = 0
    for batch in batches(texts, size):
        characters += sum(map(len, batch))
        for side, call in enumerate((loop, tally.add)):
            spent[side] += timed(call, batch)
    expected = np.bincount(list(usual), weights=list(usual.values()), minlength=vocabulary)
    if not np.array_equal(expected, tally.counts):
        raise AssertionError("both sides must count the same")
    for side, label in enumerate(("python loop", "fsd")):
        rate, ratio = characters / 1e6 / spent[side], spent[0] / spent[side]
        print(f"{name:11} {label:12} {rate[0]:7.2f} {rate[1]:7.2f} {ratio[0]:7.1f}x {ratio[1]:6.1f}x", flush=True)


@dataclass(frozen=True)
class Benchmark:
    """Count tokens: the usual loop beside ours."""

    megabytes: float = 20
    """Millions of characters of each corpus; 1000 for a gigabyte, as far as there is so much code installed."""
    model: str = "embedded"
    """Whose tokenizer; bpe trains one of 50k tokens on the docstrings."""
    corpora: tuple[str, ...] = ("english", "docstrings", "code")
    """Which corpora."""


def tokenizer_of(model: str) -> tuple[Any, int]:
    if model != "bpe":
        from fsd.models.language_model import load_tokenizer

        return load_tokenizer(model)
    from fsd.models.pretraining import train_tokenizer

    trained = train_tokenizer(list(islice(docstrings(), 20_000)), 50_000)
    return trained, len(trained)


def main(config: Benchmark) -> None:
    tokenizer, vocabulary = tokenizer_of(config.model)
    print(
        f"{config.megabytes:g} M characters; vocabulary {vocabulary}; "
        f"RAYON_NUM_THREADS={os.environ['RAYON_NUM_THREADS']}"
    )
    print(f"{'corpus':11} {'':12} {'MB/s cpu':>8} {'wall':>6} {'ratio cpu':>8} {'wall':>6}")
    for name, texts in (("english", english()), ("docstrings", docstrings()), ("code", sources())):
        if name in config.corpora:
            compare(name, texts, config.megabytes * 1e6, tokenizer, vocabulary)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")


if __name__ == "__main__":
    main(tyro.cli(Benchmark))
