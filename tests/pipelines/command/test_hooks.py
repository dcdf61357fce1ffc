"""Hooks of somebody's extension: before the model, files of a run, after the answer, and a way to compute."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from fsd import plugs, tracking
from fsd.config import DetectorConfig, ModelConfig, ScoreConfig
from fsd.errors import UsageError
from fsd.reporting.report import Report
from pipelines.command import commands
from pipelines.command.cli import command
from pipelines.command.deliver import deliver, tracked_run
from pipelines.command.job import Job
from pipelines.score import job as score


@dataclass(frozen=True)
class Words:
    words: tuple[str, ...] = ()
    """Any."""


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module that an extension names, alone of all."""
    module = SimpleNamespace(
        before=lambda *_: None,
        files=lambda command, settings: {"asked.json": [command, *settings["words"]]},
        after=lambda *_: [],
        compute=lambda work: None,
    )
    monkeypatch.setitem(sys.modules, "somebody", module)
    sockets = {name: f"somebody:{name}" for name in vars(module)}
    for place in (plugs, commands):
        monkeypatch.setattr(place, "plugs", lambda: (plugs.Plug(commands={"x": ASKS}, **sockets),))
    plugs.filled.cache_clear()
    yield module
    plugs.filled.cache_clear()


ASKS = plugs.Command("a question", "somebody", "asks a model", plugs.Evidence({"auc": "area under the ROC curve"}))


def work(config: Words) -> None:
    with tracked_run(config, "fsd-x", "run") as run:
        deliver(Report(headline="answer", numbers={"auc": 0.7}), run)


def test_a_command_asks_what_stands_around_its_answer(hooks, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fsd x", "--words", "a", "--fail-if", "auc > .5"])
    seen = []
    hooks.before = lambda name, settings, asked: seen.append((name, settings, asked["fail_if"], asked["dry_run"]))
    hooks.after = lambda name, numbers, asked: [f"{asked['fail_if'][0]}: it is {numbers['auc']}"] if numbers else []
    with pytest.raises(SystemExit) as ended:
        command(Words, lambda config: Job(partial(work, config), {}, experiment="fsd-x"), "x")
    assert ended.value.code == 1
    assert capsys.readouterr().err.endswith("failed: auc > .5: it is 0.7\n")
    assert seen == [("x", {"words": ("a",)}, ("auc > .5",), False)]
    (run,) = tracking.find_runs("fsd-x")
    assert run.tags["gate"] == "auc > .5: it is 0.7"
    assert json.loads(tracking.fetch_artifact(run.id, "asked.json").read_text()) == ["x", "a"]


def test_what_a_hook_refuses_is_refused_before_the_work(hooks, monkeypatch, capsys) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("words must be few")

    monkeypatch.setattr(sys, "argv", ["fsd x"])
    hooks.before = refuse
    with pytest.raises(SystemExit) as ended:
        command(Words, lambda _: Job(lambda: pytest.fail("the work was begun"), {}), "x")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: words must be few\n"


def test_an_extension_may_compute_the_rows_of_a_command(hooks) -> None:
    own = Job(lambda: None, {})
    taken = []
    hooks.compute = lambda work: taken.append(work) or own
    config = ScoreConfig(
        data=("rows.jsonl",), out="folder", model=ModelConfig(model="m"), detection=DetectorConfig(detectors="loss")
    )
    assert score.prepare(config) is own
    (given,) = taken
    assert (given.command, given.places, given.module) == ("score", ("rows.jsonl",), "pipelines.score.job")
    assert not any(given.together.values())
