import shutil

import pandas as pd
import pytest
import torch

from fsd.config import AdapterConfig
from pipelines.common import experiment
from pipelines.study import catalogue, cells
from pipelines.study.cells import prepare_cell
from pipelines.study.grid import StudyConfig, plan

TRAINING = AdapterConfig(epochs=2, batch_size=2)


@pytest.fixture
def key(tiny, texts):
    def key(name="fsd-t6", at=2, model=tiny, data=texts, **more):
        config = StudyConfig(model=(str(model),), data=(data,), **more)
        study = catalogue.studies()[name]
        return prepare_cell(plan(name, study, config)[at], study).tag

    return key


def test_the_tag_covers_what_moves_the_numbers_and_nothing_else(key, other, tmp_path, texts, monkeypatch):
    same = tmp_path / "elsewhere.jsonl"
    shutil.copy(texts, same)
    assert key() == key() == key(data=str(same)) == key(domain="wikipedia")
    changed = tmp_path / "changed.jsonl"
    changed.write_text(same.read_text().replace("a0", "b0"))
    keys = [key(), key(at=1), key(model=other), key(seed=1), key(data=str(changed)), key(training=TRAINING)]
    monkeypatch.setattr(
        "fsd.models.language_model.quantization_options", lambda *_: {}
    )  # bitsandbytes may not be installed
    keys += [key(dtype="bfloat16"), key(bits=8)]
    for package in experiment.PACKAGES:
        monkeypatch.setattr(experiment, "version", lambda name, changed=package: "2" if name == changed else "1")
        keys.append(key())
    assert len(set(keys)) == len(keys)


def test_the_tag_depends_on_the_resolved_precision(key, monkeypatch):
    on_cpu = key()
    assert on_cpu == key(device="cpu", dtype="float32")
    monkeypatch.setattr("fsd.models.language_model.torch_device", lambda _: torch.device("cuda"))
    assert on_cpu != key() == key(dtype="bfloat16") != key(dtype="float32")


def test_the_tag_of_base_scores_is_independent_of_the_training(key):
    assert key("surp-t3", at=0) == key("surp-t3", at=0, training=TRAINING)
    assert key("fsd-fig4", at=0) == key("fsd-fig4", at=0, training=TRAINING)


def test_of_a_grid_only_the_best_on_the_test_texts_is_kept():
    columns = {"split": ["test"] * 4 + ["validation"], "label": [1, 1, 0, 0, 0], "loss.base": [0.0] * 5}
    scores = pd.DataFrame({**columns, "a.base": [1, 0, 1, 0, 0], "b.base": [2, 1, 1, 0, 9], "c.base": [0, 0, 1, 1, 0]})
    kept, chosen = cells._best_of_grids(scores, {"best": ("a", "b", "c"), "none": ("d",)})
    assert chosen == {"best": "b"}
    assert list(kept) == ["split", "label", "loss.base", "best.base"]
    assert kept["best.base"].tolist() == [2, 1, 1, 0, 9]
