import numpy as np
import pytest

from fsd.data import splitting as drawing


def test_fill_by_hand() -> None:
    # 3 brings 5 down to 2; 3 more would miss by 1 instead of 2, and is taken; 4 would miss by more
    assert drawing.fill([(3, 0), (3, 0), (4, 0)], (5, 0)) == [True, True, False]
    assert drawing.fill([(1, 1), (0, 2)], (0, 2)) == [True, False]
    assert drawing.fill([], (1, 1)) == []


def test_hold_out_keeps_families_whole_and_the_mix() -> None:
    member = [i % 2 == 0 for i in range(40)]
    family = [i // 4 for i in range(40)]
    held = drawing.hold_out(member, family, 0.3, np.random.default_rng(0))
    assert all(len({held[i] for i in range(40) if family[i] == f}) == 1 for f in range(10))
    assert [sum(h and m is side for h, m in zip(held, member, strict=True)) for side in (True, False)] == [6, 6]


def test_hold_out_ignores_numbers_of_absent_families() -> None:
    held = drawing.hold_out([True, False], [7, 9], 0.5, np.random.default_rng(0))
    assert len(held) == 2
    assert drawing.hold_out([], [], 0.5, np.random.default_rng(0)) == []


@pytest.mark.parametrize("seed", range(5))
def test_reserved_is_disjoint_by_family(seed: int) -> None:
    member = [i % 3 == 0 for i in range(60)]
    family = [i // 5 for i in range(60)]
    part = drawing.reserved(member, family, 0.25, 0.25, np.random.default_rng(seed))
    assert len({(f, p) for f, p in zip(family, part, strict=True)}) == 12
    assert set(part) == {"unseen", "validation", "test"}
