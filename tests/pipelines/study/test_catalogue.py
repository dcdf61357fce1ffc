"""The contract of every declaration in catalogue.yaml."""

import csv
from dataclasses import fields, replace

import pytest

from fsd.config import FSDConfig
from fsd.data import benchmarks
from fsd.errors import UsageError
from pipelines.study import catalogue
from pipelines.study.catalogue import DATA, FLAGS, TextOptions
from pipelines.study.cells import at_small_scale, load_detectors
from pipelines.study.grid import SETTING, StudyConfig, plan, with_settings

STUDIES = catalogue.studies()
SMALL_CELLS = 9
EXPECTED = {
    *(f"fsd-t{number}" for number in (1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16)),
    *(f"fsd-fig{number}" for number in (2, 3, 4, 5, 6)),
    *("surp-t1", "surp-t2", "surp-t3", "surp-fig3", "surp-fig4"),
    *("dcpdd-t2", "dcpdd-t3", "dcpdd-t4", "dcpdd-t5", "dcpdd-fig2", "dcpdd-fig3"),
}


def test_every_table_and_figure_has_one_study():
    names = [name for known, study in STUDIES.items() for name in (known, *study.aliases)]
    assert sorted(names) == sorted(EXPECTED)
    for alias, name in (("fsd-fig3", "fsd-fig2"), ("FSD-T11", "fsd-t1"), ("fsd-t12", "fsd-t2"), ("fsd-t13", "fsd-t5")):
        assert catalogue.load(alias) == (name, STUDIES[name])
        assert STUDIES[name].metrics == ("auc", "tpr_at_5fpr")


def test_an_unknown_study_names_the_nearest_one():
    for name, nearest in (("FSD_T6", " (nearest: fsd-t6)"), ("surp-figure4", " (nearest: surp-fig4)"), ("xyz", "")):
        with pytest.raises(UsageError) as error:
            catalogue.load(name)
        assert str(error.value) == f"study must be a name shown by --list{nearest}; got '{name}'"


def test_the_models_and_texts_of_the_paper_are_preset():
    mimir = {f"mimir:{part}" for part in benchmarks.sources()["mimir"].parts if "ngram_7_0.2" in part}
    pythias = "pythia-2.8b pythia-6.9b pythia-12b gpt-neo-2.7B"
    for name, models, data in (
        ("fsd-t6", "llama-7b", {"wikimia"}),
        ("fsd-t14", "pythia-6.9b", {f"pile:{part}" for part in benchmarks.sources()["pile"].parts}),
        ("fsd-t15", "llama-7b", {"wikimia", "arxivtection"}),
        ("fsd-fig5", "llama-7b", {"arxivtection"}),
        ("fsd-fig6", "pythia-6.9b", {"pile:bookcorpus2"}),
        ("surp-t1", f"llama-7b llama-13b {pythias}", {f"wikimia:{words}" for words in (32, 64, 128, 256)}),
        ("surp-t3", pythias, mimir),
        ("surp-fig3", "llama-13b", {"wikimia:64"}),
        ("dcpdd-t2", "opt-6.7b pythia-6.9b llama-13b gpt-neox-20b", {"wikimia:128"}),
    ):
        cells = plan(name, STUDIES[name], StudyConfig(scale="full"))
        assert {cell.config.model.model.partition("/")[2] for cell in cells} == set(models.split()), name
        assert {entry for cell in cells for entry in cell.config.data.data} == data, name


def test_printed_numbers_are_of_studies_or_sizes_of_benchmarks():
    with catalogue.PAPERS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len({tuple(value for name, value in row.items() if name != "value") for row in rows}) == 992
    sizes = [row for row in rows if row["metric"] == "texts"]
    assert {row["place"] for row in sizes} == {"fsd-t7", "fsd-t8", "dcpdd-t1"}
    assert {row["place"] for row in rows if row not in sizes} < EXPECTED
    assert all(0 < float(row["value"]) < 1 for row in rows if row not in sizes)


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
class TestEveryStudy:
    def test_place_title_and_detectors(self, study):
        assert study.place.split(",")[0] in ("FSD", "SURP", "DC-PDD")
        assert study.title.endswith("?")
        loaded = load_detectors(study.detectors)
        assert len({detector.name for detector in loaded}) == len(loaded) > 0
        assert not study.against or study.against in {detector.name for detector in loaded}
        assert at_small_scale(study).detectors
        assert not (study.trained and any(detector.grid for detector in study.detectors))  # chosen by base scores

    def test_settings_exist(self, study):
        levels = [change for axis in study.axes for form in (axis.levels, axis.small or {}) for change in form.values()]
        for change in [*levels, study.settings, study.small_settings]:
            job, texts = with_settings(FSDConfig(), TextOptions(), change)
            for key, value in change.items():
                group, _, name = key.partition(".")
                target = texts if group == "texts" else getattr(job, group)
                assert name in {field.name for field in fields(target)}
                assert getattr(target, name) == value

    def test_rows_columns_and_figure_are_of_what_is_varied(self, study):
        axes = {SETTING} if study.one_at_a_time else {axis.name for axis in study.axes}
        settings = {name for detection in study.detectors for name in detection.settings}
        shown = [*study.rows, *study.columns]
        assert axes <= {*shown} <= {*axes, *settings, "detector", "state", "metric"}
        # no two numbers share a position in the table
        assert len(set(shown)) == len(shown)
        assert len(study.metrics) == 1 or "metric" in shown
        assert len(study.states) == 1 or "state" in shown
        assert len(study.detectors) == 1 or {"detector", *settings} & {*shown}
        assert "auc" in study.metrics
        assert {study.x, study.y} <= {"", *axes, *settings}
        assert bool(study.x) == (study.figure in ("curve", "heat map"))
        assert bool(study.y) == (study.figure == "heat map")
        assert study.figure not in ("roc", "scores") or (not study.axes and study.trained)

    def test_small_scale_is_small_and_embedded(self, study):
        cells = plan("it", study, StudyConfig())
        assert 1 <= len(cells) <= SMALL_CELLS
        for cell in cells:
            assert cell.config.model.model in catalogue.EMBEDDED_MODELS
            assert all(entry.startswith("embedded") for entry in (*cell.config.data.data, *cell.texts.other))

    def test_full_scale_uses_published_benchmarks(self, study):
        config = StudyConfig(scale="full", model=("a/model",), frequencies=("a.npz",))
        for cell in plan("it", study, config):
            for entry in (*cell.config.data.data, *cell.texts.other):
                name, _, part = entry.partition(":")
                known = benchmarks.sources()[name].parts
                assert not part or part in known or part in {whole.partition("/")[0] for whole in known}

    def test_flags_replace_model_data_and_frequencies(self, study):
        for axis in study.axes:  # which vary nothing else
            if axis.name in FLAGS:
                allowed = {FLAGS[axis.name]["setting"], *(["texts.other"] if axis.name == DATA else [])}
                assert all(set(change) <= allowed for change in axis.levels.values())
        config = StudyConfig(model=("a/model",), data=("texts.jsonl",), frequencies=("a.npz",))
        other = ("other.jsonl",) if study.has_foreign_texts else ()
        for scale in ("small", "full"):
            for cell in plan("it", study, replace(config, scale=scale, other=other)):
                assert (cell.config.model.model, cell.config.model.frequencies) == ("a/model", "a.npz")
                assert cell.config.data.data == ("texts.jsonl",)
                assert cell.texts.other in ((), other)
