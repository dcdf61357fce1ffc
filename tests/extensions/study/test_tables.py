import json
import math
import re
from collections import Counter
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from extensions.study import catalogue, tables
from extensions.study.catalogue import Axis, DetectorSpec, Study, TextOptions
from extensions.study.cells import PreparedCell
from extensions.study.grid import Cell, StudyConfig, plan
from fsd.config import AdapterConfig, DataConfig, FSDConfig, ModelConfig
from fsd.reporting.report import document, markdown, plain
from fsd.statistics.intervals import Estimate
from fsd.tracking import RunRecord
from pipelines.experiment.experiment import Experiment

METHODS = Axis("method", {"LoRA": {}, "IA3": {}})
TAGS = {"left_out": json.dumps({}), "chosen": json.dumps({})}


def finished(cell, metrics):
    return PreparedCell(cell, Experiment(cell.config, []), ""), RunRecord("run", "", None, TAGS, {}, metrics)


def result(labels, metrics, model="a/b", data=("wikimia",), split="paper", bits=None, **training):
    config = FSDConfig(DataConfig(data=data, split=split), ModelConfig(model, bits=bits), AdapterConfig(**training))
    return finished(Cell(labels, config, TextOptions()), metrics)


def study(**more):
    fields = {"detectors": (DetectorSpec("loss"),), "axes": (METHODS,), "columns": ("state", "method"), **more}
    return Study(place="FSD, Table 6", title="?", **fields)


def results(base=(0.7, 0.7)):
    interval = {"auc_low/loss.base": 0.6, "auc_high/loss.base": 0.8}
    return [
        result({"method": method}, {"auc/loss.base": of_base, **interval, "auc/loss.fsd": fsd})
        for method, of_base, fsd in zip(("LoRA", "IA3"), base, (0.9, 0.85), strict=True)
    ]


def arranged(study, results):
    return tables.arrange(study, tables.measurements(study, results))


def last_line(study, results):
    return markdown(tables.layout(study, arranged(study, results))).splitlines()[-1]


def test_a_cell_ends_neither_by_a_line_break_nor_by_a_bar():
    table = plain(["name", "a|b"], [["x\r\ny\u2028z", "one\\|two"], ["", "\\\\"]])
    lines = markdown(table).splitlines()
    assert lines[2:] == ["| x y z | one\\\\\\|two |", "|  | \\\\ |"]
    # As GitHub's Markdown divides a row: a backslash takes the sign after it along.
    for line in lines:
        assert len(re.findall(r"(?:\\[!-/:-@\[-`{-~]|[^|])+", line.strip("|"))) == 2


def test_the_card_of_an_adapter_has_a_row_for_each_fact():
    base = SimpleNamespace(id="a\nb|c", revision="", fingerprint="f", ending="")
    page = document("card.md", name="n", base=base, method="lora", training="r 4\nalpha", texts="x.jsonl\r|y", signs=[])
    rows = [line for line in page.splitlines() if line.startswith(("| Base", "| Method", "| Texts"))]
    assert rows == [
        "| Base | `a b\\|c`, revision local, weights f |",
        "| Method | r 4 alpha |",
        "| Texts | x.jsonl \\|y |",
    ]


def test_the_papers_layout():
    table = arranged(study(), results())
    assert markdown(tables.layout(study(), table)) == (
        "| detector | base | FSD · LoRA | FSD · IA3 |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| loss | .70 [.60, .80] | .90 | .85 |\n"
    )
    assert tables.frame(study(), table).to_dict("records") == [
        {"detector": "loss", "base": 0.7, "FSD · LoRA": 0.9, "FSD · IA3": 0.85}
    ]
    apart = tables.frame(study(), arranged(study(), results(base=(0.7, 0.6))))  # base scores that differ
    assert list(apart) == ["detector", "base · LoRA", "base · IA3", "FSD · LoRA", "FSD · IA3"]


def test_one_row_a_number_with_its_run():
    frame = tables.measurements(study(), results())
    assert len(frame) == 4
    assert frame.drop(columns="paper").iloc[0].to_dict() == {
        "method": "LoRA", "detector": "loss", "state": "base", "metric": "AUC",
        "value": 0.7, "low": 0.6, "high": 0.8, "run": "run",
    }  # fmt: skip


def test_a_missing_number_is_a_dash_and_without_training_the_base_score_is_shown():
    grid = study(detectors=(DetectorSpec("loss"), DetectorSpec("zlib")), columns=("state",), axes=())
    cell = result({}, {"auc/loss.base": 0.7, "auc/loss.fsd": 0.9, "auc/zlib.base": 0.6, "auc/zlib.fsd": None})
    assert last_line(grid, [cell]) == "| zlib | .60 | – |"
    measured = tables.measurements(study(states=("fsd",)), [result({"method": "none"}, {"auc/loss.base": 0.7})])
    assert measured["value"].tolist() == [0.7]


def test_numbers_of_the_paper_are_shown_for_the_same_model_texts_and_method():
    values = {("", "base"): 0.7, ("LoRA", "fsd"): 0.91, ("IA3", "fsd"): 0.92}
    paper = {("a/b", "wikimia", "loss", method, state, "auc"): value for (method, state), value in values.items()}
    grid, metrics = study(paper=paper), {"auc/loss.fsd": 0.8, "auc/loss.base": 0.6}
    cells = [result({"method": method}, metrics) for method in ("LoRA", "IA3", "AdaLoRA")]
    assert last_line(grid, cells) == "| loss | .60 (paper .70) | .80 (paper .91) | .80 (paper .92) | .80 |"
    assert tables.frame(grid, arranged(grid, cells)).loc[0, "FSD · IA3 (paper)"] == 0.92
    for other in ({"model": "a/c"}, {"data": ("wikimia:64",)}, {"split": "grouped"}, {"rank": 4}, {"bits": 4}):
        assert "paper" not in last_line(grid, [result({"method": "LoRA"}, metrics, **other)])


def test_numbers_of_the_paper_stay_in_their_row_beside_one_without():
    specs = (DetectorSpec("loss"), DetectorSpec("zlib"))
    grid = study(
        detectors=specs, axes=(), columns=("state",), paper={("a/b", "wikimia", "zlib", "", "base", "auc"): 0.6}
    )
    cell = result({}, {"auc/loss.base": 0.7, "auc/zlib.base": 0.5})
    printed = tables.frame(grid, arranged(grid, [cell])).set_index("detector")["base (paper)"]
    assert printed.fillna(0).to_dict() == {"loss": 0, "zlib": 0.6}


def test_settings_of_a_detector_tell_the_papers_numbers_apart():
    caps = tuple(DetectorSpec("dc_pdd", {"cap": cap}, f"a = {cap:g}") for cap in (0.01, 10.0))
    paper = {("a/b", "wikimia", "dc_pdd", "a = 10", "base", "auc"): 0.6}
    grid = study(axes=(), detectors=caps, columns=("metric",), states=("base",), paper=paper)
    cell = result({}, {f"auc/{d.key}.base": 0.5 for d in caps})
    assert markdown(tables.layout(grid, arranged(grid, [cell]))).splitlines()[2:] == [
        "| a = 0.01 | .50 |",
        "| a = 10 | .50 (paper .60) |",
    ]


def test_the_papers_numbers_are_those_of_the_declared_cells():
    shown = {"fsd-t1": (0, 160), "fsd-t3": (1, 32), "fsd-t6": (1, 48), "fsd-t16": (1, 72), "surp-t1": (0, 84)}
    for name, (given, found) in shown.items():
        declared = catalogue.studies()[name]
        metrics = {
            f"{m}/{d.key}.{s}": 0.5 for m in declared.metrics for d in declared.detectors for s in declared.states
        }
        cells = plan(name, declared, StudyConfig(scale="full", model=("huggyllama/llama-7b",) * given, split="paper"))
        measured = tables.measurements(declared, [finished(cell, metrics) for cell in cells])
        assert measured["paper"].notna().sum() == found, name
    one_at_a_time = catalogue.studies()["fsd-t16"]
    of_rank_8 = StudyConfig(scale="full", split="paper", training=AdapterConfig(rank=8))
    kept = [c.name for c in plan("it", one_at_a_time, of_rank_8) if tables._as_printed(one_at_a_time, c)]
    assert kept == ["rank 8", "rank 16", "rank 32"]


def shown_at_full_scale(name, declared, folder):
    """Model, texts, detector, state, metric and number of what the paper prints and a cell of a study shows."""
    given = [{}]
    if declared.benchmark:
        given = [{"data": (f"{declared.benchmark}:FILE",)}, {"data": ("bookmia",)}]
    elif name == "dcpdd-t2":
        given += [{"data": ("bookmia",)}, {"data": ("patentmia:FILE",), "model": ("Qwen/Qwen1.5-14B",)}]
    elif name == "dcpdd-t4":
        files = [folder / f"{labels[3]}.npz" for labels in declared.paper]
        for file in files:
            file.touch()
        given = [{"frequencies": tuple(map(str, files))}]
    for more, spec, state, metric in product(given, declared.detectors, declared.states, declared.metrics):
        for cell in plan(name, declared, StudyConfig(scale="full", split="paper", **more)):
            measured = "base" if cell.texts.unseen_count == 0 else state
            number = tables._printed(declared, cell, spec, measured, metric)
            data = ", ".join(cell.config.data.data).partition(":FILE")[0]
            yield cell.config.model.model, data, spec.name, measured, metric, number


def test_every_printed_number_is_shown_but_those_that_the_page_counts(tmp_path):
    """35 of Dolma-Book, 32 of GPT-3 and Baichuan-13B, 4 of SURP's prose, and 1 of a month that is not on record."""
    missing = Counter()
    for name, declared in catalogue.studies().items():
        shown = set(shown_at_full_scale(name, declared, tmp_path))
        for (model, data, detector, _, state, metric), number in declared.paper.items():
            if (model, data, detector, state, metric, number) not in shown:
                missing["dolma_book" if data.startswith("dolma_book") else model] += 1
    unpublished = {"dolma_book": 35, "GPT-3": 15, "Baichuan-13B": 17}
    assert missing == unpublished | {"huggyllama/llama-13b": 4, "EleutherAI/pythia-6.9b": 1}
    page = (Path(__file__).parents[3] / "docs" / "papers.md").read_text(encoding="utf-8")
    for count in ("35 numbers", "32 numbers", "four rates, not shown", ".734 is not shown"):
        assert count in page


def test_a_table_named_as_the_papers_corpus_shows_the_papers_numbers(tmp_path):
    declared, files = catalogue.studies()["dcpdd-t4"], [tmp_path / f"{name}.npz" for name in ("C4 1Gb", "mine")]
    for file in files:
        file.touch()
    cells = plan("it", declared, StudyConfig(scale="full", frequencies=tuple(map(str, files))))
    measured = tables.measurements(declared, [finished(cell, {"auc/dc_pdd.base": 0.5}) for cell in cells])
    assert measured["frequencies"].tolist() == ["C4 1Gb", "mine"]
    assert measured["paper"].tolist() == pytest.approx([0.688, math.nan], nan_ok=True)


def test_settings_of_one_detector_are_rows_and_columns():
    pairs = [(1.0, 10.0), (1.0, 20.0), (2.0, 10.0), (2.0, 20.0)]
    variants = tuple(DetectorSpec("surp", {"entropy": e, "k": k}) for e, k in pairs)
    grid = study(axes=(), detectors=variants, rows=("entropy",), columns=("k",), states=("base",))
    cell = result({}, {f"auc/{d.key}.base": 0.5 + n / 10 for n, d in enumerate(variants)})
    frame = tables.frame(grid, arranged(grid, [cell]))
    assert frame.to_dict("list") == {"entropy": ["1", "2"], "10": [0.5, 0.7], "20": [0.6, 0.8]}


@pytest.mark.parametrize(("value", "text"), [(0.0001, "<.001"), (0.0314, ".031"), (1.0, "1.000")])
def test_p_values(value, text, monkeypatch):
    row = {"detector": "loss", "state": "base", "metric": "p against dc_pdd", "paper": math.nan, "run": "run"}
    tests = [{**row, **dict.fromkeys(("value", "low", "high"), value)}]
    monkeypatch.setattr(tables, "_paired_tests", lambda *_: tests)
    grid = study(columns=("metric",), axes=(), states=("base",))
    assert last_line(grid, [result({}, {})]) == f"| loss | {text} |"


def test_a_curve_has_a_panel_for_each_metric_that_the_paper_draws():
    study = catalogue.studies()["fsd-fig4"]
    measured = pd.DataFrame({"metric": ["AUC", "AUC", "TPR@5%FPR", "TPR@5%FPR"], "unseen texts": ["0", "30"] * 2})
    measured = measured.assign(detector="zlib", state="FSD", **Estimate(0.6, 0.5, 0.7)._asdict())
    figure = tables._curve(study, measured, "title")
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["AUC", "TPR@5%FPR"]
