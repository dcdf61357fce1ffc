import pytest

from fsd.config import FSDConfig
from pipelines.study import tables
from pipelines.study.cells import CellResult
from pipelines.study.grid import Cell
from pipelines.study.spec import Axis, DetectorSpec, Study, TextOptions, model_axis, with_defaults

METHODS = Axis("method", {"LoRA": {}, "IA3": {}})


def result(labels, **metrics):
    named = {name.replace("__", "/").replace("_of_", "."): value for name, value in metrics.items()}
    return CellResult(Cell(labels, FSDConfig(), TextOptions()), "run", named, {}, reused=False)


def study(**more):
    fields = {"detectors": with_defaults("loss"), "axes": (METHODS,), "columns": ("state", "method"), **more}
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
    assert tables.markdown(study(), table) == (
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
    grid = study(detectors=with_defaults("loss", "zlib"), columns=("state",), axes=())
    cell = result({}, auc__loss_of_base=0.7, auc__loss_of_fsd=0.9, auc__zlib_of_base=0.6)
    cell.metrics["auc/zlib.fsd"] = None
    assert tables.markdown(grid, arranged(grid, [cell])).splitlines()[-1] == "| zlib | .60 | – |"


def test_cells_without_training_show_the_base_score():
    grid = study(states=("fsd",))
    measured = tables.measurements(grid, [result({"method": "none"}, auc__loss_of_base=0.7)])
    assert measured["value"].tolist() == [0.7]


def test_numbers_of_the_paper_are_shown_for_the_same_model():
    place = ("a/b", "", "loss", "FSD", "AUC")
    grid = study(axes=(model_axis("a/b", "a/c"),), columns=("model",), states=("fsd",), paper={place: 0.91})
    table = arranged(grid, [result({"model": m}, auc__loss_of_fsd=0.88) for m in ("a/b", "a/c")])
    assert tables.markdown(grid, table).splitlines()[-1] == "| loss | .88 (paper .91) | .88 |"
    assert list(tables.frame(grid, table)) == ["detector", "a/b", "a/b (paper)", "a/c"]
    assert tables.frame(grid, table).loc[0, "a/b (paper)"] == 0.91


def test_settings_of_one_detector_are_rows_and_columns():
    pairs = [(1.0, 10.0), (1.0, 20.0), (2.0, 10.0), (2.0, 20.0)]
    variants = tuple(DetectorSpec("surp", {"entropy": e, "k": k}) for e, k in pairs)
    grid = study(axes=(), detectors=variants, rows=("entropy",), columns=("k",), states=("base",))
    cell = result({})
    cell.metrics.update({f"auc/{d.key}.base": 0.5 + n / 10 for n, d in enumerate(variants)})
    frame = tables.frame(grid, arranged(grid, [cell]))
    assert frame.to_dict("list") == {"entropy": ["1", "2"], "10": [0.5, 0.7], "20": [0.6, 0.8]}


@pytest.mark.parametrize(("value", "text"), [(0.0001, "<.001"), (0.0314, ".031"), (1.0, "1.000")])
def test_p_values(value, text, monkeypatch):
    grid = study(columns=("metric",), axes=(), states=("base",))
    row = {"detector": "loss", "state": "base", "metric": "p against dc_pdd", "run": "run"}
    monkeypatch.setattr(tables, "_paired_tests", lambda *_: [{**row, "value": value, "low": value, "high": value}])
    assert tables.markdown(grid, arranged(grid, [result({})])).splitlines()[-1] == f"| loss | {text} |"


def test_one_row_a_number_with_its_run():
    frame = tables.measurements(study(), results())
    assert len(frame) == 4
    assert frame.iloc[0].to_dict() == {
        "method": "LoRA", "detector": "loss", "state": "base", "metric": "AUC",
        "value": 0.7, "low": 0.6, "high": 0.8, "run": "run",
    }  # fmt: skip
