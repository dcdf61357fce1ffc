from pathlib import Path

import pytest

from fsd.errors import UsageError
from pipelines.study import catalogue
from pipelines.study.grid import StudyConfig, plan

RATES = {"rate": {"setting": "training.learning_rate", "levels": {"low": 1e-4, "high": 1e-3}}}
RANKS = {"rank": {"setting": "training.rank", "levels": [8, 16], "small": [16]}}
FULL = StudyConfig(model=("a/model",), data=("texts.jsonl",), scale="full")


def cells_of(config, axes=None, **more):
    declared = {"place": "A, Table 1", "title": "?", "detectors": ["loss"], "axes": axes or {}}
    return plan("s", catalogue.parse("s", {**declared, **more}), config)


def planned(name, **more):
    return plan(name, catalogue.studies()[name], StudyConfig(**more))


def test_all_combinations_or_one_axis_at_a_time():
    cells = cells_of(FULL, RATES | RANKS)
    assert [cell.name for cell in cells] == ["low, 8", "low, 16", "high, 8", "high, 16"]
    assert (cells[0].config.training.learning_rate, cells[0].config.training.rank) == (1e-4, 8)
    assert len(cells_of(StudyConfig(), RATES | RANKS)) == 2  # small levels
    cells = cells_of(FULL, RATES | RANKS, one_at_a_time=True)
    assert [cell.labels["setting"] for cell in cells] == ["rate low", "rate high", "rank 8", "rank 16"]
    assert cells[0].config.training.rank == 16  # the default
    assert cells[1].config == cells[3].config


def test_flags_replace_models_and_data(tmp_path):
    config = StudyConfig(model=("a/b", "a/c"), data=("one.jsonl", "two.jsonl"))
    cells = cells_of(config, {"data": ["wikimia"], "model": ["x/y"]})
    assert [(cell.config.data.data, cell.config.model.model) for cell in cells] == [
        ((d,), m) for d in ("one.jsonl", "two.jsonl") for m in ("a/b", "a/c")
    ]
    # files are merged unless benchmarks are compared
    (cell,) = cells_of(StudyConfig(model=("a/b",), data=("one.jsonl", "two.jsonl")))
    assert cell.config.data.data == ("one.jsonl", "two.jsonl")
    # without texts another model has the published benchmark
    (cell,) = cells_of(StudyConfig(model=("a/b",)), settings={"data.data": "wikimia:64"})
    assert cell.config.data.data == ("wikimia:64",)
    # folders of the same name are different models
    folders = tuple(str(tmp_path / parent / "model") for parent in "ab")
    for folder in folders:
        Path(folder).mkdir(parents=True)
    cells = cells_of(StudyConfig(model=folders, data=("texts.jsonl",)), {"model": ["x/y"]})
    assert [cell.config.model.model for cell in cells] == [*folders]


def test_each_model_has_its_own_table_and_reference_model_or_all_share_one():
    def given(frequencies, references):
        cells = planned("dcpdd-t2", scale="full", frequencies=frequencies, reference_model=references)
        models = [cell.config.model for cell in cells]
        return {(model.model.partition("/")[2], model.frequencies, model.reference_model) for model in models}

    names = ("opt-6.7b", "pythia-6.9b", "llama-13b", "gpt-neox-20b")
    tables, references = ("o.npz", "p.npz", "l.npz", "n.npz"), ("opt", "pythia", None, "neo")
    assert given(tables, references) == set(zip(names, tables, references, strict=True))
    assert given(("t.npz",), ("r",)) == {(name, "t.npz", "r") for name in names}
    assert given((), ()) == {(name, None, None) for name in names}


def test_the_papers_model_is_used_at_full_scale_unless_another_is_given():
    def model(**more):
        return planned("fsd-t6", **more)[0].config.model.model

    assert model(scale="full") == "huggyllama/llama-7b"
    assert model(scale="full", model=("a/b",)) == model(model=("a/b",)) == "a/b"
    assert model() == "embedded"


def test_missing_and_surplus_flags_are_reported():
    three, two = ("a", "b", "c"), ("a", "b")
    for name, given, message in (
        ("dcpdd-fig2", {"scale": "full"}, "must have a model: give --model ID"),
        ("fsd-t6", {"model": two}, "must have one --model; got a, b"),
        ("fsd-t6", {"other": ("a",)}, "other must be given only to a study with foreign texts"),
        ("fsd-t15", {"model": ("a",), "data": ("f",)}, "give --other FILE"),
        ("dcpdd-t4", {"model": ("a",), "data": ("f",)}, "give --frequencies FILE FILE"),
        ("dcpdd-fig2", {"frequencies": two}, "must have one --frequencies; got a, b"),
        (
            "dcpdd-t2",
            {"scale": "full", "frequencies": three},
            "must have one --frequencies, or one for each of its 4 models; got a, b, c",
        ),
        (
            "dcpdd-t2",
            {"model": ("x", "y"), "reference_model": ("a", None, "c")},
            "must have one --reference-model, or one for each of its 2 models; got a, None, c",
        ),
        ("fsd-t6", {"model": ("a",), "reference_model": two}, "must have one --reference-model; got a, b"),
        ("fsd-t6", {"max_batch_tokens": 0}, "max-batch-tokens must be at least 1; got 0"),
    ):
        with pytest.raises(UsageError) as error:
            planned(name, **given)
        assert message in str(error.value)
        assert "\n" not in str(error.value)
