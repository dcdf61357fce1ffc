import errno
import json
import math
import os
import shlex
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest
from mlflow.store.artifact import local_artifact_repo

from fsd import tracking
from fsd.errors import StorageError, UsageError
from fsd.tracking.store import load_mlflow


def test_params_metrics_and_tags_are_logged_and_runs_found_by_them(here):
    params = {"adapter": {"rank": 16, "targets": ("a", "b")}, "seed": 42, "detectors": {"min_k": {"k": 0.2}}}
    params |= {"long": "x" * 7000, **{f"p{i}": i for i in range(101)}}
    with tracking.run("fsd-x", "lora", params=params, tags={"domain": "it's x"}) as run:
        run.log_metrics({"auc/loss.base": 0.5, "auc/zlib.base": math.nan, "auc/surp.base": math.inf})
        run.log_metrics({f"a/{i}": i for i in range(1001)})  # more than one request takes
        for step, loss in enumerate((3.0, 2.0)):
            run.log_curves({step: {"train/loss": loss}})
        curve = run.store.client.get_metric_history(run.id, "train/loss")
        assert [(point.step, point.value) for point in curve] == [(0, 3.0), (1, 2.0)]
        with tracking.run("fsd-x", "within", parent=run):
            pass
    assert len(run.store.client.get_metric_history(run.id, "train/loss")) == 2
    (record,) = tracking.find_runs("fsd-x", {"domain": "it's x"})
    assert (record.id, record.name, record.parent) == (run.id, "lora", None)
    long = record.params["long"]
    assert (len(long), long[-2:]) == (6000, "xx")
    known = {"adapter.rank": "16", "adapter.targets": "a, b", "seed": "42", "detectors.min_k.k": "0.2"}
    assert known.items() <= record.params.items()
    assert len(record.params) == 106
    assert {"auc/loss.base": 0.5, "train/loss": 2.0}.items() <= record.metrics.items()
    assert len(record.metrics) == 1003
    assert [(r.name, r.parent) for r in tracking.find_runs("fsd-x")] == [("within", run.id), ("lora", None)]
    assert tracking.find_runs("fsd-x", {"domain": "it"}) == tracking.find_runs("fsd-unknown") == []


def test_a_run_around_a_command_is_left_alone(full, register, adapter, code, monkeypatch):
    """As `mlflow run` and Azure ML open one, and a notebook: a run of its own in its own experiment names it."""
    mlflow = load_mlflow()
    client = tracking.open_store().client
    mlflow.set_tracking_uri(tracking.open_store().uri)
    theirs = client.create_experiment("theirs")
    outer = client.create_run(theirs, run_name="outer")
    before = client.get_run(outer.info.run_id).to_dictionary()
    environment = {
        "MLFLOW_RUN_ID": outer.info.run_id,
        "MLFLOW_EXPERIMENT_ID": theirs,
        "MLFLOW_EXPERIMENT_NAME": "theirs",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    version = register(adapter, code, 0.8, seed=1)
    with tracking.run("fsd-x", "again") as run, tracking.run("fsd-x", "within", parent=run):
        pass
    assert os.environ["MLFLOW_RUN_ID"] == outer.info.run_id
    for inner, experiment in ((version.run_id, "fsd-arxiv"), (run.id, "fsd-x")):
        record = client.get_run(inner)
        assert record.info.experiment_id == client.get_experiment_by_name(experiment).experiment_id
        assert (record.data.tags["outer_run"], record.info.status) == (outer.info.run_id, "FINISHED")
    assert client.get_run(outer.info.run_id).to_dictionary() == before
    assert len(client.search_runs([theirs])) == 1
    monkeypatch.delenv("MLFLOW_RUN_ID")
    with mlflow.start_run(experiment_id=theirs) as notebook, tracking.run("fsd-x", "within a notebook") as run:
        pass
    assert client.get_run(run.id).data.tags["outer_run"] == notebook.info.run_id
    assert client.get_run(notebook.info.run_id).data.params == {}


def test_no_credential_is_kept(here, monkeypatch):
    """Not even those of the git remote, which MLflow records by itself."""
    from mlflow.tracking.context import git_context

    url = "https://user:hunter2@example.org/a.git"
    git = {"mlflow.source.git.commit": "0" * 40, "mlflow.source.git.repoURL": url}
    monkeypatch.setattr(git_context.GitRunContext, "_git_info", git)
    storage = "postgresql://user:hunter2@localhost:1/x"
    options = {"params": {"urls": [url, storage]}, "tags": {"t": url}}
    with pytest.raises(ValueError, match="got"), tracking.run("fsd-x", f"a of {url}", **options) as run:  # noqa: PT012
        run.log_dataset("x", ["text"], source=url, context="test")
        raise ValueError(f"got {storage}")
    data = run.store.client.get_run(run.id)
    assert data.data.tags["t"] == data.data.tags["mlflow.source.git.repoURL"] == "https://***@example.org/a.git"
    assert data.data.tags["error"].endswith("got postgresql://user:***@localhost:1/x")
    assert "hunter2" not in f"{data.to_dictionary()} {data.inputs.to_dictionary()}"
    assert [record.id for record in tracking.find_runs("fsd-x", {"t": url}, status="FAILED")] == [run.id]


def test_files_are_written_under_their_names(here, tmp_path):
    table = pd.DataFrame({"text": ["ä"], "loss.base": [0.25]})
    (tmp_path / "own.txt").write_text("own")
    contents = {"roc.png": b"\x89PNG", "card.json": {"ä": 1}, "notes/one.txt": "ä", "own.txt": tmp_path / "own.txt"}
    with tracking.run("fsd-x", "a") as run:
        for name, content in (
            contents | dict.fromkeys(["scores.parquet", "summary.csv", "summary.json"], table)
        ).items():
            run.log(name, content)
    get = {name: tracking.fetch_artifact(run.id, name) for name in (*contents, "scores.parquet", "summary.csv")}
    assert get["roc.png"].read_bytes() == b"\x89PNG"
    assert json.loads(get["card.json"].read_text()) == {"ä": 1}
    assert (get["notes/one.txt"].read_text(), get["own.txt"].read_text()) == ("ä", "own")
    pd.testing.assert_frame_equal(pd.read_parquet(get["scores.parquet"]), table)
    pd.testing.assert_frame_equal(pd.read_csv(get["summary.csv"]), table)
    pd.testing.assert_frame_equal(run.store.client.load_table("1", "summary.json"), table)
    with pytest.raises(UsageError, match=r"must hold 'roc\.svg'; it holds card\.json, notes, own\.txt"):
        tracking.fetch_artifact(run.id, "roc.svg")


def test_labels_and_many_files_are_part_of_a_data_set(here):
    files = ", ".join(f"texts-of-the-year-{year}-{'x' * 30}.jsonl" for year in range(300))
    with tracking.run("fsd-x", "a") as run:
        digests = {
            run.log_dataset("arxiv", ["a", "b"], labels=labels, source=files, context="unseen")
            for labels in ((), (True, False), (False, True), (None, None))
        }
        other = run.log_dataset("arxiv", ["ab"], source="data.jsonl", context="test")
    assert len(digests) == 3
    assert sha256(sha256(b"a").digest() + sha256(b"b").digest()).hexdigest()[:32] in digests
    inputs = run.store.client.get_run(run.id).inputs.dataset_inputs
    assert {i.dataset.digest for i in inputs} == {*digests, other}
    assert {(i.dataset.name, i.tags[0].value) for i in inputs} == {("arxiv", "unseen"), ("arxiv", "test")}


def test_names_are_cut_to_what_a_store_takes(here):
    files = ", ".join(f"文本{number}.jsonl" for number in range(5000))
    with tracking.run("fsd-x", "数" * 300) as run:
        run.log_dataset("x", ["a"], source=files, context="test")
        run.conclude("loss .67", "")
    stored = run.store.client.get_run(run.id)
    assert stored.info.run_name == "数" * 250
    (inputs,) = stored.inputs.dataset_inputs
    assert json.loads(inputs.dataset.source)["uri"].startswith("文本0.jsonl, ")


def test_the_status_of_an_interrupted_or_failed_run(here):
    for error, status in ((KeyboardInterrupt, "KILLED"), (UsageError, "FAILED"), (SystemExit, "FAILED")):
        with pytest.raises(error), tracking.run("fsd-x", "a") as run:
            raise error("no luck")
        record = tracking.find_runs("fsd-x", status=status)[0]
        assert record.id == run.id
        assert record.tags.get("error") == ("UsageError: no luck" if error is UsageError else None)
        assert load_mlflow().active_run() is None
    assert tracking.find_runs("fsd-x") == []


def test_a_run_ends_with_its_score_in_the_name_and_its_result_as_description(here):
    with tracking.run("fsd-x", "tiny · arxiv · lora") as run:
        run.conclude("loss .67", "AUC .67 [.61, .74] (loss FSD)\n\n<b>, p < .001.")
        run.mark_repetition("models:/fsd-x/1", renamed=True)
    record = tracking.find_runs("fsd-x")[0]
    assert (record.name, record.tags["repeats"]) == ("again · tiny · arxiv · lora · loss .67", "models:/fsd-x/1")
    assert record.tags["mlflow.note.content"] == "AUC .67 \\[.61, .74\\] (loss FSD)\n\n\\<b>, p < .001."
    client = run.store.client
    experiment = client.get_experiment_by_name("fsd-x")
    address = tracking.address(run.store.server, experiment.experiment_id)
    assert address.startswith(f"http://127.0.0.1:5000/#/experiments/{experiment.experiment_id}/runs?")
    assert {"workflowType=machine_learning", "viewStateShareKey=fsd"} == set(address.partition("?")[2].split("&"))
    columns = json.loads(experiment.tags["mlflow.sharedViewState.fsd"])["selectedColumns"]
    assert columns[:3] == [f"metrics.`headline/{name}`" for name in ("auc", "control", "blind")]
    assert {"params.`method`", "params.`model`", "params.`data`"} <= set(columns)
    with tracking.run("fsd-x", "mine") as named:
        named.mark_repetition("models:/fsd-x/1", renamed=False)
    assert client.get_run(named.id).info.run_name == "mine"


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_reason_of_a_full_disk_is_that_of_the_database_below_all_libraries(here):
    wrapped = RuntimeError("(raised as a result of Query-invoked autoflush)")
    wrapped.__cause__ = sqlite3.OperationalError("disk I/O error")
    message = "^the run could not be stored: disk I/O error$"
    with pytest.raises(StorageError, match=message), tracking.run("fsd-x", "a") as run, run.storing():
        raise wrapped


def test_what_cannot_be_stored_is_raised_after_the_computation_and_kept(here, adapter, code, monkeypatch):
    computed = []
    with pytest.raises(StorageError) as raised:  # noqa: PT012, SIM117
        with tracking.run("fsd-x", "a", params={"seed": 1}) as run:
            run.log("notes/report.html", "2")
            run.log_metrics({"auc": 0.5})
            run.log_dataset("x", ["text"], source="x", context="test")
            monkeypatch.setattr(local_artifact_repo, "shutil_copytree_without_file_permissions", full_disk)
            files = {"calibration.json": "0.5"}
            assert tracking.register(run, "fsd-x", adapter, code, validation_score=0.7, files=files) is None
            computed.append(True)
    assert computed == [True]
    kept = here / f"fsd-run-{run.id[:8]}"
    assert str(raised.value) == (
        f"the run could not be stored: No space left on device; its files are in {kept.name}, and "
        "`MLFLOW_TRACKING_URI=sqlite:///mlruns/mlflow.db mlflow artifacts log-artifacts "
        f"--local-dir {kept.name} --run-id {run.id}` logs them"
    )
    (record,) = tracking.find_runs("fsd-x", status="FAILED")
    assert record.tags["error"] == "could not be stored: No space left on device"
    assert (record.name, record.params["seed"], record.metrics) == ("a", "1", {"auc": 0.5})
    assert (kept / "adapter" / "adapter_config.json").is_file()


@pytest.mark.slow
def test_the_line_of_a_run_that_was_kept_logs_its_files(here, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(StorageError) as raised:  # noqa: PT012, SIM117
        with tracking.run("fsd-x", "a") as run:
            run.log("notes/report.html", "2")
            patch.setattr(local_artifact_repo, "shutil_copytree_without_file_permissions", full_disk)
    command = str(raised.value).split("`")[1]
    program = f"{shlex.quote(sys.executable)} -m mlflow"
    subprocess.run(command.replace("mlflow artifacts", f"{program} artifacts"), shell=True, check=True)
    assert tracking.fetch_artifact(run.id, "notes/report.html").read_text() == "2"


def test_a_full_folder_for_temporary_files_costs_only_what_goes_through_it(here, monkeypatch):
    with pytest.raises(StorageError, match="No space left") as raised:  # noqa: PT012, SIM117
        with tracking.run("fsd-x", "a") as run:
            monkeypatch.setattr(Path, "write_bytes", full_disk)
            run.log("report.html", "lost")
            run.log_metrics({"auc": 0.5})
    assert "files are in" not in str(raised.value)
    (record,) = tracking.find_runs("fsd-x", status="FAILED")
    assert record.metrics == {"auc": 0.5}


def test_a_server_that_is_gone_is_asked_once_more_at_the_end_and_named_once(here, monkeypatch, capsys):
    from mlflow.exceptions import MlflowException

    client, gone = load_mlflow().MlflowClient, []
    for name in ("create_run", "log_batch", "log_artifacts", "set_terminated"):
        original = getattr(client, name)

        def call(*arguments, original=original, **settings):
            if not gone:
                return original(*arguments, **settings)
            gone.append(True)
            raise MlflowException("API request to http://user:secret@x failed with exception refused")

        monkeypatch.setattr(client, name, call)
    tracking.open_store()
    monkeypatch.setattr(tracking.Store, "address", "http://x")
    monkeypatch.setattr(tracking.Store, "file", None)
    with pytest.raises(StorageError) as raised:  # noqa: PT012, SIM117
        with tracking.run("fsd-x", "a") as run:
            gone.append(True)
            for step in range(3):
                run.log_curves({step: {"train/loss": 1.0}})
            run.log("report.html", "r")
            with tracking.run("fsd-x", "within", parent=run) as within:
                within.log_curves({1: {"auc": 1.0}})
            assert len(gone) == 2
    assert len(gone) == 4  # everything once more, and the end of the run
    assert capsys.readouterr().err == "tracking: http://x does not answer; the job goes on without it\n"
    kept = here / f"fsd-run-{run.id[:8]}"
    message = f"the run could not be stored: http://x does not answer; its files are in {kept.name}, and `mlflow "
    assert str(raised.value).startswith(message)
    with pytest.raises(StorageError), tracking.run("fsd-x", "a"):
        pytest.fail("a run without a store has begun")

    gone.clear()
    with tracking.run("fsd-x", "back") as run:
        gone.append(True)
        run.log_curves({0: {"train/loss": 1.0}})
        gone.clear()
    record = tracking.find_runs("fsd-x")[0]
    assert (record.name, record.metrics) == ("back", {"train/loss": 1.0})
    assert len(list(here.glob("fsd-run-*"))) == 1
