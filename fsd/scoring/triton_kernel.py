"""Statistics of logits in one pass: Triton kernels for GPUs.

In `token_statistics` one program reads one row, a block at a time, and accumulates the sums of
`model_scorer.token_statistics` relative to the largest logit so far; when that grows from m to m', every l becomes
l + d with d = (m − m') log₂ e, so that

    Z' = 2^d Z,    A' = 2^d (A + d Z),    B' = 2^d (B + 2 d A + d² Z)

for Z = Σ 2^l, A = Σ l 2^l and B = Σ l² 2^l (Milakov and Gimelshein 2018, arXiv:1805.02867, for Z alone).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fsd.token_stats import STD_FLOOR

# Logits of a row that are read at once.
BLOCK = 4096
LOG2_E = tl.constexpr(1.4426950408889634)
# Lower bound of logits relative to the largest, in bits; below it, their weight in float32 is zero.
LEAST = tl.constexpr(-200.0)
# Below any finite logit. An infinite one would make the first difference of two largest logits no number.
LOWEST = tl.constexpr(-1e38)
FLOOR = tl.constexpr(STD_FLOOR)


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(logits, target, out, rows, stride, width: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)  # rows times vocabulary can exceed 32 bits
    start = logits + row * stride
    lane = tl.arange(0, block)
    largest = LOWEST
    total, first, second = 0.0, 0.0, 0.0
    for begin in range(0, width, block):
        x = tl.load(start + begin + lane, mask=begin + lane < width, other=float("-inf")).to(tl.float32)
        grown = tl.maximum(largest, tl.max(x, 0))
        d = tl.maximum((largest - grown) * LOG2_E, LEAST)
        shrink = tl.exp2(d)
        # Without propagation a logit that is no number would give finite statistics, which look like any others.
        bits = tl.maximum((x - grown) * LOG2_E, LEAST, propagate_nan=tl.PropagateNan.ALL)
        weight = tl.exp2(bits)
        second = shrink * (second + 2 * d * first + d * d * total) + tl.sum(bits * bits * weight, 0)
        first = shrink * (first + d * total) + tl.sum(bits * weight, 0)
        total = shrink * total + tl.sum(weight, 0)
        largest = grown
    hit = (tl.load(start + tl.load(target + row)).to(tl.float32) - largest) * LOG2_E
    log_total = tl.log2(total)
    mean = first / total
    std = tl.sqrt(tl.maximum(second / total - mean * mean, 0.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + row, (hit - log_total) / LOG2_E)
    tl.store(out + rows + row, (mean - log_total) / LOG2_E)
    tl.store(out + 2 * rows + row, tl.maximum(std / LOG2_E, FLOOR, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 3 * rows + row, -log_total / LOG2_E)


def token_statistics(logits: Tensor, target: Tensor) -> Tensor:
    """As `model_scorer.token_statistics`, of (n, V) logits on a GPU, contiguous in a row; NaN gives NaN."""
    if logits.stride(1) != 1:
        raise ValueError(f"the logits of a row must be contiguous; got a stride of {logits.stride(1)}")
    rows, width = logits.shape
    out = torch.empty((4, rows), dtype=torch.float32, device=logits.device)
    block = min(BLOCK, triton.next_power_of_2(width))
    # Triton launches on the current device, which need not be that of the logits.
    with torch.cuda.device_of(logits):
        _kernel[(rows,)](logits, target, out, rows, logits.stride(0), width=width, block=block, num_warps=8)
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _pair_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0915 - a kernel is one function
    logits,
    reference,
    out,
    rows,
    stride,
    reference_stride,
    width: tl.constexpr,
    reference_width: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * stride
    reference_start = reference + row * reference_stride
    lane = tl.arange(0, block)
    common = tl.minimum(width, reference_width)
    longest = tl.maximum(width, reference_width)
    largest = LOWEST
    reference_largest = LOWEST
    likeliest = 0
    for begin in range(0, longest, block):
        x = tl.load(start + begin + lane, mask=begin + lane < width, other=float("-inf")).to(tl.float32)
        y = tl.load(reference_start + begin + lane, mask=begin + lane < reference_width, other=float("-inf"))
        top = tl.max(x, 0)
        likeliest = tl.where(top > largest, begin + tl.argmax(x, 0), likeliest)
        largest = tl.maximum(largest, top)
        reference_largest = tl.maximum(reference_largest, tl.max(y.to(tl.float32), 0))
    # Differences are taken from that of the likeliest token: where p is nearly certain of it, the spread is far smaller
    # than the mean, and would be lost in rounding.
    likeliest = tl.minimum(likeliest, common - 1)
    top_bits = (tl.load(start + likeliest).to(tl.float32) - largest) * LOG2_E
    reference_top_bits = (tl.load(reference_start + likeliest).to(tl.float32) - reference_largest) * LOG2_E
    origin = tl.maximum(top_bits, LEAST) - tl.maximum(reference_top_bits, LEAST)
    total = 0.0
    reference_total = 0.0
    common_total = 0.0
    common_reference_total = 0.0
    first = 0.0
    second = 0.0
    reference_first = 0.0
    for begin in range(0, longest, block):
        x = tl.load(start + begin + lane, mask=begin + lane < width, other=float("-inf")).to(tl.float32)
        y = tl.load(reference_start + begin + lane, mask=begin + lane < reference_width, other=float("-inf"))
        bits = tl.maximum((x - largest) * LOG2_E, LEAST, propagate_nan=tl.PropagateNan.ALL)
        y = (y.to(tl.float32) - reference_largest) * LOG2_E
        reference_bits = tl.maximum(y, LEAST, propagate_nan=tl.PropagateNan.ALL)
        weight = tl.exp2(bits)
        reference_weight = tl.exp2(reference_bits)
        total += tl.sum(weight, 0)
        reference_total += tl.sum(reference_weight, 0)
        # Ids that one model alone has are left out of the expectations.
        weight = tl.where(begin + lane < common, weight, 0.0)
        reference_weight = tl.where(begin + lane < common, reference_weight, 0.0)
        difference = bits - reference_bits - origin
        common_total += tl.sum(weight, 0)
        common_reference_total += tl.sum(reference_weight, 0)
        first += tl.sum(weight * difference, 0)
        second += tl.sum(weight * difference * difference, 0)
        reference_first += tl.sum(reference_weight * difference, 0)
    shift = origin + tl.log2(reference_total) - tl.log2(total)
    mean = first / common_total
    variance = second / common_total - mean * mean
    std = tl.sqrt(tl.maximum(variance, 0.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + row, (mean + shift) / LOG2_E)
    tl.store(out + rows + row, tl.maximum(std / LOG2_E, FLOOR, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 2 * rows + row, (reference_first / common_reference_total + shift) / LOG2_E)


def pair_moments(logits: Tensor, reference: Tensor) -> Tensor:
    """As `pair_scorer.pair_moments`, of (n, V) logits of two models on a GPU, contiguous in a row, which are kept.

    The rows are read twice, the second time from the cache of the GPU: first for the largest logits, then for the sums.
    """
    for tensor in (logits, reference):
        if tensor.stride(1) != 1:
            raise ValueError(f"the logits of a row must be contiguous; got a stride of {tensor.stride(1)}")
    rows, width = logits.shape
    reference_width = reference.shape[1]
    out = torch.empty((3, rows), dtype=torch.float32, device=logits.device)
    block = min(BLOCK, triton.next_power_of_2(max(width, reference_width)))
    with torch.cuda.device_of(logits):
        _pair_kernel[(rows,)](
            logits,
            reference,
            out,
            rows,
            logits.stride(0),
            reference.stride(0),
            width=width,
            reference_width=reference_width,
            block=block,
            num_warps=8,
        )
    return out
