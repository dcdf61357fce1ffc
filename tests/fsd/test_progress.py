"""Stages and bars: they move on a terminal, and are plain lines elsewhere."""

import io
import re
import sys

import pytest

from fsd.progress import progress, stage


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stderr: io.StringIO, monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    for name, value in {"TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    with stage("[1/2] scoring: base"), progress(3, "texts", "text") as bar, progress(2, "within", "token"):
        bar.update(3)
    with stage("[1/2] scoring: base", again=True):
        pass
    return stderr.getvalue()


def test_on_a_terminal_stages_have_a_clock_and_bars_stay_but_for_those_within_others(monkeypatch):
    written = shown(Terminal(), monkeypatch)
    assert re.search(r"\[1/2\] scoring: base  00:00 *\n$", written)
    assert re.search(r"\[1/2\] scoring · texts  3 texts .*\n", written)
    assert "within" not in written
    assert written.count("\n") >= 2


@pytest.mark.parametrize(
    ("stderr", "environment"), [(io.StringIO, {}), (Terminal, {"TERM": "dumb"}), (Terminal, {"JPY_PARENT_PID": "1"})]
)
def test_a_pipe_a_simple_terminal_and_a_notebook_get_one_plain_line_a_stage(stderr, environment, monkeypatch):
    assert shown(stderr(), monkeypatch, **environment) == "[1/2] scoring: base\n"


def test_a_log_gets_a_line_from_time_to_time(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress(3, "texts", "text") as bar:
        bar.update(2)
        bar.refresh()
        monkeypatch.setattr("fsd.progress.EVERY", 0.0)
        bar.refresh()
    assert re.fullmatch(r"texts  2 of 3 texts, 00:00, \S+ left\n", log.getvalue())
