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


@triton.jit
def _read(start, place, width):  # type: ignore[no-untyped-def]
    """The logits at some places of a row, −∞ beyond its end."""
    return tl.load(start + place, mask=place < width, other=float("-inf")).to(tl.float32)


@triton.jit
def _bounded(x, least):  # type: ignore[no-untyped-def]
    # Without propagation a logit that is no number would give finite statistics, which look like any others.
    return tl.maximum(x, least, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _deviation(variance):  # type: ignore[no-untyped-def]
    """The standard deviation in nats of a variance in bits."""
    std = tl.sqrt(_bounded(variance, 0.0))
    return _bounded(std / LOG2_E, FLOOR)


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    logits, target, out, rows, stride, width: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)  # rows times vocabulary can exceed 32 bits
    start = logits + row * stride
    lane = tl.arange(0, block)
    largest = LOWEST
    total = 0.0
    mean_sum = 0.0
    square_sum = 0.0
    for begin in range(0, width, block):
        x = _read(start, begin + lane, width)
        grown = tl.maximum(largest, tl.max(x, 0))
        d = tl.maximum((largest - grown) * LOG2_E, LEAST)
        shrink = tl.exp2(d)
        bits = _bounded((x - grown) * LOG2_E, LEAST)
        weight = tl.exp2(bits)
        square_sum = shrink * (square_sum + 2 * d * mean_sum + d * d * total)
        square_sum += tl.sum(bits * bits * weight, 0)
        mean_sum = shrink * (mean_sum + d * total)
        mean_sum += tl.sum(bits * weight, 0)
        total = shrink * total + tl.sum(weight, 0)
        largest = grown
    hit = (tl.load(start + tl.load(target + row)).to(tl.float32) - largest) * LOG2_E
    log_total = tl.log2(total)
    mean = mean_sum / total
    std = _deviation(square_sum / total - mean * mean)
    tl.store(out + row, (hit - log_total) / LOG2_E)
    tl.store(out + rows + row, (mean - log_total) / LOG2_E)
    tl.store(out + 2 * rows + row, std)
    tl.store(out + 3 * rows + row, -log_total / LOG2_E)


def _check_rows(logits: Tensor) -> None:
    """Refuse logits whose rows a kernel cannot read as they lie."""
    stride = logits.stride(1)
    if stride != 1:
        raise ValueError(f"the logits of a row must be contiguous; got a stride of {stride}")


def token_statistics(logits: Tensor, target: Tensor) -> Tensor:
    """As `model_scorer.token_statistics`, of (n, V) logits on a GPU, contiguous in a row; NaN gives NaN."""
    _check_rows(logits)
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
        place = begin + lane
        x = _read(start, place, width)
        y = _read(reference_start, place, reference_width)
        top = tl.max(x, 0)
        likeliest = tl.where(top > largest, begin + tl.argmax(x, 0), likeliest)
        largest = tl.maximum(largest, top)
        reference_largest = tl.maximum(reference_largest, tl.max(y, 0))
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
    mean_sum = 0.0
    square_sum = 0.0
    reference_sum = 0.0
    for begin in range(0, longest, block):
        place = begin + lane
        x = _read(start, place, width)
        y = _read(reference_start, place, reference_width)
        bits = _bounded((x - largest) * LOG2_E, LEAST)
        reference_bits = _bounded((y - reference_largest) * LOG2_E, LEAST)
        weight = tl.exp2(bits)
        reference_weight = tl.exp2(reference_bits)
        total += tl.sum(weight, 0)
        reference_total += tl.sum(reference_weight, 0)
        # Ids that one model alone has are left out of the expectations.
        shared = place < common
        weight = tl.where(shared, weight, 0.0)
        reference_weight = tl.where(shared, reference_weight, 0.0)
        difference = bits - reference_bits - origin
        common_total += tl.sum(weight, 0)
        common_reference_total += tl.sum(reference_weight, 0)
        mean_sum += tl.sum(weight * difference, 0)
        square_sum += tl.sum(weight * difference * difference, 0)
        reference_sum += tl.sum(reference_weight * difference, 0)
    shift = origin + tl.log2(reference_total) - tl.log2(total)
    mean = mean_sum / common_total
    std = _deviation(square_sum / common_total - mean * mean)
    tl.store(out + row, (mean + shift) / LOG2_E)
    tl.store(out + rows + row, std)
    tl.store(out + 2 * rows + row, (reference_sum / common_reference_total + shift) / LOG2_E)


def pair_moments(logits: Tensor, reference: Tensor) -> Tensor:
    """As `pair_scorer.pair_moments`, of (n, V) logits of two models on a GPU, contiguous in a row, which are kept.

    The rows are read twice, the second time from the cache of the GPU: first for the largest logits, then for the sums.
    """
    _check_rows(logits)
    _check_rows(reference)
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
