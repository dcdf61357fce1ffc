from pathlib import Path

import pytest

from fsd.errors import UsageError
from pipelines.study import catalogue
from pipelines.study.grid import StudyConfig, plan

RATES = {"rate": {"setting": "training.learning_rate", "levels": {"low": 1e-4, "high": 1e-3}}}
RANKS = {"rank": {"setting": "training.rank", "levels": [8, 16], "small": [16]}}
FULL = StudyConfig(model=("a/model",), data=("texts.jsonl",), scale="full")


def study(axes=None, **more):
    declared = {"place": "A, Table 1", "title": "?", "detectors": ["loss"], "axes": axes or {}}
    return catalogue.parse("s", {**declared, **more})


def test_all_combinations():
    cells = plan("s", study(RATES | RANKS), FULL)
    assert [tuple(cell.labels.values()) for cell in cells] == [
        ("low", "8"),
        ("low", "16"),
        ("high", "8"),
        ("high", "16"),
    ]
    assert (cells[0].config.training.learning_rate, cells[0].config.training.rank) == (1e-4, 8)


def test_one_axis_at_a_time_leaves_the_others_at_their_defaults():
    cells = plan("s", study(RATES | RANKS, one_at_a_time=True), FULL)
    assert [cell.labels["setting"] for cell in cells] == ["rate low", "rate high", "rank 8", "rank 16"]
    assert cells[0].config.training.rank == 16
    assert cells[1].config == cells[3].config


def test_small_scale_uses_the_small_levels():
    assert len(plan("s", study(RATES | RANKS), StudyConfig())) == 2


def test_flags_replace_models_and_data():
    grid = study({"data": ["wikimia"], "model": ["x/y"]})
    cells = plan("s", grid, StudyConfig(model=("a/b", "a/c"), data=("one.jsonl", "two.jsonl")))
    assert [(cell.config.data.data, cell.config.model.model) for cell in cells] == [
        ((d,), m) for d in ("one.jsonl", "two.jsonl") for m in ("a/b", "a/c")
    ]


def test_each_model_has_its_own_table_and_reference_model_or_all_share_one():
    def given(frequencies, references):
        config = StudyConfig(scale="full", frequencies=frequencies, reference_model=references)
        cells = [cell.config.model for cell in plan("dcpdd-t2", catalogue.studies()["dcpdd-t2"], config)]
        return {(model.model.partition("/")[2], model.frequencies, model.reference_model) for model in cells}

    names = ("opt-6.7b", "pythia-6.9b", "llama-13b", "gpt-neox-20b")
    tables, references = ("o.npz", "p.npz", "l.npz", "n.npz"), ("opt", "pythia", None, "neo")
    assert given(tables, references) == set(zip(names, tables, references, strict=True))
    assert given(("t.npz",), ("r",)) == {(name, "t.npz", "r") for name in names}
    assert given((), ()) == {(name, None, None) for name in names}


def test_the_papers_model_is_used_at_full_scale_unless_another_is_given():
    def model(**more):
        return plan("fsd-t6", catalogue.studies()["fsd-t6"], StudyConfig(**more))[0].config.model.model

    assert model(scale="full") == "huggyllama/llama-7b"
    assert model(scale="full", model=("a/b",)) == model(model=("a/b",)) == "a/b"
    assert model() == "embedded"


def test_folders_of_the_same_name_are_different_models(tmp_path):
    folders = tuple(str(tmp_path / parent / "model") for parent in "ab")
    for folder in folders:
        Path(folder).mkdir(parents=True)
    cells = plan("s", study({"model": ["x/y"]}), StudyConfig(model=folders, data=("texts.jsonl",)))
    assert [cell.config.model.model for cell in cells] == [*folders]


def test_files_are_merged_unless_benchmarks_are_compared():
    (cell,) = plan("s", study(), StudyConfig(model=("a/b",), data=("one.jsonl", "two.jsonl")))
    assert cell.config.data.data == ("one.jsonl", "two.jsonl")


def test_another_model_defaults_to_the_published_benchmark():
    (cell,) = plan("s", study(settings={"data.data": "wikimia:64"}), StudyConfig(model=("a/b",)))
    assert cell.config.data.data == ("wikimia:64",)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("dcpdd-fig2", StudyConfig(scale="full"), "must have a model: give --model ID"),
        ("fsd-t6", StudyConfig(model=("a", "b")), "must have one --model; got a, b"),
        ("fsd-t6", StudyConfig(other=("a",)), "other must be given only to a study with foreign texts"),
        ("fsd-t15", StudyConfig(model=("a",), data=("f",)), "give --other FILE"),
        ("dcpdd-t4", StudyConfig(model=("a",), data=("f",)), "give --frequencies FILE FILE"),
        ("dcpdd-fig2", StudyConfig(frequencies=("a", "b")), "must have one --frequencies; got a, b"),
        (
            "dcpdd-t2",
            StudyConfig(scale="full", frequencies=("a", "b", "c")),
            "must have one --frequencies, or one for each of its 4 models; got a, b, c",
        ),
        (
            "dcpdd-t2",
            StudyConfig(model=("x", "y"), reference_model=("a", None, "c")),
            "must have one --reference-model, or one for each of its 2 models; got a, None, c",
        ),
        ("fsd-t6", StudyConfig(model=("a",), reference_model=("b", "c")), "must have one --reference-model; got b, c"),
    ],
)
def test_missing_and_surplus_flags_are_reported(name, config, message):
    with pytest.raises(UsageError, match=message) as error:
        plan(name, catalogue.studies()[name], config)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "nearest"), [("FSD_T6", " (nearest: fsd-t6)"), ("surp-figure4", " (nearest: surp-fig4)"), ("xyz", "")]
)
def test_an_unknown_study_names_the_nearest_one(name, nearest):
    with pytest.raises(UsageError) as error:
        catalogue.load(name)
    assert str(error.value) == f"study must be a name shown by --list{nearest}; got '{name}'"
