"""Collective calls: what a single process gets, and what each of two gets."""

import os
import pathlib
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from fsd import distributed
from fsd.distributed import unpickled
from fsd.errors import UsageError
from fsd.scoring.model_scorer import Window
from fsd.token_stats import Marked, Prompt, TokenStats


def test_a_single_process_is_the_main_one(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "1")  # left over from another job
    distributed.join()
    assert distributed.num_processes() == 1
    assert distributed.is_main_process()
    assert distributed.from_main(lambda: 3) == 3
    assert distributed.gather(3) == [3]
    distributed.leave()


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "x"), ("WORLD_SIZE", "0"), ("RANK", "-1"), ("RANK", "1.5")])
def test_variables_of_a_launcher_must_be_numbers(name, value, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(name, value)
    with pytest.raises(
        UsageError, match=f"{name} in the environment must be a whole number of at least .; got .{value}"
    ):
        distributed.check_environment()


@pytest.mark.parametrize(("size", "rank"), [(None, "-1"), ("", "")])
def test_without_a_launcher_a_rank_means_nothing(size, rank, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("RANK", rank)
    distributed.check_environment()
    assert distributed.num_processes() == 1
    assert distributed.is_main_process()


def test_what_the_processes_exchange_comes_back():
    stats = TokenStats("a", np.array([1]), *np.ones((3, 1)))
    marked = Prompt("a", marked=Marked((1, 2), (False, True)))
    value = [Prompt("a", "b"), stats, (Window(0, 0, 2, 1), np.zeros((3, 2))), Path("x"), None, 5, "text", marked]
    for protocol in (4, 5):
        prompt, back, (window, array), *rest = unpickled(pickle.dumps(value, protocol))
        assert (prompt, window, rest) == (value[0], value[2][0], value[3:])
        assert np.array_equal(array, np.zeros((3, 2)))
        assert np.array_equal(back.logp, stats.logp)


def test_a_path_comes_back_from_python_3_13(monkeypatch):
    monkeypatch.setitem(sys.modules, "pathlib._local", pathlib)
    sent = pickle.dumps(Path("x"), 0).replace(b"cpathlib\n", b"cpathlib._local\n")
    assert unpickled(sent) == Path("x")


def test_code_that_somebody_sends_to_a_process_is_not_run(tmp_path):
    class Payload:
        def __init__(self, run, *arguments):
            self.call = run, arguments

        def __reduce__(self):
            return self.call

    for payload in (Payload(os.system, "true"), Payload(eval, "1"), Payload(Path.touch, tmp_path / "ran")):
        with pytest.raises(UsageError, match="must exchange plain values; one sent "):
            unpickled(pickle.dumps([payload]))
    assert not (tmp_path / "ran").exists()


def test_what_the_main_process_does_alone_waits_for_no_other(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "0")
    with distributed.alone():
        assert distributed.num_processes() == 1
        assert distributed.from_main(lambda: 3) == 3
    assert distributed.num_processes() == 4
