import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest

from fsd import tracking
from fsd.errors import UsageError
from fsd.tracking.store import load_mlflow

CODE = textwrap.dedent(
    """
    from pathlib import Path
    import mlflow
    import pandas as pd

    class Length(mlflow.pyfunc.PythonModel):
        def load_context(self, context):
            self.folder = Path(context.artifacts["adapter"])
            self.bias = float((self.folder.parent / "calibration.json").read_text())

        def predict(self, context, model_input: pd.DataFrame, params=None) -> pd.DataFrame:
            return pd.DataFrame({"score": [len(text) + self.bias for text in model_input["text"]]})

    mlflow.models.set_model(Length())
    """
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A fresh working folder with a space in its name, as checkouts have them."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder


@pytest.fixture
def adapter(tmp_path):
    folder = tmp_path / "trained"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"r": 4}')
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    (folder / "README.md").write_text("left behind")
    return folder


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "serving.py"
    path.write_text(CODE)
    return path


def register(adapter, code, score, name="fsd-arxiv", **tags):
    with tracking.run(name, "lora") as run:
        return tracking.register(
            run, name, adapter, code, validation_score=score, files={"calibration.json": "0.5"}, tags=tags
        )


def locations(folder):
    with sqlite3.connect(folder / "mlruns" / "mlflow.db") as db:
        return [
            value
            for table, column in (
                ("experiments", "artifact_location"),
                ("runs", "artifact_uri"),
                ("logged_models", "artifact_location"),
                ("model_versions", "storage_location"),
                ("model_versions", "source"),
            )
            for (value,) in db.execute(f"select {column} from {table}")
        ]


# --- the store


def test_importing_it_does_not_import_mlflow_or_pandas():
    program = "import sys, fsd.tracking; print([m for m in ('mlflow', 'pandas', 'filelock') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_default_store_is_in_the_working_folder_and_leaves_the_environment_alone(here):
    store = tracking.open_store()
    assert store.uri == f"sqlite:///{here}/mlruns/mlflow.db"
    assert (here / "mlruns" / "mlflow.db").is_file()
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_first_use_prints_and_warns_nothing(here):
    program = "from fsd import tracking\nwith tracking.run('fsd-x', 'a') as r: r.log_metrics({'auc/loss.base': .5})"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_several_processes_may_create_the_store_at_once(here):
    program = (
        "from fsd import tracking\n"
        "with tracking.run('fsd-x', 'a') as run: run.log_metrics({'auc/loss.base': .5}, step=1)"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(4)]
    errors = [process.communicate(timeout=100)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 4, errors
    assert len(tracking.find_runs("fsd-x")) == 4


def test_the_users_store_is_used_as_it_is(here, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here}/theirs.db")
    store = tracking.open_store()
    assert store.root is None
    assert os.environ["MLFLOW_TRACKING_URI"] == store.uri == f"sqlite:///{here}/theirs.db"
    with tracking.run("fsd-x", "a") as run:
        run.log_text("a.txt", "theirs")
    assert tracking.fetch_artifact(run.id, "a.txt").read_text() == "theirs"
    assert not (here / "mlruns" / "mlflow.db").exists()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda f: (f / "mlruns").write_text("a file"), "mlruns must be a folder that can be written; .*file exists"),
        (lambda f: (f / "mlruns/mlflow.db").mkdir(parents=True), "must be an MLflow database or server"),
    ],
)
def test_a_store_that_cannot_be_written_is_one_line(here, spoil, says):
    spoil(here)
    with pytest.raises(UsageError, match=says) as caught:
        tracking.open_store()
    assert "\n" not in str(caught.value)


def test_no_write_access_is_one_line(here, monkeypatch):
    (here / "mlruns").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match=r"no write access to mlruns\): run in another folder or set MLFLOW"):
        tracking.open_store()


def test_a_file_that_is_no_database_is_one_line(here):
    (here / "mlruns").mkdir()
    (here / "mlruns" / "mlflow.db").write_text("no database " * 100)
    with pytest.raises(UsageError, match=r"must be an MLflow database.*mlflow\.db is not") as caught:
        tracking.open_store()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9", "./mlruns", "nonsense://x"])
def test_a_wrong_address_is_one_line_at_once(here, monkeypatch, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UsageError, match="must be an MLflow database or server that answers") as caught:
        tracking.open_store()
    assert "\n" not in str(caught.value)


def test_a_deleted_experiment_is_one_line(here):
    store = tracking.open_store()
    number = store.experiment_id("fsd-x")
    store.client.delete_experiment(number)
    with pytest.raises(UsageError, match=f"restore --experiment-id {number}"), tracking.run("fsd-x", "a"):
        pass


def test_a_moved_checkout_finds_its_artifacts(here, adapter, code, monkeypatch, tmp_path):
    with tracking.run("fsd-arxiv", "first") as run:
        run.log_text("summary.csv", "a,b")
        tracking.register(run, "fsd-arxiv", adapter, code, validation_score=0.7, files={"calibration.json": "0.5"})
    assert not [value for value in locations(here) if str(here) in value]
    there = tmp_path / "elsewhere"
    shutil.copytree(here, there)
    for gone in (here, adapter, code.parent / "serving.py"):
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    monkeypatch.chdir(there)

    assert tracking.fetch_artifact(run.id, "summary.csv").read_text() == "a,b"
    for uri in ("models:/fsd-arxiv@champion", "models:/fsd-arxiv/1", f"runs:/{run.id}"):
        assert (tracking.fetch_adapter(uri) / "adapter_model.safetensors").read_bytes() == b"weights"
    mlflow = load_mlflow()
    model = mlflow.pyfunc.load_model("models:/fsd-arxiv@champion")
    assert list(model.predict(pd.DataFrame({"text": ["abc"]})).score) == [3.5]
    with tracking.run("fsd-arxiv", "second") as second:
        second.log_text("note.txt", "new")
    assert [p.read_text() for p in there.glob(f"mlruns/*/{second.id}/artifacts/note.txt")] == ["new"]
    assert not here.exists()


def test_locations_of_another_folder_that_begins_alike_stay(here):
    store = tracking.open_store()
    other = f"{here}-2/mlruns/7"
    store.client.create_experiment("other", artifact_location=other)
    store.relativise()
    assert other in locations(here)
    assert "mlruns/0" in locations(here)


# --- runs


@dataclass(frozen=True)
class Settings:
    rank: int = 16
    targets: tuple[str, ...] = ("a", "b")


def test_a_run_keeps_what_it_is_told(here):
    with tracking.run("fsd-x", "lora", params={"adapter": Settings(), "seed": 42}, tags={"domain": "x"}) as run:
        run.log_params({"detectors": {"min_k": {"k": 0.2}}, "long": "x" * 7000})
        run.log_metrics({"auc/loss.base": 0.5, "auc/zlib.base": math.nan, "auc/surp.base": math.inf})
        for step, loss in enumerate((3.0, 2.0)):
            run.log_metrics({"train/loss": loss}, step=step)
    (record,) = tracking.find_runs("fsd-x")
    assert (record.id, record.name, record.status, record.parent) == (run.id, "lora", "FINISHED", None)
    long = record.params["long"]
    assert (len(long), long[-2:]) == (6000, "x…")
    assert {k: v for k, v in record.params.items() if k != "long"} == {
        "adapter.rank": "16",
        "adapter.targets": "a, b",
        "seed": "42",
        "detectors.min_k.k": "0.2",
    }
    assert record.metrics == {"auc/loss.base": 0.5, "train/loss": 2.0}
    assert record.tags["domain"] == "x"
    curve = run.store.client.get_metric_history(run.id, "train/loss")
    assert [(point.step, point.value) for point in curve] == [(0, 3.0), (1, 2.0)]


def test_many_numbers_and_settings_at_once(here):
    with tracking.run("fsd-x", "a") as run:
        run.log_metrics({f"a/{i}": i for i in range(1001)})
        run.log_params({f"p{i}": i for i in range(101)})
    (record,) = tracking.find_runs("fsd-x")
    assert len(record.metrics) == 1001
    assert len(record.params) == 101


@pytest.mark.parametrize("name", ["tpr@5fpr", "min_k++", "auc%", "", "/auc", "a//b", "a/../b", "..", "a" * 251])
def test_names_that_mlflow_refuses_are_one_line(here, name):
    with tracking.run("fsd-x", "a") as run, pytest.raises(UsageError, match="must be 1 to 250 letters"):
        run.log_metrics({name: 0.5})


def test_artifacts_lie_where_they_are_named(here, tmp_path):
    table = pd.DataFrame({"text": ["ä"], "loss.base": [0.25]})
    (tmp_path / "own.txt").write_text("own")
    with tracking.run("fsd-x", "a") as run:
        run.log_bytes("roc.png", b"\x89PNG")
        run.log_json("card.json", {"ä": 1})
        run.log_text("notes/one.txt", "ä")
        run.log_file(tmp_path / "own.txt")
        for name in ("scores.parquet", "summary.csv", "unseen.jsonl"):
            run.log_table(name, table)
        with pytest.raises(UsageError, match=r"must be named \*\.parquet"):
            run.log_table("scores.xlsx", table)
    get = lambda name: tracking.fetch_artifact(run.id, name)  # noqa: E731 - shorter than a function
    assert get("roc.png").read_bytes() == b"\x89PNG"
    assert json.loads(get("card.json").read_text()) == {"ä": 1}
    assert get("notes/one.txt").read_text() == "ä"
    assert get("own.txt").read_text() == "own"
    pd.testing.assert_frame_equal(pd.read_parquet(get("scores.parquet")), table)
    pd.testing.assert_frame_equal(pd.read_csv(get("summary.csv")), table)
    assert json.loads(get("unseen.jsonl").read_text()) == {"text": "ä", "loss.base": 0.25}
    with pytest.raises(UsageError, match=r"must hold 'roc\.svg'; it holds card\.json, notes, own\.txt"):
        get("roc.svg")


def test_a_dataset_is_noted_by_its_digest(here):
    with tracking.run("fsd-x", "a") as run:
        digest = run.log_dataset("arxiv", ["a", "b"], source="data.jsonl", context="unseen")
        other = run.log_dataset("arxiv", ["ab"], source="data.jsonl", context="test")
    by_hand = sha256(sha256(b"a").digest() + sha256(b"b").digest()).hexdigest()[:32]
    assert digest == by_hand != other
    inputs = run.store.client.get_run(run.id).inputs.dataset_inputs
    assert {(i.dataset.name, i.dataset.digest, i.tags[0].value) for i in inputs} == {
        ("arxiv", digest, "unseen"),
        ("arxiv", other, "test"),
    }


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "KILLED"), (UsageError, "FAILED"), (SystemExit, "FAILED")]
)
def test_a_run_that_breaks_says_so(here, error, status):
    with pytest.raises(error), tracking.run("fsd-x", "a") as run:
        raise error("no luck")
    assert tracking.find_runs("fsd-x") == []
    (record,) = tracking.find_runs("fsd-x", status=status)
    assert record.id == run.id
    assert record.tags.get("error") == ("UsageError: no luck" if error is UsageError else None)
    assert load_mlflow().active_run() is None


def test_runs_of_a_study_know_their_parent_and_are_found_by_tags(here):
    with tracking.run("fsd-x", "study") as study:
        for seed in range(3):
            with tracking.run("fsd-x", f"trial {seed}", tags={"cell": f"it's {seed}"}, parent=study):
                pass
    assert {r.parent for r in tracking.find_runs("fsd-x") if r.name != "study"} == {study.id}
    assert [r.name for r in tracking.find_runs("fsd-x", {"cell": "it's 1"})] == ["trial 1"]
    assert tracking.find_runs("fsd-x", {"cell": "it"}) == []
    assert tracking.find_runs("fsd-unknown") == []
    with pytest.raises(UsageError, match="both kinds of quotes"):
        tracking.find_runs("fsd-x", {"cell": "'\""})


# --- the registry


def test_the_champion_has_the_best_score_and_of_equals_is_the_newest(here, adapter, code):
    scores = [math.nan, 0.7, 0.6, 0.7, 0.9]
    champions = []
    for score in scores:
        version = register(adapter, code, score)
        champions.append(tracking.version_info("models:/fsd-arxiv@champion").number)
        assert ("champion" in version.aliases) == (champions[-1] == version.number)
    assert champions == [1, 2, 2, 4, 5]


def test_a_version_keeps_its_tags_and_its_run(here, adapter, code):
    made = register(adapter, code, 0.7, method="lora", cutoff="2024-01-01")
    assert made.uri == "models:/fsd-arxiv/1"
    for uri in ("models:/fsd-arxiv@champion", "models:/fsd-arxiv/1", "models:/fsd-arxiv/latest"):
        found = tracking.version_info(uri)
        assert found == made
        assert found.tags == {"method": "lora", "cutoff": "2024-01-01", "validation_score": "0.7"}
    assert tracking.version_info(f"runs:/{made.run_id}/adapter") is None


def test_a_registered_model_downloads_and_predicts(here, adapter, code, tmp_path):
    register(adapter, code, 0.7)
    mlflow = load_mlflow()
    tree = Path(mlflow.artifacts.download_artifacts("models:/fsd-arxiv@champion", dst_path=str(tmp_path / "download")))
    assert {p.name for p in (tree / "artifacts" / "adapter").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    model = mlflow.pyfunc.load_model("models:/fsd-arxiv@champion")
    assert list(model.predict(pd.DataFrame({"text": ["a", "abc"]})).score) == [1.5, 3.5]
    assert "fsd" not in (tree / "requirements.txt").read_text()


@pytest.mark.parametrize("form", ["models:/fsd-arxiv@champion", "models:/fsd-arxiv/1", "runs:/{}", "runs:/{}/adapter"])
def test_an_adapter_is_fetched_as_a_copy(here, adapter, code, form):
    version = register(adapter, code, 0.7)
    folder = tracking.fetch_adapter(form.format(version.run_id))
    assert {p.name for p in folder.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    assert not folder.is_relative_to(here)


def test_what_travels_with_an_adapter_is_fetched_or_none(here, adapter, code, tmp_path):
    version = register(adapter, code, 0.7)
    uri = "models:/fsd-arxiv@champion"
    assert tracking.fetch_model_file(uri, "calibration.json").read_text() == "0.5"
    assert tracking.fetch_model_file(uri, "reference.json") is None
    assert tracking.fetch_model_file(f"runs:/{version.run_id}/adapter", "calibration.json") is None
    (tmp_path / "calibration.json").write_text("beside")
    for folder in (adapter, tmp_path):
        assert tracking.fetch_model_file(str(folder), "calibration.json").read_text() == "beside"


def test_a_folder_is_its_own_address_and_needs_no_store(here, adapter):
    shutil.copytree(adapter, here / "model" / "adapter")
    assert tracking.fetch_adapter(str(adapter)) == adapter
    assert tracking.fetch_adapter("model") == Path("model/adapter")
    assert tracking.version_info("model") is None
    assert not (here / "mlruns").exists()


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("models:/fsd-none@champion", "must name a registered model; there are fsd-arxiv$"),
        ("models:/fsd-arxiv@best", r"there are versions 1 and aliases champion \(1\)$"),
        ("models:/fsd-arxiv/7", r"there are versions 1 and aliases champion \(1\)$"),
        ("models:/fsd-arxiv", "must be models:/name@alias or models:/name/version"),
        ("runs:/0123", "'0123' is none"),
        ("runs:", "must be runs:/id"),
        ("runs:/{bare}", "must hold adapter/; it holds roc.png$"),
        ("nowhere/at/all", "there is no such folder"),
        (".", "must hold adapter_config.json; . holds mlruns$"),
    ],
)
def test_a_wrong_address_names_what_there_is(here, adapter, code, uri, says):
    register(adapter, code, 0.7)
    with tracking.run("fsd-x", "a") as run:
        run.log_bytes("roc.png", b"")
    with pytest.raises(UsageError, match=says) as caught:
        tracking.fetch_adapter(uri.format(bare=run.id))
    assert "\n" not in str(caught.value)


def test_no_models_at_all_is_one_line(here):
    with pytest.raises(UsageError, match="must name a registered model; there are none"):
        tracking.fetch_adapter("models:/fsd-arxiv@champion")


def test_nothing_half_made_is_registered(here, adapter, code, tmp_path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('broken')")
    cases = [
        ({"name": "org/model"}, UsageError, "must be letters, digits"),
        ({"adapter": tmp_path}, UsageError, "must hold adapter_config.json"),
        ({"code": tmp_path / "none.py"}, UsageError, "code must be a file"),
        ({"files": {"calibration.json": tmp_path / "none.json"}}, UsageError, "must be a file to travel"),
        ({"code": tmp_path / "broken.py"}, Exception, "broken"),
    ]
    good = {"name": "fsd-x", "adapter": adapter, "code": code, "validation_score": 0.5}
    for wrong, error, says in cases:
        with pytest.raises(error, match=says), tracking.run("fsd-x", "a") as run:
            tracking.register(run, **(good | wrong))
    with pytest.raises(ValueError, match="inside the run's own"):
        tracking.register(run, **good)
    assert list(run.store.client.search_registered_models()) == []
