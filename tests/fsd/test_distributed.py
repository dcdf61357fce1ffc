"""Collective calls: what a single process gets, and what each of two gets."""

import pytest

from fsd import distributed


def test_a_single_process_is_the_main_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "1")  # left over from another job
    distributed.join()
    assert distributed.num_processes() == 1
    assert distributed.is_main_process()
    assert distributed.from_main(lambda: 3) == 3
    assert distributed.gather(3) == [3]
    distributed.leave()
