"""Hidden states → statistics of every token, without the logits of a whole batch in memory.

The output embedding is applied to a chunk of tokens at a time, and mean and standard deviation of log p take one
exponential per logit: on a GPU in a single kernel (`fsd.scoring.triton_kernel`) if it is available, else by torch.
"""

import functools
import math
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch

from fsd.net.hub import first_line
from fsd.token_stats import STD_FLOOR

Statistics = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(n, V) logits and (n,) targets → (3, n) logp, mean, std in nats."""

CHUNK_BYTES = {"cpu": 2**26, "cuda": 2**28}
"""Size of the logits computed at once: enough rows to be worth one read of the output embedding."""
BLOCK_BYTES = {"cpu": 2**20, "cuda": 2**26}
"""Size of the float32 logits that torch reduces at once; on a CPU it fits into a core's cache."""
LOG2_E = 1 / math.log(2)
LEAST = -200.0
"""Lower bound of logits relative to the largest, in bits; below it, their weight in float32 is zero."""
TOLERANCE = 1e-4
"""Largest accepted difference between kernel and torch, in nats."""


def token_statistics(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """logp, mean and std of each row, float32, from one exponential per logit.

    With l = (logits − max) log₂ e and Z = Σ 2^l: log₂ p_v = l_v − log₂ Z, so that mean = (Σ l 2^l)/Z − log₂ Z, and the
    variance, which no shift changes, is (Σ l² 2^l)/Z − ((Σ l 2^l)/Z)²; all in bits until the end, since 2^l is the
    cheapest exponential. A second pass around the mean would cost as much again; l is relative to the maximum, so
    the terms that cancel are of the size of the spread itself. A logit of −∞ (a token of probability zero) adds
    nothing.

    Args:
        logits: (n, V) of any float type; overwritten if it is float32.
        target: (n,) token ids.

    Returns:
        (3, n) logp, mean, std in nats; std ≥ `STD_FLOOR`.
    """
    logits = logits.float()
    bits = torch.add(logits.amax(-1, keepdim=True) * -LOG2_E, logits, alpha=LOG2_E, out=logits)
    hit = bits.gather(-1, target[:, None]).squeeze(-1)
    weight = bits.clamp_min_(LEAST).exp2()
    total = weight.sum(-1)
    weight *= bits
    first = weight.sum(-1) / total
    weight *= bits
    second = weight.sum(-1) / total
    log_total = total.log2()
    std = (second - first.square()).clamp_min(0).sqrt()
    nats = torch.stack([hit - log_total, first - log_total, std]) / LOG2_E
    nats[2].clamp_min_(STD_FLOOR)
    return nats


@functools.cache
def statistics_for(device: torch.device, dtype: torch.dtype, vocabulary: int) -> Statistics:
    """The fastest function for these logits: the kernel if it compiles and agrees with torch, else torch.

    If the kernel cannot be used on a GPU, one line on stderr gives the reason.
    """
    if device.type != "cuda":
        return token_statistics
    reason = "Triton is not installed"
    if find_spec("triton") is not None:
        try:
            reason = _disagreement(device, dtype, vocabulary)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # compilers and drivers fail in many ways; torch gives the same, more slowly
            reason = first_line(error)
    if not reason:
        from fsd.scoring import triton_kernel

        return triton_kernel.token_statistics
    print(f"token statistics are computed by torch, without the Triton kernel: {reason}", file=sys.stderr)
    return token_statistics


def _disagreement(device: torch.device, dtype: torch.dtype, vocabulary: int) -> str:
    """How the kernel's numbers differ from torch's on that device; empty if they agree."""
    from fsd.scoring import triton_kernel

    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(2, vocabulary, generator=generator)).to(device, dtype)
    target = torch.tensor([0, vocabulary - 1], device=device)
    ours = triton_kernel.token_statistics(logits, target)
    difference = float((ours - token_statistics(logits.float().clone(), target)).abs().max())
    return "" if difference <= TOLERANCE else f"its numbers differ by {difference:.1e} nats"


class Reduction:
    """Hidden states → statistics, a chunk of tokens at a time, with one buffer for the logits of all chunks.

    New memory for every chunk of logits would cost as much as the statistics themselves.
    """

    def __init__(self, head: Any) -> None:
        self.head = head
        self.buffer: torch.Tensor | None = None

    def __call__(self, states: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """(3, N) statistics of (N, D) hidden states or (N, V) logits and their (N,) targets."""
        kind = states.device.type
        vocabulary = states.shape[-1] if self.head is None else self.head.weight.shape[0]
        most = max(1, CHUNK_BYTES.get(kind, CHUNK_BYTES["cuda"]) // (states.element_size() * vocabulary))
        rows = -(-len(states) // -(-len(states) // most))  # chunks of one size
        parts = []
        for chunk, ids in zip(states.split(rows), target.split(rows), strict=True):
            logits = self._logits(chunk)
            parts.append(self._reduce(logits, ids.to(logits.device)))
        return torch.cat(parts, dim=1)

    def _reduce(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        statistics = statistics_for(logits.device, logits.dtype, logits.shape[-1])
        if statistics is not token_statistics:
            return statistics(logits, target)
        kind = logits.device.type
        block = max(1, BLOCK_BYTES.get(kind, BLOCK_BYTES["cuda"]) // (4 * logits.shape[-1]))
        pairs = zip(logits.split(block), target.split(block), strict=True)
        return torch.cat([statistics(rows, ids) for rows, ids in pairs], dim=1)

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        head = self.head
        if head is None:
            return states
        if type(head) is not torch.nn.Linear or head.bias is not None or hasattr(head, "_hf_hook"):
            logits: torch.Tensor = head(states)
            return logits
        shape = len(states), head.weight.shape[0]
        if self.buffer is None or len(self.buffer) < shape[0]:
            self.buffer = states.new_empty(shape)
        return torch.mm(states, head.weight.t(), out=self.buffer[: shape[0]])
