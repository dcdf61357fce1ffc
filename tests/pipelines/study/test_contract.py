"""What every file in pipelines/studies must keep to."""

from dataclasses import fields

import pytest

from fsd.config import FSDConfig
from fsd.data import benchmarks
from pipelines.study import spec as studies
from pipelines.study.cells import load_detectors, small_form
from pipelines.study.grid import SETTING, Request, apply, plan
from pipelines.study.spec import DATA, FREQUENCIES, MODEL, Study, Texts

NAMES = studies.names()
SMALL_CELLS = 9
WANTED = {
    *(f"fsd-t{number}" for number in (1, 2, 3, 4, 5, 6, 14, 15, 16)),
    *(f"fsd-fig{number}" for number in (2, 3, 4, 5, 6)),
    *("surp-t1", "surp-t2", "surp-t3", "surp-fig3", "surp-fig4"),
    *("dcpdd-t2", "dcpdd-t3", "dcpdd-t4", "dcpdd-t5", "dcpdd-fig2", "dcpdd-fig3"),
}


@pytest.fixture(params=NAMES)
def study(request) -> Study:
    return studies.read(request.param)


@pytest.fixture(params=["small", "full"])
def request_of(request) -> Request:
    return Request(scale=request.param, model=("a/model",), data=("texts.jsonl",), frequencies=("a.npz",))


def test_every_table_and_figure_of_the_papers_is_there():
    named = {*NAMES, *(other for name in NAMES for other in studies.read(name).also)}
    assert named == WANTED


def test_other_names_are_nobody_elses():
    others = [other for name in NAMES for other in studies.read(name).also]
    assert len({*others, *NAMES}) == len(others) + len(NAMES)
    assert studies.load("fsd-fig6")[0] == "fsd-fig4"


def test_it_says_what_it_is(study):
    assert study.place.split(",")[0] in ("FSD", "SURP", "DC-PDD")
    assert study.title.endswith("?")


def test_detectors_exist_with_their_settings_and_differ(study):
    loaded = load_detectors(study.detectors)
    assert len({detector.name for detector in loaded}) == len(loaded) > 0
    assert not study.against or study.against in {detector.name for detector in loaded}
    assert small_form(study).detectors


def test_settings_exist(study):
    levels = [change for axis in study.axes for form in (axis.levels, axis.small or {}) for change in form.values()]
    for change in [*levels, study.settings, study.small_settings]:
        config, texts = apply(FSDConfig(), Texts(), change)
        for key, value in change.items():
            group, _, name = key.partition(".")
            target = texts if group == "texts" else getattr(config, group)
            assert name in {field.name for field in fields(target)}
            assert getattr(target, name) == value


def test_rows_and_columns_are_things_that_vary(study):
    axes = {SETTING} if study.apart else {axis.name for axis in study.axes}
    settings = {name for detection in study.detectors for name in detection.settings}
    shown = [*study.rows, *study.columns]
    assert set(shown) <= {*axes, *settings, "detector", "state", "metric"}
    assert len(set(shown)) == len(shown)
    # nothing may stand in the same place: what has several values is told apart
    assert axes <= {*shown}
    assert len(study.metrics) == 1 or "metric" in shown
    assert len(study.states) == 1 or "state" in shown
    assert len(study.detectors) == 1 or {"detector", *settings} & {*shown}
    assert "auc" in study.metrics


def test_its_figure_can_be_drawn(study):
    axes = {axis.name for axis in study.axes} | {name for d in study.detectors for name in d.settings}
    assert not study.x or study.x in axes
    assert not study.y or study.y in axes
    assert bool(study.x) == (study.figure in ("curve", "heat map"))
    assert bool(study.y) == (study.figure == "heat map")
    assert study.figure not in ("roc", "scores") or (not study.axes and study.trained)


def test_its_small_form_is_small_and_embedded(study):
    cells = plan("it", study, Request())
    assert 1 <= len(cells) <= SMALL_CELLS
    for cell in cells:
        assert cell.config.model.model in studies.TWINS
        assert all(entry.startswith("embedded") for entry in (*cell.config.data.data, *cell.texts.other))


def test_it_runs_on_what_is_given(study, request_of):
    foreign = any("texts.foreign" in change for axis in study.axes for change in axis.levels.values())
    if foreign:
        request_of = Request(**{**vars(request_of), "other": ("other.jsonl",)})
    for cell in plan("it", study, request_of):
        assert cell.config.model.model == "a/model"
        assert cell.config.data.data == ("texts.jsonl",)
        assert cell.config.model.frequencies == "a.npz"
        assert cell.texts.other in ((), ("other.jsonl",))


def test_the_full_form_names_published_benchmarks(study):
    given = Request(scale="full", model=("a/model",), frequencies=("a.npz",))
    for cell in plan("it", study, given):
        for entry in (*cell.config.data.data, *cell.texts.other):
            name, _, part = entry.partition(":")
            known = benchmarks.source(name).PARTS
            assert not part or part in known or part in {whole.partition("/")[0] for whole in known}


def test_levels_of_the_axes_that_flags_replace_come_from_those_flags(study):
    settings = {MODEL: "model.model", DATA: "data.data", FREQUENCIES: "model.frequencies"}
    for axis in study.axes:
        if axis.name in settings:
            assert all(set(change) <= {settings[axis.name]} for change in axis.levels.values())
