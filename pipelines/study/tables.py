"""The report of a study: its numbers in one long frame, the paper's table and figure of them, and what they rest on."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from detectors import load
from fsd.config import AdapterConfig
from fsd.evaluation.metrics import Bootstrap, Estimate, best_thresholds, compare, shortened
from fsd.reporting import figures
from fsd.reporting.report import Report, Section, Table, markdown, numbers, plain
from fsd.token_stats import Scores
from fsd.tracking import RunRecord
from pipelines.study.catalogue import BEST, DATA, MODEL, OWN, DetectorSpec, Study
from pipelines.study.cells import METRICS, PreparedCell, read_scores
from pipelines.study.grid import SETTING, Cell, label

STATES = {"base": "base", "fsd": "FSD"}
WIDE = 8
"""Number of columns above which intervals are omitted."""
FALLBACK_SHARE = 0.1
"""Share of texts scored by a fallback above which a note says so."""
MAX_LISTED = 5
"""Maximum number of detectors listed in a note."""
MAX_BANDS = 5
"""Maximum number of lines whose intervals are drawn as bands; the bands of more lines would hide one another."""
SPLITS = {
    "grouped": "grouped: articles and near-duplicates are in one part",
    "paper": "paper: of the rows drawn at random, non-members are trained on and members dropped; near-duplicates may "
    "be in two parts",
}

Results = Sequence[tuple[PreparedCell, RunRecord]]
"""The cells of a study, and the run that holds the numbers and scores of each, which may be of an earlier study."""


def report(study: Study, results: Results, left_out: Mapping[str, str]) -> Report:
    """Table, figure and remarks, as they are printed and logged; `left_out`: cell that could not be run → reason."""
    measured = measurements(study, results)
    arranged = arrange(study, measured)
    table, plain_numbers = layout(study, arranged), frame(study, arranged)
    notes = list(notes_on(study, results, left_out, arranged, table))
    lines = [f"# {study.place}", "", study.title, "", markdown(table), *(f"- {note}" for note in notes), ""]
    return Report(
        headline=f"{study.place}: {study.title}",
        findings=notes,
        sections=[Section("", tables=[table, numbers("results", measured)])],
        artifacts={
            "table.csv": plain_numbers,
            "table.json": plain_numbers,
            "cells.csv": measured,
            "table.md": "\n".join(lines),
            "figure.png": figures.png(figure(study, results[0][1], measured)),
        },
        page="table.md",
    )


def measurements(study: Study, results: Results) -> pd.DataFrame:
    """All numbers that the study shows, cell by cell, then the p-values of its paired tests.

    One row a number: its labels by axis, detector setting, detector, state and metric; `value`, `low` and `high`;
    `paper`, the paper's number, or NaN where anything differs; `run`, the id of the run.
    """
    rows = []
    for ((cell, *_), run), spec, state, metric in product(results, study.detectors, study.states, study.metrics):
        # A cell without training has no FSD; its base score takes the place.
        measured = state if f"auc/{spec.key}.{state}" in run.metrics else "base"
        name = f"{spec.key}.{measured}"
        value = run.metrics.get(f"{metric}/{name}")
        if value is not None:
            low, high = (run.metrics.get(f"{metric}_{end}/{name}", value) for end in ("low", "high"))
            settings = {name: f"{value:g}" for name, value in spec.settings.items()}
            labels = {"detector": spec.shown, "state": STATES[state], "metric": METRICS[metric]}
            found = {"value": value, "low": low, "high": high, "paper": _printed(study, cell, spec, measured, metric)}
            rows.append({**cell.labels, **settings, **labels, **found, "run": run.id})
    return pd.DataFrame([*rows, *_paired_tests(study, results)])


def _printed(study: Study, cell: Cell, spec: DetectorSpec, state: str, metric: str) -> float:
    """The paper's number for the same model, texts, split, training, detector and setting; NaN without one.

    A setting is empty in papers.csv where it makes no difference, as that of the training does to base scores.
    """
    if not _as_printed(study, cell):
        return math.nan
    varied = [label for axis, label in cell.labels.items() if axis not in (MODEL, DATA)]
    data = ", ".join("patentmia" if entry.startswith("patentmia:") else entry for entry in cell.config.data.data)
    settings = [BEST if spec.grid else spec.shown if spec.settings else ", ".join(varied)]
    settings += [""] * ((state == "base" or not varied) and not (spec.grid or spec.settings))
    keys = [(cell.config.model.model, data, spec.name, setting, state, metric) for setting in settings]
    return next((study.paper[key] for key in keys if key in study.paper), math.nan)


def _as_printed(study: Study, cell: Cell) -> bool:
    """Whether the weights are whole, and the split and the training those of the papers but for what is varied."""
    training = vars(cell.config.training)
    other = {f"training.{name}" for name, value in vars(AdapterConfig()).items() if training[name] != value}
    alone = cell.labels.get(SETTING, "") if study.one_at_a_time else ""
    axes = [axis for axis in study.axes if not alone or alone.startswith(f"{axis.name} ")]
    varied = {setting for axis in axes for level in axis.levels.values() for setting in level}
    as_split = not study.trained or cell.config.data.split == "paper"
    return as_split and other <= varied and not cell.config.model.bits


def _paired_tests(study: Study, results: Results) -> Iterator[dict[str, Any]]:
    """p-values of `study.against` against every other detector, Holm-corrected within each cell."""
    shown = {spec.key: spec.shown for spec in study.detectors}
    for (cell, *_), run in results if study.against else ():
        frame = read_scores(run)
        scores = {c.removesuffix(".base"): frame[c].to_numpy() for c in frame.columns if c.endswith(".base")}
        against = scores.pop(study.against, None)
        if against is None:
            continue
        bootstrap = Bootstrap.draw(frame["label"] == 1, list(frame["group"]))
        for name, test in compare(bootstrap, scores, dict.fromkeys(scores, against)).items():
            labels = {"detector": shown[name], "state": "base", "metric": f"p against {shown[study.against]}"}
            p = dict.fromkeys(("value", "low", "high"), test.p_holm)
            yield {**cell.labels, **labels, **p, "paper": math.nan, "run": run.id}


def arrange(study: Study, measured: pd.DataFrame) -> pd.DataFrame:
    """The measurements with their labels ordered as in the table.

    Equal base scores are merged into one column, as where only the training of the adapter is varied.
    """
    headings = [*study.rows, *study.columns]
    varied = {axis.name for axis in study.axes} - {MODEL, DATA}
    columns = [axis for axis in study.columns if axis in varied and measured[axis].nunique() > 1]
    base, merged = measured["state"] == STATES["base"], measured.copy()
    merged.loc[base, columns] = ""
    if study.trained and merged[base].groupby(headings)[["value", "low", "high"]].nunique().le(1).all(axis=None):
        measured = merged
    ordered = measured.assign(**{axis: pd.Categorical(measured[axis], measured[axis].unique()) for axis in headings})
    return ordered.drop_duplicates(headings, keep="last")


def _pivot(study: Study, table: pd.DataFrame, column: str) -> pd.DataFrame:
    """One column of the arranged measurements in the paper's layout, with nested headings in one line."""
    pivot = table.pivot_table(column, list(study.rows), list(study.columns), "first", observed=True)
    pivot.columns = pd.Index([" · ".join(filter(None, labels)) for labels in pivot.columns.to_frame().to_numpy()])
    return pivot


def frame(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """The table with plain numbers, next to them the paper's where they are known."""
    values, paper = _pivot(study, table, "value").round(4), _pivot(study, table, "paper").add_suffix(" (paper)")
    both = values.join(paper)
    return both[[name for value in values for name in (value, f"{value} (paper)") if name in both]].reset_index()


def layout(study: Study, table: pd.DataFrame) -> Table:
    """The table as it is shown, with intervals of AUCs unless it is wide."""
    wide = len(table[list(study.columns)].drop_duplicates()) > WIDE
    texts = table.assign(text=[_text(number, wide=wide) for number in table.itertuples()])
    cells = _pivot(study, texts, "text").fillna("–").reset_index()
    rows = [[*map(str, row)] for row in cells.to_numpy().tolist()]
    return plain([*map(str, cells)], rows, words=range(len(study.rows)), source="table.csv")


def _text(number: Any, *, wide: bool) -> str:
    if number.metric.startswith("p "):
        text = "<.001" if number.value < 5e-4 else shortened(number.value, ".3f")
    elif wide or number.low == number.high:
        text = shortened(number.value)
    else:
        text = str(Estimate(number.value, number.low, number.high))
    return text if math.isnan(number.paper) else f"{text} (paper {shortened(number.paper)})"


def notes_on(
    study: Study, results: Results, left_out: Mapping[str, str], arranged: pd.DataFrame, table: Table
) -> Iterator[str]:
    """What the numbers rest on, and what is missing."""
    configs, runs = [prepared.cell.config for prepared, _ in results], [run for _, run in results]
    models = dict.fromkeys(label(config.model.model) for config in configs)
    data = dict.fromkeys(", ".join(map(label, config.data.data)) for config in configs)
    test, unseen, validation = (
        _range({int(run.metrics[f"texts/{part}"]) for run in runs}) for part in ("test", "unseen", "validation")
    )
    yield from dict.fromkeys(f"{remark}." for prepared, _ in results for remark in prepared.inputs.remarks)
    yield f"Model: {', '.join(models)}. Texts: {'; '.join(data)}; {test} test texts, seed {configs[0].seed}."
    if study.trained:
        how = "; ".join(SPLITS[scheme] for scheme in sorted({config.data.split for config in configs}))
        yield f"Split {how}. Texts: {unseen} unseen, {validation} validation."
    else:
        yield "Base scores of all texts: nothing is split or trained on."
    if "accuracy" in study.metrics and not all(run.metrics["texts/validation"] for run in runs):
        yield "No validation texts: the accuracy is at the best threshold on the tested texts themselves."
    elif "accuracy" in study.metrics:
        yield (
            f"The threshold of the accuracy is set by {validation} validation texts, the highest of equally accurate "
            f"ones{_widest(study, runs)}. The intervals leave this choice out."
        )
    if any("[" in cell for row in table.rows for cell in row):
        yield "In brackets: 95 % bootstrap intervals, resampled by groups of related texts."
    blind = {round(run.metrics["audit/blind_auc"], 2) for run in runs if "audit/blind_auc" in run.metrics}
    if blind:
        yield f"A blind classifier, which never sees the model, reaches AUC {_range(blind)} on the same texts."
    if study.note:
        yield study.note
    yield from _on_settings(study, runs)
    of_runs = [pair for run in runs for pair in json.loads(run.tags["left_out"]).items()]
    for name, reason in dict.fromkeys([*left_out.items(), *of_runs]):
        yield f"{name} is missing where it cannot be computed: {reason}."
    if not study.place.startswith(OWN):
        yield _on_paper(study, arranged)


def _on_paper(study: Study, arranged: pd.DataFrame) -> str:
    if not study.paper:
        return "The paper prints no numbers for this, or none that are on record here."
    if arranged["paper"].notna().any():
        return "In parentheses: the paper's numbers, where model, texts, split, training, detector and setting agree."
    return "The paper's own numbers are for other models, texts, splits or settings."


def _on_settings(study: Study, runs: Sequence[RunRecord]) -> Iterator[str]:
    """Which settings of the grids were chosen, and which detectors often fell back."""
    chosen = [json.loads(run.tags["chosen"]) for run in runs]
    for spec in study.detectors:
        if spec.grid:
            best = Counter(of[spec.key].removeprefix(f"{spec.name} ") for of in chosen if spec.key in of)
            settings = ", ".join(f"{setting} ({count})" for setting, count in best.most_common())
            yield (
                f"{spec.shown}: of {len(spec.grid)} settings, the one with the highest AUC on the tested texts "
                f"themselves, as in the paper, so that it is too high. Chosen in the cells: {settings}."
            )
    fallbacks = pd.DataFrame([run.metrics for run in runs]).max().gt(FALLBACK_SHARE)
    often = [spec.shown for spec in study.detectors if fallbacks.get(f"fallback/{spec.key}.base", False)]
    if often:
        names = ", ".join(often) if len(often) <= MAX_LISTED else f"{len(often)} of {len(study.detectors)} settings"
        yield f"On more than {FALLBACK_SHARE:.0%} of the texts no token met the condition; fallback used by: {names}."


def _widest(study: Study, runs: Sequence[RunRecord]) -> str:
    """What other, equally good thresholds would give for the detector for which they differ most."""
    widest = (0.0, "")
    for run, spec, state in product(runs, study.detectors, study.states):
        held, test = (read_scores(run, part) for part in ("validation", "test"))
        column = f"{spec.key}.{state}"
        if column not in test:
            continue
        thresholds = best_thresholds(held["label"] == 1, held[column])
        accuracies = [float(((test[column] >= each) == (test["label"] == 1)).mean()) for each in thresholds]
        low, high = min(accuracies), max(accuracies)
        which = f"; {len(thresholds)} thresholds of {spec.shown} ({STATES[state]}) are equally accurate there and give "
        widest = max(widest, (high - low, f"{which}test accuracies from {shortened(low)} to {shortened(high)}"))
    return widest[1]


def _range(values: set[Any]) -> str:
    return " to ".join(dict.fromkeys(map(str, (min(values), max(values)))))


def figure(study: Study, run: RunRecord, measured: pd.DataFrame) -> Figure:
    """The study's figure: of the scores of its only cell, or of the AUCs of all cells."""
    if study.figure in ("roc", "scores"):
        return _of_scores(study, run)
    aucs = measured[measured["metric"] == "AUC"]
    title = f"{study.place}\n{study.title}"
    if study.figure == "curve":
        return _curve(study, aucs, title)
    if study.figure == "heat map":
        x, y = (list(aucs[axis].unique()) for axis in (study.x, study.y))
        values = aucs.pivot(index=study.y, columns=study.x, values="value").loc[y, x].to_numpy()
        default = load(study.detectors[0].name).settings
        names: Any = {"x_name": study.x, "y_name": study.y, "name": "AUC", "title": title}
        return figures.heat_map(x, y, values, **names, default=(f"{default[study.x]:g}", f"{default[study.y]:g}"))
    panels: dict[str, dict[str, dict[str, Estimate]]] = {}
    points = zip(_names(aucs, study.columns), aucs["state"], _names(aucs, study.rows), _estimates(aucs), strict=True)
    for panel, state, row, auc in points:
        panels.setdefault(panel, {}).setdefault(state, {})[row] = auc
    return figures.dots(panels, x_name="AUC", title=title, chance=0.5)


def _names(aucs: pd.DataFrame, axes: Sequence[str]) -> list[str]:
    shown = [axis for axis in axes if axis not in ("state", "metric")]
    return [" · ".join(labels) for labels in aucs[shown].to_numpy()]


def _estimates(aucs: pd.DataFrame) -> list[Estimate]:
    return list(map(Estimate._make, aucs[["value", "low", "high"]].itertuples(index=False)))


def _curve(study: Study, aucs: pd.DataFrame, title: str) -> Figure:
    x = [float(level) for level in aucs[study.x].unique()]
    # A line has all labels but x in its name, or the name of the detector if only a setting of it is varied.
    settings = {name for spec in study.detectors for name in spec.settings}
    hidden = {study.x, *settings, *(["detector"] if study.x in settings else [])}
    names = _names(aucs, [axis for axis in (*study.rows, *study.columns) if axis not in hidden])
    bands = len(set(names)) <= MAX_BANDS
    lines: dict[str, list[Estimate | float]] = {}
    for name, auc in zip(names, _estimates(aucs), strict=True):
        lines.setdefault(name or study.detectors[0].name, []).append(auc if bands else auc.value)
    x_log = min(x) > 0 and max(x) / min(x) >= 100
    return figures.curves(x, {title: lines}, x_name=study.x, y_name="AUC", chance=0.5, x_log=x_log)


def _of_scores(study: Study, run: RunRecord) -> Figure:
    table = read_scores(run)

    def columns(state: str) -> Scores:
        names = {spec.key: spec.shown for spec in study.detectors if f"{spec.key}.{state}" in table}
        return {shown: table[f"{key}.{state}"].to_numpy(np.float64) for key, shown in names.items()}

    draw: Callable[..., Figure] = figures.roc if study.figure == "roc" else figures.score_distributions
    return draw(table["label"].to_numpy() == 1, columns("base"), columns("fsd"))
