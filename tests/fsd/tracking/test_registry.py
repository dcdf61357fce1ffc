import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from fsd import tracking
from fsd.errors import UsageError
from fsd.tracking.store import load_mlflow


def test_the_champion_has_the_best_score_and_of_equals_is_the_newest(here, register, adapter, code):
    scores = [math.nan, 0.7, 0.6, 0.7, 0.9]
    champions = []
    for score in scores:
        version = register(adapter, code, score)
        champions.append(tracking.version_info("models:/fsd-arxiv@champion").number)
        assert ("champion" in version.aliases) == (champions[-1] == version.number)
    assert champions == [1, 2, 2, 4, 5]


def test_a_version_keeps_its_tags_and_its_run(full, register, adapter, code):
    made = register(adapter, code, 0.8, method="lora", cutoff="2024-01-01")
    assert made.uri == "models:/fsd-arxiv/2"
    for uri in ("models:/fsd-arxiv@champion", "models:/fsd-arxiv/2", "models:/fsd-arxiv/latest"):
        found = tracking.version_info(uri)
        assert found == made
        assert found.tags == {"method": "lora", "cutoff": "2024-01-01", "validation_score": "0.8"}
    assert tracking.version_info(f"runs:/{made.run_id}/adapter") is None


def test_a_registered_model_downloads_and_predicts(full, tmp_path):
    tracking.open_store()
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
def test_an_adapter_is_fetched_as_a_copy(full, form):
    version = tracking.version_info("models:/fsd-arxiv/1")
    folder = tracking.fetch_adapter(form.format(version.run_id))
    assert {p.name for p in folder.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    assert not folder.is_relative_to(full)


def test_what_travels_with_an_adapter_is_fetched_or_none(full, adapter, tmp_path):
    version = tracking.version_info("models:/fsd-arxiv/1")
    uri = "models:/fsd-arxiv@champion"
    assert tracking.fetch_model_file(uri, "calibration.json").read_text() == "0.5"
    assert tracking.fetch_model_file(uri, "reference.json") is None
    assert tracking.fetch_model_file(f"runs:/{version.run_id}/adapter", "calibration.json") is None
    (tmp_path / "calibration.json").write_text("beside")
    for folder in (adapter, tmp_path):
        assert tracking.fetch_model_file(str(folder), "calibration.json").read_text() == "beside"


def test_a_folder_is_its_own_address_and_needs_no_store(bare, adapter):
    shutil.copytree(adapter, bare / "model" / "adapter")
    assert tracking.fetch_adapter(str(adapter)) == adapter
    assert tracking.fetch_adapter("model") == Path("model/adapter")
    assert tracking.version_info("model") is None
    assert not (bare / "mlruns").exists()


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
def test_a_wrong_address_names_what_there_is(full, uri, says):
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
