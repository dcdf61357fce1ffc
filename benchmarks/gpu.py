"""Scoring and the paper's whole experiment on a GPU: python -m benchmarks.gpu --help.

Random weights of 1.4B and 6.9B shapes in bfloat16. Printed are the statistics of a chunk of logits beside a copy of it;
then, for each shape, tokens a second and the share of the measured matmul peak, for the bare forward pass and for ours,
with the statistics as they are and by compiled torch, and what memory they take above the weights; and two
models of the shape compared at each position, over both alone. Last the experiment of the FSD paper, three epochs of
LoRA on 231 texts and four passes over 1,157 texts, by stage, beside its floor: the multiplications alone at the
measured peak.

It needs torch, transformers and numpy; for the experiment's training also trl, peft and datasets.
"""

import argparse
import sys
import time
from collections.abc import Callable
from datetime import date
from typing import Any

import torch

from benchmarks import pairs
from benchmarks.scoring import SHAPES, VOCABULARY, RandomModel, bare, hardware, inputs, measure, ours, random_model
from fsd.models.devices import DTYPES, gpu_works, torch_device
from fsd.models.language_model import load_tokenizer
from fsd.scoring import model_scorer as scoring
from fsd.token_stats import Prompt

Statistics = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

TRAINED, SCORED, EPOCHS, PASSES = 231, 1157, 3, 4
"""Size of the paper's experiment on WikiMIA."""


def matmul_peak(device: torch.device, dtype: torch.dtype, size: int, rounds: int) -> float:
    """Measured multiply-add operations a second, each counted as two."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    taken = measure({"matmul": lambda: a @ b}, rounds, device)
    return 2 * size**3 / taken["matmul"][0]


def operations(shape: str, tokens: int) -> float:
    """Operations of a forward pass without its attention scores: two per weight and token."""
    layers, width, _ = SHAPES[shape]
    return 2.0 * tokens * (12 * layers * width**2 + width * VOCABULARY)


def above_weights(way: Callable[[], Any], device: torch.device) -> float:
    """Most bytes that a way takes above what is held before it."""
    if device.type != "cuda":
        return float("nan")
    torch.cuda.reset_peak_memory_stats(device)
    held = torch.cuda.memory_allocated(device)
    way()
    return torch.cuda.max_memory_allocated(device) - held


def made_by(statistics: Statistics | None, model: RandomModel) -> Callable[[], Any]:
    """Our way, with the statistics made by this function; None for what the engine takes by itself."""

    def way() -> Any:
        usual = scoring.token_statistics
        scoring.token_statistics = statistics or usual  # type: ignore[assignment]
        try:
            return ours(model, None)
        finally:
            scoring.token_statistics = usual

    return way


def speed(model: RandomModel, shape: str, rounds: int, peak: float, *, with_compiled: bool = True) -> None:
    """Rows of the table: bare, and ours as it is, by torch and by compiled torch."""
    budget = scoring.ModelScorer(model).budget
    batches = inputs(model, budget)
    tokens = sum(map(len, model.rows))
    ways: dict[str, Callable[[], Any]] = {"bare": lambda: bare(model, batches), "ours": made_by(None, model)}
    if with_compiled:
        compiled = made_by(torch.compile(scoring.token_statistics, dynamic=True), model)
        try:
            compiled()
            ways["compiled"] = compiled
        except Exception as error:  # whatever the compiler misses on this machine, the other rows are wanted
            print(f"compiled statistics left out: {type(error).__name__}")
    apart = {name: abs(way() - ways["ours"]()).max() for name, way in ways.items() if name != "bare"}
    taken = measure(ways, rounds, model.device)
    padding = 1 - tokens / sum(x.numel() for x in batches)
    print(f"\n{shape}: {tokens} tokens in {len(batches)} batches of at most {budget}, padding {padding:.1%}")
    print(f"{'':10}{'tok/s':>10}{'over bare':>11}{'of peak':>9}{'memory above weights':>22}{'nats from ours':>17}")
    for name, (wall, _) in taken.items():
        share = operations(shape, tokens) / wall / peak
        memory = above_weights(ways[name], model.device) / 2**30
        far = f"{apart[name]:17.1e}" if name in apart else ""
        ratio = wall / taken["bare"][0]
        print(f"{name:10}{tokens / wall:10.0f}{ratio:11.3f}{share:9.1%}{memory:18.2f} GiB{far}")


def statistics_alone(dtype: torch.dtype, device: torch.device, rounds: int) -> None:
    """The statistics of a chunk of logits by themselves, beside a plain copy of it: memory's speed is their floor."""
    logits = torch.randn(2048, VOCABULARY, device=device).to(dtype)
    target = torch.zeros(len(logits), dtype=torch.long, device=device)
    out = torch.empty_like(logits)
    ways: dict[str, Callable[[], Any]] = {
        "copy": lambda: out.copy_(logits),
        "ours": lambda: scoring.Reduction(None)(logits, target),
    }
    size = logits.numel() * logits.element_size()
    for name, (wall, _) in measure(ways, 10 * rounds, device).items():
        moved = size * (2 if name == "copy" else 1)
        print(f"statistics of {len(logits)} tokens, {name}: {wall * 1e6:.0f} µs, {moved / wall / 1e9:.0f} GB/s")


def experiment(model: RandomModel, shape: str, peak: float, *, trained: int, scored: int) -> None:
    """The paper's experiment by stage, beside its floor."""
    from fsd.config import AdapterConfig

    rows = model.rows
    seconds: dict[str, float] = {}
    try:
        from fsd.models.finetuning import finetune

        model.tokenizer, _ = load_tokenizer("embedded")  # the trainer wants one, though it is given token ids
        begin = time.perf_counter()
        texts = [str(i) for i in range(trained)]
        finetune(model, texts, AdapterConfig(epochs=EPOCHS), seed=0, shown=False)
        seconds["fine-tuning"] = time.perf_counter() - begin
    except ImportError as error:
        print(f"fine-tuning left out: {error}")
    model.rows = rows[trained : trained + scored]
    begin = time.perf_counter()
    for tuned in [model.adapted and bool(i % 2) for i in range(PASSES)]:
        prompts = [Prompt(str(i)) for i in range(len(model.rows))]
        list(scoring.ModelScorer(model, tuned=tuned)(prompts))
    seconds["scoring"] = time.perf_counter() - begin
    # Backward through frozen weights costs one forward pass more: gradients of inputs, not of weights.
    floor = operations(shape, 2 * EPOCHS * sum(map(len, rows[:trained])) + PASSES * sum(map(len, model.rows))) / peak
    stages = ", ".join(f"{stage} {taken:.1f} s" for stage, taken in seconds.items())
    print(f"\nexperiment, {shape}: {stages}; together {sum(seconds.values()):.1f} s, floor {floor:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["1.4b", "6.9b"], choices=SHAPES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16", choices=DTYPES)
    parser.add_argument("--texts", type=int, default=512, help="texts of the speed table")
    parser.add_argument("--trained", type=int, default=TRAINED)
    parser.add_argument("--scored", type=int, default=SCORED)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--matmul", type=int, default=8192, help="side of the matrices that measure the peak")
    parser.add_argument("--no-compiled", action="store_true", help="leave out what takes half a minute")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not gpu_works():
        print("no GPU here: this benchmark needs one that torch can use", file=sys.stderr)
        sys.exit(2)
    device, dtype = torch_device(options.device), DTYPES[options.dtype]
    peak = matmul_peak(device, dtype, options.matmul, options.rounds)
    print(f"{date.today()}, {hardware(device)}, torch {torch.__version__}, {options.dtype}")
    print(f"matmul peak {peak / 1e12:.1f} TFLOP/s")
    statistics_alone(dtype, device, options.rounds)
    for shape in options.shapes:
        model = random_model(shape, max(options.texts, options.trained + options.scored), device=device, dtype=dtype)
        rows = model.rows
        model.rows = rows[: options.texts]
        speed(model, shape, options.rounds, peak, with_compiled=not options.no_compiled)
        print("\ntwo models compared, beside each of them alone")
        pairs.report(shape, model, options.rounds, with_textbook=False)
        model.rows = rows
        experiment(model, shape, peak, trained=options.trained, scored=options.scored)
        del model
        if device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
