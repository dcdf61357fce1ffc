import math
from dataclasses import replace

from fsd.config import DataConfig, FSDConfig, ModelConfig
from fsd.reporting.report import markdown
from pipelines.study import catalogue, tables
from pipelines.study.catalogue import Axis, DetectorSpec, Study, TextOptions
from pipelines.study.cells import CellResult
from pipelines.study.grid import Cell, StudyConfig, plan

METHODS = Axis("method", {"LoRA": {}, "IA3": {}})


def result(labels, **metrics):
    named = {name.replace("__", "/").replace("_of_", "."): value for name, value in metrics.items()}
    return CellResult(Cell(labels, FSDConfig(), TextOptions()), "run", named, {}, reused=False)


def study(**more):
    fields = {"detectors": (DetectorSpec("loss"),), "axes": (METHODS,), "columns": ("state", "method"), **more}
    return Study(place="FSD, Table 6", title="?", **fields)


def results(base=(0.7, 0.7)):
    return [
        result({"method": method}, auc__loss_of_base=b, auc_low__loss_of_base=0.6, auc_high__loss_of_base=0.8, **fsd)
        for method, b, fsd in zip(
            ("LoRA", "IA3"), base, ({"auc__loss_of_fsd": 0.9}, {"auc__loss_of_fsd": 0.85}), strict=True
        )
    ]


def arranged(study, results):
    return tables.arrange(study, tables.measurements(study, results))


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


def test_base_scores_that_differ_stay_apart():
    table = tables.frame(study(), arranged(study(), results(base=(0.7, 0.6))))
    assert list(table) == ["detector", "base · LoRA", "base · IA3", "FSD · LoRA", "FSD · IA3"]


def test_a_missing_number_is_a_dash():
    grid = study(detectors=(DetectorSpec("loss"), DetectorSpec("zlib")), columns=("state",), axes=())
    cell = result({}, auc__loss_of_base=0.7, auc__loss_of_fsd=0.9, auc__zlib_of_base=0.6)
    cell.metrics["auc/zlib.fsd"] = None
    assert markdown(tables.layout(grid, arranged(grid, [cell]))).splitlines()[-1] == "| zlib | .60 | – |"


def test_cells_without_training_show_the_base_score():
    grid = study(states=("fsd",))
    measured = tables.measurements(grid, [result({"method": "none"}, auc__loss_of_base=0.7)])
    assert measured["value"].tolist() == [0.7]


def of(labels, model="a/b", data=("wikimia",), **metrics):
    """A result of a cell with a model and texts."""
    made = result(labels, **metrics)
    return replace(made, cell=replace(made.cell, config=FSDConfig(DataConfig(data=data), ModelConfig(model))))


def test_numbers_of_the_paper_are_shown_for_the_same_model_texts_and_method():
    values = {("", "base"): 0.7, ("LoRA", "fsd"): 0.91, ("IA3", "fsd"): 0.92}
    paper = {("a/b", "wikimia", "loss", method, state, "auc"): value for (method, state), value in values.items()}
    grid = study(paper=paper)
    base = {"auc__loss_of_base": 0.6}
    cells = [of({"method": m}, auc__loss_of_fsd=0.8, **base) for m in ("LoRA", "IA3", "AdaLoRA")]
    table = arranged(grid, cells)
    line = "| loss | .60 (paper .70) | .80 (paper .91) | .80 (paper .92) | .80 |"
    assert markdown(tables.layout(grid, table)).splitlines()[-1] == line
    assert tables.frame(grid, table).loc[0, "FSD · IA3 (paper)"] == 0.92
    for other in ({"model": "a/c"}, {"data": ("wikimia:64",)}):
        table = arranged(grid, [of({"method": "LoRA"}, auc__loss_of_fsd=0.8, **base, **other)])
        assert "paper" not in markdown(tables.layout(grid, table))


def test_settings_of_a_detector_tell_the_papers_numbers_apart():
    caps = tuple(DetectorSpec("dc_pdd", {"cap": cap}, f"a = {cap:g}") for cap in (0.01, 10.0))
    paper = {("a/b", "wikimia", "dc_pdd", "a = 10", "base", "auc"): 0.6}
    grid = study(axes=(), detectors=caps, columns=("metric",), states=("base",), paper=paper)
    cell = of({})
    cell.metrics.update({f"auc/{d.key}.base": 0.5 for d in caps})
    lines = markdown(tables.layout(grid, arranged(grid, [cell]))).splitlines()[2:]
    assert lines == ["| a = 0.01 | .50 |", "| a = 10 | .50 (paper .60) |"]


def test_the_papers_numbers_are_those_of_the_declared_cells():
    for name, given, found in (("fsd-t6", 1, 16), ("fsd-t1", 0, 160), ("fsd-t16", 1, 72)):
        study = catalogue.studies()[name]
        metrics = {f"{m}/{d.key}.{s}": 0.5 for m in study.metrics for d in study.detectors for s in study.states}
        cells = plan(name, study, StudyConfig(scale="full", model=("huggyllama/llama-7b",) * given))
        measured = tables.measurements(study, [CellResult(c, "run", metrics, {}, reused=False) for c in cells])
        assert measured["paper"].notna().sum() >= found, name


def test_settings_of_one_detector_are_rows_and_columns():
    pairs = [(1.0, 10.0), (1.0, 20.0), (2.0, 10.0), (2.0, 20.0)]
    variants = tuple(DetectorSpec("surp", {"entropy": e, "k": k}) for e, k in pairs)
    grid = study(axes=(), detectors=variants, rows=("entropy",), columns=("k",), states=("base",))
    cell = result({})
    cell.metrics.update({f"auc/{d.key}.base": 0.5 + n / 10 for n, d in enumerate(variants)})
    frame = tables.frame(grid, arranged(grid, [cell]))
    assert frame.to_dict("list") == {"entropy": ["1", "2"], "10": [0.5, 0.7], "20": [0.6, 0.8]}


def test_p_values(monkeypatch):
    grid = study(columns=("metric",), axes=(), states=("base",))
    row = {"detector": "loss", "state": "base", "metric": "p against dc_pdd", "paper": math.nan, "run": "run"}
    for value, text in ((0.0001, "<.001"), (0.0314, ".031"), (1.0, "1.000")):
        tests = [{**row, "value": value, "low": value, "high": value}]
        monkeypatch.setattr(tables, "_paired_tests", lambda *_, tests=tests: tests)
        table = tables.layout(grid, arranged(grid, [result({})]))
        assert table.rows == [["loss", text]]


def test_one_row_a_number_with_its_run():
    frame = tables.measurements(study(), results())
    assert len(frame) == 4
    assert frame.drop(columns="paper").iloc[0].to_dict() == {
        "method": "LoRA", "detector": "loss", "state": "base", "metric": "AUC",
        "value": 0.7, "low": 0.6, "high": 0.8, "run": "run",
    }  # fmt: skip
