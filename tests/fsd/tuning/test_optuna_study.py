"""Studies on an invented task: nothing here reads a text."""

import multiprocessing
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import optuna
import pytest

from fsd.config import FSDConfig, TuneConfig
from fsd.errors import UsageError
from fsd.search_space import Choice, Range
from fsd.tuning import optuna_study
from fsd.tuning.objective import key_of, settings_of
from fsd.tuning.optuna_study import FINISHED, MAX_FAILURES, create_study, open_storage, search

GRID = {"x": Range(0.1, 1.0, step=0.1), "flag": Choice((True, False))}
WIDE = {"x": Range(0.1, 10.0, log=True), "n": Range(1, 5)}
several_threads = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
"""One thread restores the filters of warnings while another still needs its own; commands are processes."""


def settings(storage, sampler="tpe", *, seed=0, long_trials=False, pruner="none", **more):
    tune = "adapter" if long_trials else "detectors"
    return TuneConfig(base_run=FSDConfig(seed=seed), tune=tune, storage=storage, sampler=sampler, pruner=pruner, **more)


class Hill:
    """Highest at x = .7 and flag or n = 3; picklable."""

    label = "hill"

    def __init__(self, space=GRID, wait=0.0):
        self.space, self.wait, self.evaluated = space, wait, 0

    @property
    def default(self):
        return dict.fromkeys(self.space, 1)

    def evaluate(self, settings, report):
        self.evaluated += 1
        time.sleep(self.wait)
        height = -((settings["x"] - 0.7) ** 2) - 0.1 * abs(settings.get("n", 3) - 3) + 0.1 * settings.get("flag", 0)
        return np.array([height, height + 0.01])


def different(trials):
    return {key_of(settings_of(trial)) for trial in trials}


@pytest.fixture
def storage(tmp_path):
    """A journal, whose trials are written faster than a database's."""
    return f"journal:{tmp_path}/trials.log"


@pytest.fixture
def database(tmp_path):
    return f"sqlite:///{tmp_path}/optuna.db"


def test_a_small_space_is_searched_exhaustively_and_each_cell_once(database):
    trials = search(Hill(), "s", {}, settings(database, trials=50))
    assert len(trials) == len(different(trials)) == 20
    best = max(trials, key=lambda t: t.value)
    assert settings_of(best) == {"x": 0.7, "flag": True}
    assert best.value == pytest.approx(0.105)
    assert best.user_attrs["folds"] == pytest.approx((0.1, 0.11))


def test_a_wide_space_is_sampled_within_its_bounds(storage):
    for sampler in ("tpe", "random"):
        trials = search(Hill(WIDE), sampler, {}, settings(storage, sampler, trials=15))
        assert len(trials) == len({t.params["x"] for t in trials}) == 15
        assert all(0.1 <= t.params["x"] <= 10 and t.params["n"] in range(1, 6) for t in trials)


def test_a_study_continues_with_the_trials_that_an_uninterrupted_one_has(storage, database):
    first = search(Hill(WIDE), "s", {}, settings(storage, trials=6, seed=5))
    again = Hill(WIDE)
    assert search(again, "s", {}, settings(storage, trials=6, seed=5)) == first
    assert again.evaluated == 0
    more = search(again, "s", {}, settings(storage, trials=10, seed=5))
    assert more[:6] == first
    assert again.evaluated == 4
    uninterrupted = search(Hill(WIDE), "s", {}, settings(database, trials=10, seed=5))
    assert [t.user_attrs for t in more] == [t.user_attrs for t in uninterrupted]


def test_other_settings_under_the_same_name_are_refused(storage):
    search(Hill(), "s", {"objective": "auc", "folds": 5}, settings(storage))
    message = r"'s' must be continued .*objective: begun with auc, got tpr.*another --study"
    with pytest.raises(UsageError, match=message):
        search(Hill(), "s", {"objective": "tpr", "folds": 5}, settings(storage))


def test_a_storage_out_of_reach_is_refused_in_one_line_without_its_password(tmp_path):
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "text.db").write_text("no database, but long enough to be read as one" * 50)
    for url in ("sqlite:///{}/file/optuna.db", "sqlite:///{}/text.db", "nonsense", "nosuchdatabase://host/name",
                "journal:{}/file/x.log", "sqlite:///{}/mlflow.db", "journal:{}/rows.jsonl"):  # fmt: skip
        with pytest.raises(UsageError, match=r"^storage must be [^\n]*$"):
            search(Hill(), "s", {}, settings(url.format(tmp_path)))
    for prefix in ("sqlite:///", "journal:"):
        with pytest.raises(UsageError, match=r"storage must be .*there is no folder .*nowhere"):
            open_storage(f"{prefix}{tmp_path}/nowhere/trials")
    with pytest.raises(UsageError, match=r"got 'postgresql://user:\*\*\*@localhost:1/name'") as error:
        open_storage("postgresql://user:secret@localhost:1/name")
    assert "secret" not in str(error.value)


@several_threads
def test_several_threads_create_a_database_at_the_same_time(database):
    with ThreadPoolExecutor(6) as pool:
        studies = pool.map(lambda _: create_study("s", {"seed": 1, "objective": "auc"}, database), range(6))
        assert {study.study_name for study in studies} == {"s"}
    assert optuna.load_study(study_name="s", storage=database).metric_names == ["auc"]


def test_a_study_that_only_fails_stops_with_the_reason(storage):
    class Broken(Hill):
        def evaluate(self, settings, report):
            self.evaluated += 1
            raise UsageError("the loss must stay finite")

    task = Broken(WIDE)
    with pytest.raises(UsageError, match=r"at least one trial.*the loss must stay finite"):
        search(task, "s", {}, settings(storage, trials=50, long_trials=True))
    assert task.evaluated == MAX_FAILURES


def test_a_study_that_only_fails_stops_also_beside_trials_that_other_workers_have_begun(storage):
    class Broken(Hill):
        def evaluate(self, settings, report):
            self.evaluated += 1
            if self.evaluated > 2 * MAX_FAILURES:
                pytest.fail("it goes on for ever")
            optuna.load_study(study_name="s", storage=open_storage(storage)).ask()
            raise UsageError("the loss must stay finite")

    task = Broken(WIDE)
    with pytest.raises(UsageError, match="at least one trial"):
        search(task, "s", {}, settings(storage, trials=50, long_trials=True))
    assert task.evaluated == MAX_FAILURES


def test_a_trial_that_is_behind_is_pruned_between_stages(storage):
    class Staged(Hill):
        def evaluate(self, settings, report):
            self.evaluated += 1
            for step in (1, 2, 3):
                report(-float(self.evaluated), step)  # each trial is worse than all before
            return np.array([-float(self.evaluated)])

    for name in ("median", "hyperband"):
        trials = search(Staged(WIDE), name, {}, settings(storage, trials=8, pruner=name, long_trials=True))
        assert len(trials) == 8
        if name == "median":
            assert [t.state.name for t in trials] == ["COMPLETE"] * 5 + ["PRUNED"] * 3
            assert "folds" not in trials[-1].user_attrs


def test_no_trial_starts_after_the_timeout(storage):
    with pytest.raises(UsageError, match="the time was up before"):
        search(Hill(), "s", {}, settings(storage, timeout=0.0))


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from test_optuna_study import Hill, WIDE, settings
from fsd.tuning.optuna_study import search

search(Hill(WIDE, wait=0.05), "s", {{}}, settings({storage!r}, trials=30))
"""


def start(storage):
    script = textwrap.dedent(SCRIPT.format(tests=str(Path(__file__).parent), storage=storage))
    return subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[3], stderr=subprocess.DEVNULL)


def finished(storage):
    try:
        return [t for t in optuna.load_study(study_name="s", storage=storage).trials if t.state.name == "COMPLETE"]
    except Exception:
        return []


@pytest.mark.slow
def test_after_a_kill_no_finished_trial_is_lost_and_none_is_repeated(database):
    process = start(database)
    deadline = time.monotonic() + 60
    while len(finished(database)) < 8 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.kill()
    process.wait()
    before = {t.number: t.params for t in finished(database)}
    assert 8 <= len(before) < 30
    task = Hill(WIDE)
    after = search(task, "s", {}, settings(database, trials=30))
    assert len(after) == 30
    assert task.evaluated == 30 - len(before)
    assert {t.number: t.params for t in after if t.number in before} == before


def test_an_interrupted_grid_is_completed(storage):
    class Interrupted(Hill):
        def evaluate(self, settings, report):
            if self.evaluated == 7:
                raise KeyboardInterrupt
            return super().evaluate(settings, report)

    with pytest.raises(KeyboardInterrupt):
        search(Interrupted(), "s", {}, settings(storage))
    task = Hill()
    trials = search(task, "s", {}, settings(storage))
    assert len(trials) == len(different(trials)) == 20
    assert task.evaluated == 13


def test_the_grid_cell_of_a_killed_process_is_evaluated_at_the_end(storage):
    class Killed(Hill):
        def evaluate(self, settings, report):
            if self.evaluated == 7:
                raise SystemExit
            return super().evaluate(settings, report)

    with pytest.raises(SystemExit):
        search(Killed(), "s", {}, settings(storage))
    task = Hill()
    trials = search(task, "s", {}, settings(storage))
    assert len(different(trials)) == 20
    assert task.evaluated == 13


@several_threads
def test_commands_that_share_a_study_evaluate_all_of_it(storage):
    for name, space, sampler in (("grid", GRID, "tpe"), ("wide", WIDE, "tpe"), ("random", WIDE, "random")):
        tasks = [Hill(space, wait=0.01), Hill(space, wait=0.01)]
        with ThreadPoolExecutor(2) as pool:
            given = settings(storage, sampler, trials=20)
            list(pool.map(lambda task, name=name, given=given: search(task, name, {}, given), tasks))
        trials = optuna.load_study(study_name=name, storage=open_storage(storage)).get_trials(states=FINISHED)
        assert all(task.evaluated for task in tasks)
        assert len(different(trials)) >= 20
        # Both may begin the last one at the same moment.
        assert len(trials) <= 21


@pytest.mark.slow
def test_four_workers_share_a_study_on_postgresql(postgres):
    trials = search(Hill(WIDE, wait=0.02), "s", {}, settings(postgres("workers"), workers=4, trials=40))
    assert len(trials) >= 40
    assert [t.number for t in trials] == sorted({t.number for t in trials})
    assert len({t.params["x"] for t in trials}) == len(trials)  # no worker repeats the draws of another
    assert max(t.value for t in trials) > -0.05


def test_a_missing_driver_is_named_and_a_database_that_is_being_created_is_opened_again(monkeypatch):
    from sqlalchemy.exc import IntegrityError

    missing = ModuleNotFoundError("No module named 'psycopg'", name="psycopg")
    busy = IntegrityError("CREATE TABLE", {}, Exception("duplicate key value pg_type_typname_nsp_index"))
    replies = [missing, busy, "open"]

    def open_once(*_, **__):
        if isinstance(result := replies.pop(0), Exception):
            raise result
        return result

    monkeypatch.setattr(optuna_study, "RDBStorage", open_once)
    with pytest.raises(UsageError, match=r"No module named 'psycopg': pip install 'fsd\[postgres\]'"):
        open_storage("postgresql+psycopg://host/x")
    assert open_storage("postgresql://host/x") == "open"


@pytest.mark.slow
@pytest.mark.usefixtures("default_signals")
def test_workers_end_with_their_command(database, monkeypatch):
    def interrupted(jobs):
        deadline = time.monotonic() + 60
        while not finished(database) and time.monotonic() < deadline:
            time.sleep(0.1)
        raise KeyboardInterrupt
        yield from jobs

    monkeypatch.setattr(optuna_study, "as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search(Hill(WIDE, wait=0.2), "s", {}, settings(database, workers=2, trials=1000))
    assert multiprocessing.active_children() == []
    assert 0 < len(finished(database)) < 100
