"""Hidden states → statistics of every token, without the vocabulary in memory for a whole batch.

The output embedding is applied to a chunk of tokens at a time, and mean and standard deviation of log p come out of one
exponential per logit: on a card in one kernel (`fsd.scoring.triton_kernel`) where that can be had, else by torch.
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
"""Size of logits made at once: enough rows for one reading of the output embedding to pay."""
BLOCK_BYTES = {"cpu": 2**20, "cuda": 2**26}
"""Size of float32 logits that torch reduces at once: what stays in a core's cache."""
LOG2_E = 1 / math.log(2)
LEAST = -200.0
"""Logits this far below the largest, in bits, weigh nothing in float32, −∞ among them."""
TOLERANCE = 1e-4
"""How far the kernel may be from torch, nats, to be trusted."""


def token_statistics(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """logp, mean and std of each row, float32, from one exponential per logit.

    With l = (logits − max) log₂ e and Z = Σ 2^l: log₂ p_v = l_v − log₂ Z, so that mean = (Σ l 2^l)/Z − log₂ Z, and the
    variance, which no shift changes, is (Σ l² 2^l)/Z − ((Σ l 2^l)/Z)²; all in bits until the end, since 2^l is the
    cheapest exponential. A second pass around the mean would cost as much again; l is relative to the maximum, so
    what cancels is of the size of the spread itself. A logit of −∞ (a token of probability zero) adds nothing.

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
    """What turns logits into statistics there: the fused kernel where it compiles and agrees with torch, else torch.

    Where a card has to do without, one line on stderr says so.

    Args:
        device: where the logits are.
        dtype: of the logits.
        vocabulary: V.

    Raises:
        torch.OutOfMemoryError: if there is no memory for two rows of logits.
    """
    if device.type != "cuda":
        return token_statistics
    why = "Triton is not installed"
    if find_spec("triton") is not None:
        try:
            why = _disagreement(device, dtype, vocabulary)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever compiler or driver may lack; torch does the same, more slowly
            why = first_line(error)
    if not why:
        from fsd.scoring import triton_kernel as fused

        return fused.token_statistics
    print(f"statistics are made by torch, without the fused kernel: {why}", file=sys.stderr)
    return token_statistics


def _disagreement(device: torch.device, dtype: torch.dtype, vocabulary: int) -> str:
    """What is wrong with the kernel's numbers on that device; empty if nothing is."""
    from fsd.scoring import triton_kernel as fused

    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(2, vocabulary, generator=generator)).to(device, dtype)
    target = torch.tensor([0, vocabulary - 1], device=device)
    ours = fused.token_statistics(logits, target)
    apart = float((ours - token_statistics(logits.float().clone(), target)).abs().max())
    return "" if apart <= TOLERANCE else f"its numbers are {apart:.1e} nats away"


class Reduction:
    """Hidden states → statistics, a chunk of tokens at a time, in one piece of memory used again and again.

    Fresh memory for every chunk of logits would cost as much as the statistics themselves.

    Args:
        head: the output embedding; None if the states are logits already.
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
        for piece, wanted in zip(states.split(rows), target.split(rows), strict=True):
            logits = self._logits(piece)
            parts.append(self._reduce(logits, wanted.to(logits.device)))
        return torch.cat(parts, dim=1)

    def _reduce(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        statistics = statistics_for(logits.device, logits.dtype, logits.shape[-1])
        if statistics is not token_statistics:
            return statistics(logits, target)
        kind = logits.device.type
        block = max(1, BLOCK_BYTES.get(kind, BLOCK_BYTES["cuda"]) // (4 * logits.shape[-1]))
        pairs = zip(logits.split(block), target.split(block), strict=True)
        return torch.cat([statistics(some, ids) for some, ids in pairs], dim=1)

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
