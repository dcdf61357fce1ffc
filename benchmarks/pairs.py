"""Two models compared at each position, against the two passes that it needs: python -m benchmarks.pairs --help.

Three ways over the same random weights and texts, in turns within one process:

- `both`: the statistics of each model alone, one after the other, with `fsd.scoring.model_scorer.ModelScorer`;
- `pair`: `fsd.scoring.pair_scorer.PairScorer`, which gives the same statistics and the moments of their difference;
- `apart`: the textbook's way, one text at a time, whole log-softmax of both models.

Printed are medians over the rounds, and each way's time over that of `both`.
"""

import argparse
import os
from collections.abc import Callable
from datetime import date
from typing import Any

# Before torch starts its threads: spinning ones stall two processes on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch

from benchmarks.scoring import SHAPES, RandomModel, hardware, measure, ours, random_model
from fsd.models.devices import DTYPES, torch_device
from fsd.scoring.pair_scorer import PairScorer
from fsd.token_stats import Prompt


def pair(target: RandomModel, reference: RandomModel) -> np.ndarray:
    """(3, N) moments of all tokens by the scorer of two models."""
    prompts = [Prompt(str(number)) for number in range(len(target.rows))]
    stats = PairScorer(target, reference=reference)(prompts)
    return np.concatenate([[s.mean, s.std, s.reference_mean] for s in stats], axis=1)


@torch.inference_mode()
def apart(target: RandomModel, reference: RandomModel) -> np.ndarray:
    """The same by definition."""
    answers = []
    for row in target.rows:
        x = torch.tensor([[0, *row]], device=target.device)
        logs = [model.model(input_ids=x).logits[0, :-1].float().log_softmax(-1) for model in (target, reference)]
        difference = logs[0] - logs[1]
        mean = (logs[0].exp() * difference).sum(-1)
        std = (logs[0].exp() * (difference - mean[:, None]).square()).sum(-1).sqrt()
        answers.append(torch.stack([mean, std, (logs[1].exp() * difference).sum(-1)]).double().cpu().numpy())
    return np.concatenate(answers, axis=1)


def report(shape: str, target: RandomModel, rounds: int, *, with_textbook: bool = True) -> None:
    """One row per way: tokens a second, and its time over that of both models alone."""
    reference = random_model(shape, 1, device=target.device, dtype=target.base.dtype, seed=1)
    reference.rows = target.rows
    ways: dict[str, Callable[[], Any]] = {
        "both": lambda: (ours(target, None), ours(reference, None)),
        "pair": lambda: pair(target, reference),
    }
    if with_textbook:
        ways["apart"] = lambda: apart(target, reference)
        difference = abs(ways["pair"]() - ways["apart"]()).max()
        print(f"largest difference to the textbook's numbers: {difference:.1e} nats")
    tokens = sum(map(len, target.rows))
    taken = measure(ways, rounds, target.device)
    print(f"{shape}: {tokens} tokens\n{'':8}{'tok/s':>9}{'wall':>8}{'cpu':>8}   (the last two over both)")
    for name, (wall, processor) in taken.items():
        ratios = f"{wall / taken['both'][0]:8.3f}{processor / taken['both'][1]:8.3f}"
        print(f"{name:8}{tokens / wall:9.0f}{ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["14m", "70m", "160m"], choices=SHAPES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-textbook", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device, dtype = torch_device(options.device), DTYPES[options.dtype]
    print(f"{date.today()}, {hardware(device)}, torch {torch.__version__}, {options.dtype}")
    for shape in options.shapes:
        target = random_model(shape, options.texts, device=device, dtype=dtype)
        report(shape, target, options.rounds, with_textbook=not options.no_textbook)


if __name__ == "__main__":
    main()
