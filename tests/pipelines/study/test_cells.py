import shutil

import pytest
import torch

from fsd.config import AdapterConfig
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


def test_the_key_covers_what_moves_the_numbers_and_nothing_else(key, other, tmp_path, texts, monkeypatch):
    same = tmp_path / "elsewhere.jsonl"
    shutil.copy(texts, same)
    assert key() == key() == key(data=str(same)) == key(domain="wikipedia")
    changed = tmp_path / "changed.jsonl"
    changed.write_text((tmp_path / "elsewhere.jsonl").read_text().replace("a0", "b0"))
    keys = [key(), key(at=1), key(model=other), key(seed=1), key(data=str(changed)), key(training=TRAINING)]
    monkeypatch.setattr(
        "fsd.models.language_model.quantization_options", lambda *_: {}
    )  # bitsandbytes may not be installed
    keys += [key(dtype="bfloat16"), key(bits=8)]
    monkeypatch.setattr(cells, "version", lambda _: "another")
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_the_key_depends_on_the_resolved_precision(key, monkeypatch):
    on_cpu = key()
    assert on_cpu == key(device="cpu", dtype="float32")
    monkeypatch.setattr("fsd.models.language_model.torch_device", lambda _: torch.device("cuda"))
    assert on_cpu != key() == key(dtype="bfloat16") != key(dtype="float32")


def test_the_key_of_base_scores_is_independent_of_the_training(key):
    assert key("surp-t3", at=0) == key("surp-t3", at=0, training=TRAINING)
    assert key("fsd-fig4", at=0) == key("fsd-fig4", at=0, training=TRAINING)
    assert key("fsd-t6", at=2) != key("fsd-t6", at=2, training=TRAINING)
