"""Which part of a split each text falls into, drawn from labels and families alone.

Below, `member` says of each text whether it is a member, and `family` gives the number of its family: texts that
must not be torn apart.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fsd.token_stats import FloatArray


def fill(sizes: Iterable[Sequence[float]], target: Sequence[float]) -> list[bool]:
    """Go through families in order and take each that brings the sum of their sizes closer to the target.

    Args:
        sizes: (members, non-members) of each family.
        target: (members, non-members) wanted.
    """
    missing = np.asarray(target, np.float64)
    taken = []
    for size in np.asarray(sizes, np.float64):
        closer = bool(((missing - size) ** 2).sum() < (missing**2).sum())
        taken.append(closer)
        missing = missing - size * closer
    return taken


def _sizes(member: Sequence[bool], family: Sequence[int]) -> FloatArray:
    """(members, non-members) of each family."""
    sizes = np.zeros((max(family, default=-1) + 1, 2))
    for is_member, number in zip(member, family, strict=True):
        sizes[number, 0 if is_member else 1] += 1
    return sizes


def hold_out(member: Sequence[bool], family: Sequence[int], share: float, rng: np.random.Generator) -> list[bool]:
    """Whether each text is held out: whole families, about that share of both classes."""
    sizes = _sizes(member, family)
    order = rng.permutation(np.flatnonzero(sizes.sum(1)))
    taken = set(order[fill(sizes[order], share * sizes.sum(0))].tolist())
    return [number in taken for number in family]


def grouped(
    member: Sequence[bool], family: Sequence[int], unseen: float, validation: float, rng: np.random.Generator
) -> list[str]:
    """`unseen` is a share of the non-members, in families without a member; the rest is divided with one mix."""
    sizes = _sizes(member, family)
    order = rng.permutation(len(sizes))
    part = np.full(len(sizes), "test", dtype=object)

    free = order[sizes[order, 0] == 0]
    part[free[fill(sizes[free], (0, unseen * sizes[:, 1].sum()))]] = "unseen"
    rest = order[part[order] == "test"]
    share = validation / (1 - unseen)
    part[rest[fill(sizes[rest], share * sizes[rest].sum(0))]] = "validation"
    return [part[number] for number in family]


def paper(member: Sequence[bool], unseen: float, validation: float, rng: np.random.Generator) -> list[str]:
    """Rows at random, families torn; the members among the `unseen` share of the rows are "dropped"."""
    order = rng.permutation(len(member))
    first = round(unseen * len(member))
    second = first + round(validation * len(member))
    part = np.full(len(member), "test", dtype=object)
    part[order[first:second]] = "validation"
    for row in order[:first]:
        part[row] = "dropped" if member[row] else "unseen"
    return list(part)


def reserved(
    member: Sequence[bool], family: Sequence[int], share: float, validation: float, rng: np.random.Generator
) -> list[str]:
    """`share` of both classes is "unseen", in whole families of any kind; the rest is divided with one mix."""
    first = hold_out(member, family, share, rng)
    rest = [i for i, taken in enumerate(first) if not taken]
    held = hold_out([member[i] for i in rest], [family[i] for i in rest], validation / (1 - share), rng)
    part = ["unseen"] * len(member)
    for i, second in zip(rest, held, strict=True):
        part[i] = "validation" if second else "test"
    return part
