import json
import math
from functools import partial
from hashlib import sha256

import pandas as pd
import pytest

from fsd import tracking
from fsd.errors import UsageError
from fsd.tracking.store import load_mlflow


def test_params_metrics_and_tags_are_logged(here):
    params = {"adapter": {"rank": 16, "targets": ("a", "b")}, "seed": 42}
    with tracking.run("fsd-x", "lora", params=params, tags={"domain": "x"}) as run:
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


def test_more_metrics_and_params_than_one_request_takes(here):
    with tracking.run("fsd-x", "a") as run:
        run.log_metrics({f"a/{i}": i for i in range(1001)})
        run.log_params({f"p{i}": i for i in range(101)})
    (record,) = tracking.find_runs("fsd-x")
    assert len(record.metrics) == 1001
    assert len(record.params) == 101


@pytest.mark.parametrize("name", ["tpr@5fpr", "min_k++", "auc%", "", "/auc", "a//b", "a/../b", "..", "a" * 251])
def test_a_name_that_mlflow_refuses_is_an_error(here, name):
    with tracking.run("fsd-x", "a") as run, pytest.raises(UsageError, match="must be 1 to 250 letters"):
        run.log_metrics({name: 0.5})


def test_artifacts_are_written_under_their_names(here, tmp_path):
    table = pd.DataFrame({"text": ["ä"], "loss.base": [0.25]})
    (tmp_path / "own.txt").write_text("own")
    with tracking.run("fsd-x", "a") as run:
        run.log_bytes("roc.png", b"\x89PNG")
        run.log_json("card.json", {"ä": 1})
        run.log_text("notes/one.txt", "ä")
        run.log_file(tmp_path / "own.txt")
        for name in ("scores.parquet", "summary.csv"):
            run.log_table(name, table)
        with pytest.raises(UsageError, match=r"must be named \*\.parquet or \*\.csv"):
            run.log_table("scores.xlsx", table)
    get = partial(tracking.fetch_artifact, run.id)
    assert get("roc.png").read_bytes() == b"\x89PNG"
    assert json.loads(get("card.json").read_text()) == {"ä": 1}
    assert get("notes/one.txt").read_text() == "ä"
    assert get("own.txt").read_text() == "own"
    pd.testing.assert_frame_equal(pd.read_parquet(get("scores.parquet")), table)
    pd.testing.assert_frame_equal(pd.read_csv(get("summary.csv")), table)
    with pytest.raises(UsageError, match=r"must hold 'roc\.svg'; it holds card\.json, notes, own\.txt"):
        get("roc.svg")


def test_a_dataset_is_logged_by_its_digest(here):
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
def test_the_status_of_an_interrupted_or_failed_run(here, error, status):
    with pytest.raises(error), tracking.run("fsd-x", "a") as run:
        raise error("no luck")
    assert tracking.find_runs("fsd-x") == []
    (record,) = tracking.find_runs("fsd-x", status=status)
    assert record.id == run.id
    assert record.tags.get("error") == ("UsageError: no luck" if error is UsageError else None)
    assert load_mlflow().active_run() is None


def test_runs_are_found_by_tags_and_have_their_parent(here):
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
