"""Statistics of every token against the bare forward pass: python -m benchmarks.scoring --help.

Three ways over the same random weights and texts, in turns within one process:

- `bare`: `model(...)` with logits and nothing else, on the very batches that we score;
- `ours`: `fsd.scoring.model_scorer.ModelScorer`, all of TokenStats;
- `textbook`: one text at a time, log-softmax and softmax of all logits, mean, deviation and the largest log-probability
  as they stand in the papers.

Printed are medians over the rounds. Processor time is what other work on the machine does not stretch; on a GPU only
wall time means anything. Random weights cost what trained ones do.
"""

import argparse
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

# Before torch starts its threads: spinning ones stall two processes on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch

from fsd.models.devices import DTYPES, torch_device
from fsd.models.language_model import BaseIdentity, LanguageModel
from fsd.scoring.model_scorer import ModelScorer, token_statistics
from fsd.token_stats import Prompt

VOCABULARY = 50304
# layers, width, heads: Pythia's
SHAPES = {
    "14m": (6, 128, 4),
    "70m": (6, 512, 8),
    "160m": (12, 768, 12),
    "410m": (24, 1024, 16),
    "1.4b": (24, 2048, 16),
    "2.8b": (32, 2560, 32),
    "6.9b": (32, 4096, 32),
}
LENGTHS = (45, 90, 180, 360)
"""Tokens of WikiMIA's 32, 64, 128 and 256 words; single texts differ by a fifth."""


class RandomModel(LanguageModel):
    """A model whose texts are the numbers of rows of random token ids: no tokenizer is timed."""

    rows: Sequence[list[int]] = ()

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The rows of these numbers; the first for a sentence, by which the training tries the model."""
        numbers = [int(text) if text.isdecimal() else 0 for text in texts]
        return [list(self.rows[number]) for number in numbers]


def random_model(shape: str, texts: int, *, device: torch.device, dtype: torch.dtype, seed: int = 0) -> RandomModel:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    layers, width, heads = SHAPES[shape]
    config = GPTNeoXConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        bos_token_id=0,
        eos_token_id=0,
        dtype=dtype,
    )
    torch.manual_seed(seed)
    torch.set_default_dtype(dtype)
    with device:
        network = GPTNeoXForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    model = RandomModel(network, None, BaseIdentity(shape, "", ""), start=0, context=config.max_position_embeddings)
    rng = np.random.default_rng(seed)
    sizes = (rng.choice(LENGTHS, texts) * rng.uniform(0.8, 1.2, texts)).astype(int)
    model.rows = [rng.integers(1, VOCABULARY, size).tolist() for size in sizes]
    return model


def inputs(model: RandomModel, budget: int) -> list[torch.Tensor]:
    """The padded batches that `ModelScorer` makes of all texts under a token budget."""
    scorer = ModelScorer(model)
    scorer.budget = budget
    ids = [[model.start, *row] for row in model.rows]
    batches = scorer.batches(ids, [0] * len(ids))
    rows = [[torch.tensor(ids[w.prompt][w.begin : w.end]) for w in batch] for batch in batches]
    return [torch.nn.utils.rnn.pad_sequence(batch, batch_first=True) for batch in rows]


@torch.inference_mode()
def bare(model: RandomModel, batches: Sequence[torch.Tensor]) -> None:
    for x in batches:
        model.model(input_ids=x.to(model.device), use_cache=False)


def ours(model: RandomModel, budget: int | None) -> np.ndarray:
    """(4, N) statistics of all tokens, in the order of `textbook`."""
    stats = ModelScorer(model, max_batch_tokens=budget)([Prompt(str(i)) for i in range(len(model.rows))])
    return np.concatenate([[s.logp, s.mean, s.std, s.top] for s in stats], axis=1)


@torch.inference_mode()
def textbook(model: RandomModel) -> np.ndarray:
    """(4, N): log-probability, mean, deviation, and log-probability of the model's first choice."""
    answers = []
    for row in model.rows:
        x = torch.tensor([[0, *row]], device=model.device)
        logits = model.model(input_ids=x).logits[0, :-1].float()
        log, p = logits.log_softmax(-1), logits.softmax(-1)
        mean = (p * log).sum(-1)
        std = (p * (log - mean[:, None]).square()).sum(-1).sqrt()
        chosen = log.gather(-1, x[0, 1:, None])[:, 0]
        top = log.gather(-1, logits.argmax(-1, keepdim=True))[:, 0]
        answers.append(torch.stack([chosen, mean, std, top]).double().cpu().numpy())
    return np.concatenate(answers, axis=1)


def clocks(device: torch.device) -> tuple[float, float]:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter(), time.process_time()


def measure(ways: dict[str, Callable[[], Any]], rounds: int, device: torch.device) -> dict[str, tuple[float, float]]:
    """Median (wall, processor) seconds of each way, taken in turns; the first round warms up and is not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            wall, processor = clocks(device)
            way()
            wall_end, processor_end = clocks(device)
            times[name].append((wall_end - wall, processor_end - processor))
    return {
        name: (statistics.median(w for w, _ in taken[1:]), statistics.median(p for _, p in taken[1:]))
        for name, taken in times.items()
    }


def report(model: RandomModel, budget: int | None, rounds: int, *, with_textbook: bool = True) -> None:
    """One row per way: tokens a second, and its time over that of the bare forward pass."""
    used = budget or ModelScorer(model).budget
    batches = inputs(model, used)
    tokens = sum(map(len, model.rows))
    padding = 1 - tokens / sum(x.numel() for x in batches)
    ways: dict[str, Callable[[], Any]] = {"bare": lambda: bare(model, batches), "ours": lambda: ours(model, budget)}
    if with_textbook:
        ways["textbook"] = lambda: textbook(model)
        difference = abs(ours(model, budget) - textbook(model)).max()
        print(f"largest difference to the textbook's numbers: {difference:.1e} nats")
    taken = measure(ways, rounds, model.device)
    print(f"budget {used} tokens: {len(batches)} batches, padding {padding:.1%}")
    print(f"{'':10}{'tok/s':>9}{'cpu tok/s':>11}{'wall':>8}{'cpu':>8}   (the last two over bare)")
    for name, (wall, processor) in taken.items():
        ratios = f"{wall / taken['bare'][0]:8.3f}{processor / taken['bare'][1]:8.3f}"
        print(f"{name:10}{tokens / wall:9.0f}{tokens / processor:11.0f}{ratios}", flush=True)


def reduction_alone(model: RandomModel, rounds: int) -> None:
    """What the statistics cost beside the output embedding that they follow, per token."""
    rows = torch.randn(20, VOCABULARY, device=model.device)
    target = torch.zeros(20, dtype=torch.long, device=model.device)
    taken = measure({"statistics": lambda: token_statistics(rows, target)}, 20 * rounds, model.device)
    print(f"statistics alone: {taken['statistics'][1] / 20 * 1e6:.0f} µs of processor time per token")


def profile(model: RandomModel, budget: int | None) -> None:
    """Where the time of ours goes, by torch's operations."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    on_card = model.device.type == "cuda"
    with profiler(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_card], acc_events=True) as seen:
        ours(model, budget)
    column = "self_device_time_total" if on_card else "self_cpu_time_total"
    times = {event.key: getattr(event, column) for event in seen.key_averages()}
    total = sum(times.values())
    largest = sorted(times.items(), key=lambda pair: -pair[1])[:12]
    print("share of the time of ours, by operation: ", end="")
    print(", ".join(f"{name.removeprefix('aten::')} {taken / total:.1%}" for name, taken in largest))


def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with open("/proc/cpuinfo") as lines:  # noqa: PTH123 - not a file that a Path would read otherwise
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {torch.get_num_threads()} of {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["70m", "160m"], choices=SHAPES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="also say where the time of ours goes")
    parser.add_argument("--no-textbook", action="store_true")
    parser.add_argument("--budgets", type=int, nargs="+", default=[0], help="tokens per batch; 0 is what FSD takes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch_device(options.device)
    print(f"{date.today()}, {hardware(device)}, torch {torch.__version__}, {options.dtype}")
    for shape in options.shapes:
        model = random_model(shape, options.texts, device=device, dtype=DTYPES[options.dtype])
        print(f"\n{shape}, {options.texts} texts of {sum(map(len, model.rows))} tokens, vocabulary {VOCABULARY}")
        for budget in options.budgets:
            report(model, budget or None, options.rounds, with_textbook=not options.no_textbook)
        if device.type == "cpu":
            reduction_alone(model, options.rounds)
        if options.profile:
            profile(model, options.budgets[0] or None)
    print(f"\npeak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    main()
