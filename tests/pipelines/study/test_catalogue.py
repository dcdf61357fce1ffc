"""The contract of every declaration in catalogue.yaml."""

import csv
from dataclasses import fields, replace

import pytest

from fsd.config import FSDConfig
from fsd.data import benchmarks
from pipelines.study import catalogue
from pipelines.study.catalogue import DATA, FREQUENCIES, MODEL, Study, TextOptions
from pipelines.study.cells import at_small_scale, load_detectors
from pipelines.study.grid import SETTING, StudyConfig, plan, with_settings

NAMES = tuple(catalogue.studies())
SMALL_CELLS = 9
EXPECTED = {
    *(f"fsd-t{number}" for number in (1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16)),
    *(f"fsd-fig{number}" for number in (2, 3, 4, 5, 6)),
    *("surp-t1", "surp-t2", "surp-t3", "surp-fig3", "surp-fig4"),
    *("dcpdd-t2", "dcpdd-t3", "dcpdd-t4", "dcpdd-t5", "dcpdd-fig2", "dcpdd-fig3"),
}


@pytest.fixture(params=NAMES)
def study(request) -> Study:
    return catalogue.studies()[request.param]


@pytest.fixture(params=["small", "full"])
def config(request) -> StudyConfig:
    return StudyConfig(scale=request.param, model=("a/model",), data=("texts.jsonl",), frequencies=("a.npz",))


def test_every_table_and_figure_has_a_study():
    names = {*NAMES, *(alias for name in NAMES for alias in catalogue.studies()[name].aliases)}
    assert names == EXPECTED


def test_aliases_are_unique():
    aliases = [alias for name in NAMES for alias in catalogue.studies()[name].aliases]
    assert len({*aliases, *NAMES}) == len(aliases) + len(NAMES)
    assert catalogue.load("fsd-fig3")[0] == "fsd-fig2"
    assert catalogue.load("FSD-T11")[0] == "fsd-t1"


@pytest.mark.parametrize(
    ("name", "models", "data"),
    [
        ("fsd-t6", {"llama-7b"}, {"wikimia"}),
        ("fsd-t14", {"pythia-6.9b"}, {f"pile:{part}" for part in benchmarks.sources()["pile"].parts}),
        ("fsd-t15", {"llama-7b"}, {"wikimia", "arxivtection"}),
        ("fsd-fig5", {"llama-7b"}, {"arxivtection"}),
        ("fsd-fig6", {"pythia-6.9b"}, {"pile:bookcorpus2"}),
        (
            "surp-t1",
            {"llama-7b", "llama-13b", "pythia-2.8b", "pythia-6.9b", "pythia-12b", "gpt-neo-2.7B"},
            {f"wikimia:{words}" for words in (32, 64, 128, 256)},
        ),
        (
            "surp-t3",
            {"pythia-2.8b", "pythia-6.9b", "pythia-12b", "gpt-neo-2.7B"},
            {f"mimir:{part}" for part in benchmarks.sources()["mimir"].parts if "ngram_7_0.2" in part},
        ),
        ("surp-fig3", {"llama-13b"}, {"wikimia:64"}),
        ("dcpdd-t2", {"opt-6.7b", "pythia-6.9b", "llama-13b", "gpt-neox-20b"}, {"wikimia:128"}),
    ],
)
def test_the_models_and_texts_of_the_paper_are_preset(name, models, data):
    cells = plan(name, catalogue.studies()[name], StudyConfig(scale="full"))
    assert {cell.config.model.model.partition("/")[2] for cell in cells} == models
    assert {entry for cell in cells for entry in cell.config.data.data} == data


def test_printed_numbers_are_of_studies_or_sizes_of_benchmarks():
    with catalogue.PAPERS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len({tuple(value for name, value in row.items() if name != "value") for row in rows}) == 992
    sizes = [row for row in rows if row["metric"] == "texts"]
    assert {row["place"] for row in sizes} == {"fsd-t7", "fsd-t8", "dcpdd-t1"}
    assert {row["place"] for row in rows if row not in sizes} < EXPECTED
    assert all(0 < float(row["value"]) < 1 for row in rows if row not in sizes)


def test_the_best_of_a_grid_is_only_of_base_scores(study):
    assert not (study.trained and any(detector.grid for detector in study.detectors))


@pytest.mark.parametrize(("name", "auc_alone"), [("fsd-t12", "fsd-t2"), ("fsd-t13", "fsd-t5"), ("fsd-t6", "fsd-t6")])
def test_the_appendixs_tables_of_tpr_are_shown_with_those_of_the_auc(name, auc_alone):
    found, study = catalogue.load(name)
    assert found == auc_alone
    assert study.metrics == ("auc", "tpr_at_5fpr")


def test_place_and_title(study):
    assert study.place.split(",")[0] in ("FSD", "SURP", "DC-PDD")
    assert study.title.endswith("?")


def test_detectors_exist_with_their_settings_and_differ(study):
    loaded = load_detectors(study.detectors)
    assert len({detector.name for detector in loaded}) == len(loaded) > 0
    assert not study.against or study.against in {detector.name for detector in loaded}
    assert at_small_scale(study).detectors


def test_settings_exist(study):
    levels = [change for axis in study.axes for form in (axis.levels, axis.small or {}) for change in form.values()]
    for change in [*levels, study.settings, study.small_settings]:
        job, texts = with_settings(FSDConfig(), TextOptions(), change)
        for key, value in change.items():
            group, _, name = key.partition(".")
            target = texts if group == "texts" else getattr(job, group)
            assert name in {field.name for field in fields(target)}
            assert getattr(target, name) == value


def test_rows_and_columns_are_varied(study):
    axes = {SETTING} if study.one_at_a_time else {axis.name for axis in study.axes}
    settings = {name for detection in study.detectors for name in detection.settings}
    shown = [*study.rows, *study.columns]
    assert set(shown) <= {*axes, *settings, "detector", "state", "metric"}
    assert len(set(shown)) == len(shown)
    # no two numbers share a position in the table
    assert axes <= {*shown}
    assert len(study.metrics) == 1 or "metric" in shown
    assert len(study.states) == 1 or "state" in shown
    assert len(study.detectors) == 1 or {"detector", *settings} & {*shown}
    assert "auc" in study.metrics


def test_axes_of_the_figure_exist(study):
    axes = {axis.name for axis in study.axes} | {name for d in study.detectors for name in d.settings}
    assert not study.x or study.x in axes
    assert not study.y or study.y in axes
    assert bool(study.x) == (study.figure in ("curve", "heat map"))
    assert bool(study.y) == (study.figure == "heat map")
    assert study.figure not in ("roc", "scores") or (not study.axes and study.trained)


def test_small_scale_is_small_and_embedded(study):
    cells = plan("it", study, StudyConfig())
    assert 1 <= len(cells) <= SMALL_CELLS
    for cell in cells:
        assert cell.config.model.model in catalogue.EMBEDDED_MODELS
        assert all(entry.startswith("embedded") for entry in (*cell.config.data.data, *cell.texts.other))


def test_flags_replace_model_data_and_frequencies(study, config):
    if study.has_foreign_texts:
        config = replace(config, other=("other.jsonl",))
    for cell in plan("it", study, config):
        assert cell.config.model.model == "a/model"
        assert cell.config.data.data == ("texts.jsonl",)
        assert cell.config.model.frequencies == "a.npz"
        assert cell.texts.other in ((), ("other.jsonl",))


def test_full_scale_uses_published_benchmarks(study):
    config = StudyConfig(scale="full", model=("a/model",), frequencies=("a.npz",))
    for cell in plan("it", study, config):
        for entry in (*cell.config.data.data, *cell.texts.other):
            name, _, part = entry.partition(":")
            known = benchmarks.sources()[name].parts
            assert not part or part in known or part in {whole.partition("/")[0] for whole in known}


def test_axes_replaced_by_flags_vary_only_the_setting_of_the_flag(study):
    settings = {MODEL: "model.model", DATA: "data.data", FREQUENCIES: "model.frequencies"}
    for axis in study.axes:
        if axis.name in settings:
            allowed = {settings[axis.name], "texts.other"}  # which --other replaces
            assert all(set(change) <= allowed for change in axis.levels.values())
