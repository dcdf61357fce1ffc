"""Time and memory as a function of the number of texts: python -m benchmarks.scale --help.

Each size runs in a process of its own, with a random model so small that everything but the forward pass shows: reading
texts, batching, detectors, the disk cache. Memory is the peak of the whole process, shown next to the peak before the
first text, which is due to the libraries. With --cached each size is scored twice, starting with an empty cache: the
second time makes no forward pass.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

# Before torch starts its threads: spinning ones stall two processes on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

WORDS = 30
DETECTORS = ("loss", "zlib", "lowercase", "min_k", "min_k_pp", "surp")


def peak() -> float:
    """Peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def texts(count: int, seed: int = 0) -> list[str]:
    import numpy as np

    from fsd.data import embedded

    vocabulary = sorted({word for document in embedded.corpus() for word in document.text.split()})
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(vocabulary, WORDS)) for _ in range(count)]


def load(seed: int = 0) -> Any:
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    from fsd.models.language_model import BaseIdentity, assemble, load_tokenizer

    tokenizer, vocabulary = load_tokenizer("embedded")
    torch.manual_seed(seed)
    config = GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=0,
    )
    return assemble(GPTNeoXForCausalLM(config).eval(), tokenizer, BaseIdentity("random", "", f"seed {seed}"))


def one(count: int, cached: bool) -> None:
    """Score `count` texts, and print memory and time."""
    import detectors
    from fsd.scoring.cache import FILE, MemoizedScorer, SQLiteStore, model_key
    from fsd.scoring.deviation import evaluate
    from fsd.scoring.model_scorer import ModelScorer

    model, given = load(), texts(count)
    chosen = [detectors.load(name) for name in DETECTORS]
    evaluate(given[:10], chosen, {"base": ModelScorer(model)})
    before = peak()
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2 if cached else 1):
            scorer = ModelScorer(model)
            key = model_key(model, tuned=False)
            reader = MemoizedScorer(scorer, SQLiteStore(Path(folder) / FILE), key) if cached else scorer
            begun = time.perf_counter(), time.process_time()
            evaluate(given, chosen, {"base": reader})
            seconds.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    after = peak()
    row = f"{count:>9,}{before:>12.0f}{after:>10.0f}{after - before:>9.0f}"
    print(row + "".join(f"{wall:>10.1f}{used:>10.1f}{1e3 * used / count:>12.2f}" for wall, used in seconds), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000], help="numbers of texts")
    parser.add_argument("--cached", action="store_true", help="score twice, with a cache")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.cached)
        return
    print(f"{date.today()}, {platform.processor() or platform.machine()}, {', '.join(DETECTORS)}, {WORDS} words a text")
    head = f"{'texts':>9}{'MiB before':>12}{'peak MiB':>10}{'growth':>9}"
    print(head + f"{'wall s':>10}{'cpu s':>10}{'cpu ms/text':>12}" * (2 if options.cached else 1), flush=True)
    for count in options.sizes:
        arguments = [sys.executable, "-m", "benchmarks.scale", "--one", str(count), *["--cached"] * options.cached]
        subprocess.run(arguments, check=True)


if __name__ == "__main__":
    main()
