"""The contract of every declaration in catalogue.yaml, and the cells that it consists of."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from detectors import load
from extensions.study import catalogue
from extensions.study.catalogue import DATA, FLAGS
from extensions.study.cells import BELOW, at_small_scale, load_detectors
from extensions.study.grid import SETTING, StudyConfig, plan
from fsd.data import benchmarks
from fsd.net.hub import EMBEDDED
from fsd.statistics.metrics import METRICS

STUDIES = catalogue.studies()
SMALL_CELLS = 9
EXPECTED = {
    *(f"fsd-t{number}" for number in (1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16)),
    *(f"fsd-fig{number}" for number in (2, 3, 4, 5, 6)),
    *("surp-t1", "surp-t2", "surp-t3", "surp-fig2", "surp-fig3", "surp-fig4", "surp-fig4-tail"),
    *("surp-tpr", "surp-tpr-mimir", "surp-tpr-books", "surp-books512", "surp-dedup", "surp-temporal"),
    *("domains", "truth"),
    *("dcpdd-t2", "dcpdd-t3", "dcpdd-t4", "dcpdd-t5", "dcpdd-fig2", "dcpdd-fig3"),
}


def planned(name, **more):
    return plan(name, STUDIES[name], StudyConfig(**more))


def test_every_table_and_figure_has_one_study():
    names = [name for known, study in STUDIES.items() for name in (known, *study.aliases)]
    assert sorted(names) == sorted(EXPECTED)
    for alias, name in (("FSD-T11", "fsd-t1"), ("fsd-t12", "fsd-t2"), ("fsd-t13", "fsd-t5")):
        assert catalogue.load(alias) == (name, STUDIES[name])
        assert STUDIES[name].metrics == ("auc", "tpr_at_5fpr")


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
        ("surp-tpr-mimir", pythias, mimir),
        ("surp-dedup", "pythia-2.8b " + " ".join(f"pythia-{size}b-deduped" for size in ("2.8", "6.9", "12")), mimir),
        ("surp-fig2", "gpt-neo-2.7B", {"mimir:dm_mathematics/ngram_7_0.2"}),
        ("surp-fig3", "llama-13b", {"wikimia:64"}),
        ("dcpdd-t2", "opt-6.7b pythia-6.9b llama-13b gpt-neox-20b", {"wikimia:128"}),
    ):
        cells = planned(name, scale="full")
        assert {cell.config.model.model.partition("/")[2] for cell in cells} == set(models.split()), name
        assert {entry for cell in cells for entry in cell.config.data.data} == data, name


def test_the_detectors_of_surp_are_those_of_the_paper():
    """Min-K% has the grid of detect-pretrain-code, without 1, which is PPL; reference is a difference, as in MIMIR."""
    assert load("surp").settings["k"] == 40.0  # which the label names and the settings do not
    for name, study in STUDIES.items():
        if not name.startswith("surp-") or study.figure in ("tokens", "heat map"):
            continue
        shown = {detector.shown: detector for detector in study.detectors}
        assert shown["reference"].settings == {"difference": True}, name
        assert shown["surp (ε_e = 2.5, k = 40)"].settings == {"entropy": 2.5}, name
        if not study.trained:
            grid = [detector.settings["k"] for detector in shown["min_k best of grid"].grid]
            assert grid == [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], name
    baselines = {detector.name for detector in STUDIES["surp-fig3"].detectors}
    assert baselines == {"loss", "reference", "lowercase", "zlib", "neighbour", "min_k", "surp"}
    assert {detector.shown for detector in STUDIES["dcpdd-t2"].detectors} >= {"reference"}
    for name in ("surp-tpr", "surp-tpr-mimir", "surp-tpr-books"):
        assert STUDIES[name].metrics == ("auc", "tpr_at_1fpr", "tpr_at_5fpr", "tpr_at_10fpr")


def test_printed_numbers_are_of_studies_or_sizes_of_benchmarks():
    with catalogue.PAPERS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len({tuple(value for name, value in row.items() if name != "value") for row in rows}) == 1000
    sizes = [row for row in rows if row["metric"] == "texts"]
    assert {row["place"] for row in sizes} == {"fsd-t7", "fsd-t8", "dcpdd-t1"}
    assert {row["place"] for row in rows if row not in sizes} < EXPECTED
    assert all(0 < float(row["value"]) < 1 for row in rows if row not in sizes)


def test_the_numbers_of_texts_and_the_steps_are_those_of_the_papers():
    def texts(name):
        options = {(cell.texts.reserved, cell.texts.tested) for cell in planned(name, scale="full")}
        return options, [cell.texts.unseen_count for cell in planned(name, scale="full")]

    assert texts("fsd-fig2") == ({(100, 630)}, [None])
    assert texts("fsd-fig4") == ({(300, 465)}, [0, 30, 50, 100, 150, 200, 250, 300])
    assert texts("fsd-fig6") == ({(500, 1400)}, [*range(0, 501, 50)])
    assert {cell.texts.validated for cell in planned("fsd-t3", scale="full")} == {500}
    assert {(c.texts.words, c.texts.where) for c in planned("surp-fig4-tail", scale="full", data=("a.jsonl",))} == {
        (1024, "tail")
    }


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_every_declaration(study):
    assert study.place.split(",")[0] in ("FSD", "SURP", "DC-PDD", catalogue.OWN)
    assert study.title.endswith("?")
    loaded = load_detectors(study.detectors)
    assert len({detector.name for detector in loaded}) == len(loaded) > 0
    assert not study.against or study.against in {detector.name for detector in loaded}
    assert at_small_scale(study).detectors
    assert not (study.trained and any(detector.grid for detector in study.detectors))  # chosen by base scores

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
    assert study.figure not in ("roc", "scores", "before and after") or (not study.axes and study.trained)
    assert {metric.removesuffix(BELOW) for metric in study.metrics} <= METRICS.keys()
    assert all(cell.texts.tested for cell in plan("it", study, StudyConfig()) if cell.texts.reserved)
    assert study.source or study.place.startswith(catalogue.OWN)
    assert not study.benchmark or study.benchmark in benchmarks.sources()


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_every_plan(study):
    cells = plan("it", study, StudyConfig())
    assert 1 <= len(cells) <= SMALL_CELLS
    for cell in cells:
        assert cell.config.model.model in EMBEDDED
        assert all(entry.startswith("embedded") for entry in (*cell.config.data.data, *cell.texts.other))
    for cell in plan("it", study, StudyConfig(scale="full", model=("a/model",), frequencies=("a.npz",))):
        for entry in (*cell.config.data.data, *cell.texts.other):
            name, _, part = entry.partition(":")
            known = benchmarks.sources()[name].parts
            assert (
                not part or part in known or part in {whole.partition("/")[0] for whole in known} or "FOLDER" in known
            )
    # flags replace model, data and frequencies, whose axes vary nothing else
    for axis in study.axes:
        if axis.name in FLAGS:
            allowed = {FLAGS[axis.name]["setting"], *(["texts.other", "texts.tested"] if axis.name == DATA else [])}
            assert all(set(change) <= allowed for change in axis.levels.values())
    other = ("other.jsonl",) if study.has_foreign_texts else ()
    config = StudyConfig(model=("a/model",), data=("texts.jsonl",), frequencies=("a.npz",), other=other)
    for scale in ("small", "full"):
        for cell in plan("it", study, replace(config, scale=scale)):
            assert (cell.config.model.model, cell.config.model.frequencies) == ("a/model", "a.npz")
            assert cell.config.data.data == ("texts.jsonl",)
            assert cell.texts.other in ((), other)


RATES = {"rate": {"setting": "training.learning_rate", "levels": {"low": 1e-4, "high": 1e-3}}}
RANKS = {"rank": {"setting": "training.rank", "levels": [8, 16], "small": [16]}}
FULL = StudyConfig(model=("a/model",), data=("texts.jsonl",), scale="full")


def cells_of(config, axes=None, **more):
    declared = {"place": "A, Table 1", "title": "?", "detectors": ["loss"], "axes": axes or {}}
    return plan("s", catalogue.parse("s", {**declared, **more}), config)


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
    # files are merged unless benchmarks are compared; without texts another model has the published benchmark
    (cell,) = cells_of(StudyConfig(model=("a/b",), data=("one.jsonl", "two.jsonl")))
    assert cell.config.data.data == ("one.jsonl", "two.jsonl")
    (cell,) = cells_of(StudyConfig(model=("a/b",)), settings={"data.data": "wikimia:64"})
    assert cell.config.data.data == ("wikimia:64",)
    # folders of the same name are different models
    folders = tuple(str(tmp_path / parent / "model") for parent in "ab")
    for folder in folders:
        Path(folder).mkdir(parents=True)
    cells = cells_of(StudyConfig(model=folders, data=("texts.jsonl",)), {"model": ["x/y"]})
    assert [cell.config.model.model for cell in cells] == [*folders]
    for given, model in (
        ({"scale": "full"}, "huggyllama/llama-7b"),
        ({"scale": "full", "model": ("a/b",)}, "a/b"),
        ({"model": ("a/b",)}, "a/b"),
        ({}, "embedded"),
    ):
        assert planned("fsd-t6", **given)[0].config.model.model == model


@pytest.mark.parametrize("model", ["embedded", "embedded-twin", "a/b"])
@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_files_are_read_wherever_texts_are_an_axis(study, model):
    files = ("one.jsonl", "two.jsonl")
    other = ("other.jsonl",) if study.has_foreign_texts else ()
    cells = plan("it", study, StudyConfig(model=(model,), data=files, other=other, frequencies=("f.npz",)))
    compared = {"data", "domain", "benchmark"} & {axis.name for axis in study.axes}
    read = {cell.labels[name]: cell.config.data.data for cell in cells for name in compared}
    assert read == ({file: (file,) for file in files} if compared else {})
    assert {cell.config.data.data for cell in cells} == ({(file,) for file in files} if compared else {files})
    assert {cell.config.model.model for cell in cells} == {model}


def test_each_model_has_its_own_table_and_reference_model_or_all_share_one():
    def given(frequencies, references):
        cells = planned("dcpdd-t2", scale="full", frequencies=frequencies, reference_model=references)
        models = [cell.config.model for cell in cells]
        return {(model.model.partition("/")[2], model.frequencies, model.reference_model) for model in models}

    names = ("opt-6.7b", "pythia-6.9b", "llama-13b", "gpt-neox-20b")
    tables, references = ("o.npz", "p.npz", "l.npz", "n.npz"), ("opt", "pythia", None, "neo")
    assert given(tables, references) == set(zip(names, tables, references, strict=True))
    assert given(("t.npz",), ("r",)) == {(name, "t.npz", "r") for name in names}
    of_the_paper = {"opt-6.7b": "opt-350m", "pythia-6.9b": "pythia-70m", "llama-13b": "llama-7b"}
    taken = {(name, reference.partition("/")[2]) for name, _, reference in given((), ())}
    assert taken == {*of_the_paper.items(), ("gpt-neox-20b", "gpt-neo-125m")}


def test_the_papers_reference_models_are_taken_by_the_study_for_its_models_alone():
    def references(name, **more):
        return {c.config.model.model: c.config.model.reference_model for c in planned(name, **more)}

    assert references("surp-t2", scale="full") == {
        "allenai/OLMo-1B-hf": None,
        "allenai/OLMo-7B-hf": "allenai/OLMo-1B-hf",
    }
    assert references("dcpdd-t2", scale="full", model=("Qwen/Qwen1.5-14B",)) == {"Qwen/Qwen1.5-14B": "Qwen/Qwen1.5-7B"}
    assert references("dcpdd-t2", scale="full", model=("a/b",), data=("a.jsonl",)) == {"a/b": None}
    assert references("surp-temporal", scale="full") == {"EleutherAI/pythia-6.9b": "EleutherAI/pythia-70m"}
    assert references("surp-t1") == {"embedded": None, "embedded-twin": None}
