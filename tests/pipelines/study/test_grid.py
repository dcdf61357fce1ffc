import pytest

from fsd.errors import UsageError
from pipelines.study import spec
from pipelines.study.grid import StudyConfig, plan
from pipelines.study.spec import Study, data_axis, model_axis, vary, with_defaults

RATES = vary("rate", "training.learning_rate", {"low": 1e-4, "high": 1e-3})
RANKS = vary("rank", "training.rank", (8, 16), (16,))
FULL = StudyConfig(model=("a/model",), data=("texts.jsonl",), scale="full")


def study(*axes, **more):
    return Study(place="A, Table 1", title="?", detectors=with_defaults("loss"), axes=axes, **more)


def test_all_combinations():
    cells = plan("s", study(RATES, RANKS), FULL)
    assert [tuple(cell.labels.values()) for cell in cells] == [
        ("low", "8"),
        ("low", "16"),
        ("high", "8"),
        ("high", "16"),
    ]
    assert (cells[0].config.training.learning_rate, cells[0].config.training.rank) == (1e-4, 8)


def test_one_axis_at_a_time_leaves_the_others_at_their_defaults():
    cells = plan("s", study(RATES, RANKS, one_at_a_time=True), FULL)
    assert [cell.labels["setting"] for cell in cells] == ["rate low", "rate high", "rank 8", "rank 16"]
    assert cells[0].config.training.rank == 16
    assert cells[1].config == cells[3].config


def test_small_scale_uses_the_small_levels():
    assert len(plan("s", study(RATES, RANKS), StudyConfig())) == 2


def test_flags_replace_models_and_data():
    grid = study(data_axis("wikimia"), model_axis("x/y"))
    cells = plan("s", grid, StudyConfig(model=("a/b", "a/c"), data=("one.jsonl", "two.jsonl")))
    assert [(cell.config.data.data, cell.config.model.model) for cell in cells] == [
        ((d,), m) for d in ("one.jsonl", "two.jsonl") for m in ("a/b", "a/c")
    ]


def test_files_are_merged_unless_benchmarks_are_compared():
    (cell,) = plan("s", study(), StudyConfig(model=("a/b",), data=("one.jsonl", "two.jsonl")))
    assert cell.config.data.data == ("one.jsonl", "two.jsonl")


def test_another_model_defaults_to_the_published_benchmark():
    (cell,) = plan("s", study(settings={"data.data": ("wikimia:64",)}), StudyConfig(model=("a/b",)))
    assert cell.config.data.data == ("wikimia:64",)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("fsd-t6", StudyConfig(scale="full"), "must have a model: give --model ID"),
        ("fsd-t6", StudyConfig(model=("a", "b")), "must have one --model; got a, b"),
        ("fsd-t6", StudyConfig(other=("a",)), "other must be given only to a study with foreign texts"),
        ("fsd-t15", StudyConfig(model=("a",), data=("f",)), "give --other FILE"),
        ("dcpdd-t4", StudyConfig(model=("a",), data=("f",)), "give --frequencies FILE FILE"),
        ("dcpdd-t5", StudyConfig(frequencies=("a", "b")), "must have one --frequencies"),
    ],
)
def test_missing_and_surplus_flags_are_reported(name, config, message):
    with pytest.raises(UsageError, match=message) as error:
        plan(name, spec.read(name), config)
    assert "\n" not in str(error.value)


def test_an_unknown_study_lists_all_names():
    with pytest.raises(UsageError, match=r"study must be one of dcpdd-fig2, .*surp-t3; got 'fsd-t99'"):
        spec.load("fsd-t99")
