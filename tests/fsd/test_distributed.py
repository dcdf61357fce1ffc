"""Collective calls: what a single process gets, and what each of two gets."""

import pytest

from fsd import distributed


def test_a_single_process_is_the_main_one(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "1")  # left over from another job
    distributed.join()
    assert distributed.num_processes() == 1
    assert distributed.is_main_process()
    assert distributed.from_main(lambda: 3) == 3
    assert distributed.gather(3) == [3]
    distributed.leave()


@pytest.mark.parametrize(("size", "rank"), [(None, "-1"), ("", "")])
def test_without_a_launcher_a_rank_means_nothing(size, rank, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("RANK", rank)
    assert distributed.num_processes() == 1
    assert distributed.is_main_process()


def test_what_the_main_process_does_alone_waits_for_no_other(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "0")
    with distributed.alone():
        assert distributed.num_processes() == 1
        assert distributed.from_main(lambda: 3) == 3
    assert distributed.num_processes() == 4
