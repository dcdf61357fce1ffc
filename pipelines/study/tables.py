"""The report of a study: its numbers in one long frame, the paper's layout of them, and what they rest on."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from fsd.evaluation.metrics import Bootstrap, Estimate, best_thresholds, compare, shortened
from fsd.reporting.figures import png
from fsd.reporting.report import Report, Section, Table, markdown, numbers, plain
from pipelines.study import figures
from pipelines.study.catalogue import BEST, DATA, MODEL, DetectorSpec, Study
from pipelines.study.cells import CellResult, read_scores
from pipelines.study.grid import label
from pipelines.study.texts import remarks

METRICS = {"auc": "AUC", "tpr_at_5fpr": "TPR@5%FPR", "accuracy": "accuracy"}
STATES = {"base": "base", "fsd": "FSD"}
WIDE = 8
"""Number of columns above which intervals are omitted."""
FALLBACK_SHARE = 0.1
"""Share of texts scored by a fallback above which a note says so."""
MAX_LISTED = 5
"""Maximum number of detectors listed in a note."""
SPLITS = {
    "grouped": "grouped: articles and near-duplicates are in one part",
    "paper": "paper: of the rows drawn at random, non-members are trained on and members dropped; near-duplicates may "
    "be in two parts",
}


def report(study: Study, results: Sequence[CellResult]) -> Report:
    """Table, figure and remarks, as they are printed and logged."""
    measured = measurements(study, results)
    arranged = arrange(study, measured)
    table, plain_numbers = layout(study, arranged), frame(study, arranged)
    notes = list(remarks_on(study, results, arranged, table))
    lines = [f"# {study.place}", "", study.title, "", markdown(table), *(f"- {note}" for note in notes), ""]
    return Report(
        headline=f"{study.place}: {study.title}",
        findings=notes,
        sections=[Section("", tables=[table, numbers("results", measured)])],
        metrics={"cells/run": sum(not r.reused for r in results), "cells/reused": sum(r.reused for r in results)},
        artifacts={
            "table.csv": plain_numbers,
            "table.json": plain_numbers,
            "cells.csv": measured,
            "table.md": "\n".join(lines),
            "figure.png": png(figures.figure(study, results, measured)),
        },
        page="table.md",
    )


def measurements(study: Study, results: Sequence[CellResult]) -> pd.DataFrame:
    """All numbers that the study shows, cell by cell, then the p-values of its paired tests.

    One row a number: its labels by axis, detector setting, detector, state and metric; `value`, `low` and `high`;
    `paper`, the paper's number for the same model, texts, detector and setting, or NaN; `run`, the id of the run.
    """
    rows = []
    for result, spec, state in itertools.product(results, study.detectors, study.states):
        labels = {
            **result.cell.labels,
            **{name: f"{value:g}" for name, value in spec.settings.items()},
            "detector": spec.shown,
            "state": STATES[state],
        }
        # A cell without training has no FSD; its base score takes the place.
        name = f"{spec.key}.{state if f'auc/{spec.key}.{state}' in result.metrics else 'base'}"
        for metric in study.metrics:
            value = result.metrics.get(f"{metric}/{name}")
            if value is not None:
                low, high = (result.metrics.get(f"{metric}_{end}/{name}", value) for end in ("low", "high"))
                paper = _printed(study, result, spec, state, metric)
                found = {"value": value, "low": low, "high": high, "paper": paper, "run": result.run_id}
                rows.append({**labels, "metric": METRICS[metric], **found})
    return pd.DataFrame([*rows, *_paired_tests(study, results)])


def _printed(study: Study, result: CellResult, spec: DetectorSpec, state: str, metric: str) -> float:
    """The paper's number for the same model, texts, detector and setting; NaN without one.

    A setting is empty in papers.csv where it makes no difference, as that of the training does to base scores.
    """
    config = result.cell.config
    varied = [label for axis, label in result.cell.labels.items() if axis not in (MODEL, DATA)]
    setting = BEST if spec.grid else spec.shown if spec.settings else ", ".join(varied)
    data = ", ".join("patentmia" if entry.startswith("patentmia:") else entry for entry in config.data.data)
    place = (config.model.model, data, spec.name)
    no_difference = (state == "base" or not varied) and not (spec.grid or spec.settings)
    otherwise = study.paper.get((*place, "", state, metric), math.nan) if no_difference else math.nan
    return study.paper.get((*place, setting, state, metric), otherwise)


def _paired_tests(study: Study, results: Sequence[CellResult]) -> Iterator[dict[str, Any]]:
    """p-values of `study.against` against every other detector, Holm-corrected within each cell."""
    shown = {spec.key: spec.shown for spec in study.detectors}
    for result in results if study.against else ():
        frame = read_scores(result)
        scores = {c.removesuffix(".base"): frame[c].to_numpy() for c in frame.columns if c.endswith(".base")}
        if study.against not in scores:
            continue
        against = scores.pop(study.against)
        bootstrap = Bootstrap.draw(frame["label"] == 1, list(frame["group"]))
        for name, test in compare(bootstrap, scores, dict.fromkeys(scores, against)).items():
            labels = {"detector": shown[name], "state": "base", "metric": f"p against {shown[study.against]}"}
            p = {**dict.fromkeys(("value", "low", "high"), test.p_holm), "paper": math.nan}
            yield {**result.cell.labels, **labels, **p, "run": result.run_id}


def arrange(study: Study, measured: pd.DataFrame) -> pd.DataFrame:
    """The measurements with their labels ordered as in the table.

    Equal base scores are merged into one column, as where only the training of the adapter is varied.
    """
    table = measured
    headings = [*study.rows, *study.columns]
    varied = [axis.name for axis in study.axes if axis.name not in (MODEL, DATA) and axis.name in study.columns]
    varied = [axis for axis in varied if table[axis].nunique() > 1]
    base = table["state"] == STATES["base"]
    merged = table.copy()
    merged.loc[base, varied] = ""
    if study.trained and merged[base].groupby(headings)[["value", "low", "high"]].nunique().le(1).all(axis=None):
        table = merged
    ordered = table.assign(**{axis: pd.Categorical(table[axis], table[axis].unique()) for axis in headings})
    return ordered.drop_duplicates(headings, keep="last")


def _pivot(study: Study, table: pd.DataFrame, column: str) -> pd.DataFrame:
    """One column of the arranged measurements in the paper's layout, with nested headings in one line."""
    pivot = table.pivot_table(column, list(study.rows), list(study.columns), "first", observed=True)
    pivot.columns = pd.Index([" · ".join(filter(None, labels)) for labels in pivot.columns.to_frame().to_numpy()])
    return pivot


def frame(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """The table with plain numbers, next to them the paper's where they are known."""
    values, paper = (_pivot(study, table, column) for column in ("value", "paper"))
    columns = {}
    for heading in values:
        columns[heading] = values[heading].map(lambda value: round(value, 4))
        if heading in paper:
            columns[f"{heading} (paper)"] = paper[heading]
    return pd.DataFrame(columns).reset_index()


def layout(study: Study, table: pd.DataFrame) -> Table:
    """The table as it is shown, with intervals of AUCs unless it is wide."""
    wide = len(table[list(study.columns)].drop_duplicates()) > WIDE
    texts = table.assign(text=[_text(number, wide=wide) for number in table.itertuples()])
    cells = _pivot(study, texts, "text").fillna("–").reset_index()
    rows = [[*map(str, row)] for row in cells.to_numpy().tolist()]
    return plain([*map(str, cells)], rows, words=range(len(study.rows)), source="table.csv")


def _text(number: Any, *, wide: bool) -> str:
    """A row of the arranged measurements as text."""
    if number.metric.startswith("p "):
        text = "<.001" if number.value < 5e-4 else shortened(number.value, ".3f")
    elif wide or number.low == number.high:
        text = shortened(number.value)
    else:
        text = str(Estimate(number.value, number.low, number.high))
    return text if math.isnan(number.paper) else f"{text} (paper {shortened(number.paper)})"


def remarks_on(study: Study, results: Sequence[CellResult], arranged: pd.DataFrame, table: Table) -> Iterator[str]:
    """What the numbers rest on, and what is missing."""
    configs = [result.cell.config for result in results]
    models = dict.fromkeys(label(config.model.model) for config in configs)
    data = dict.fromkeys(", ".join(map(label, config.data.data)) for config in configs)
    tested = _sizes(results, "test")
    yield f"Model: {', '.join(models)}. Texts: {'; '.join(data)}; {tested} test texts, seed {configs[0].seed}."
    yield from dict.fromkeys(f"{remark}." for result in results for remark in remarks(result.cell))
    if study.trained:
        how = "; ".join(SPLITS[scheme] for scheme in sorted({config.data.split for config in configs}))
        yield f"Split {how}. Texts: {_sizes(results, 'unseen')} unseen, {_sizes(results, 'validation')} validation."
    else:
        yield "Base scores of all texts: nothing is split or trained on."
    if "accuracy" in study.metrics:
        yield _on_thresholds(study, results)
    if any("[" in cell for row in table.rows for cell in row):
        yield "In brackets: 95 % bootstrap intervals, resampled by groups of related texts."
    blind = {round(r.metrics["audit/blind_auc"], 2) for r in results if "audit/blind_auc" in r.metrics}
    if blind:
        yield f"A blind classifier, which never sees the model, reaches AUC {_range(blind)} on the same texts."
    if study.note:
        yield study.note
    yield from _on_settings(study, results)
    for name, reason in dict.fromkeys(pair for result in results for pair in result.left_out.items()):
        yield f"{name} is missing where it cannot be computed: {reason}."
    if not study.paper:
        yield "The paper prints no numbers for this, or none that are on record here."
    elif arranged["paper"].notna().any():
        yield "In parentheses: the paper's own numbers, for the same model, texts, detector and setting."
    else:
        yield "The paper's own numbers are for other models, texts or settings."


def _on_settings(study: Study, results: Sequence[CellResult]) -> Iterator[str]:
    """Which settings of the grids were chosen, and which detectors often fell back."""
    for spec in study.detectors:
        if spec.grid:
            best = Counter(r.chosen[spec.key].removeprefix(f"{spec.name} ") for r in results if spec.key in r.chosen)
            chosen = ", ".join(f"{setting} ({count})" for setting, count in best.most_common())
            yield (
                f"{spec.shown}: of {len(spec.grid)} settings, the one with the highest AUC on the tested texts "
                f"themselves, as in the paper, so that it is too high. Chosen in the cells: {chosen}."
            )
    often = [
        spec.shown
        for spec in study.detectors
        if any(result.metrics.get(f"fallback/{spec.key}.base", 0.0) > FALLBACK_SHARE for result in results)
    ]
    if often:
        names = ", ".join(often) if len(often) <= MAX_LISTED else f"{len(often)} of {len(study.detectors)} settings"
        yield f"On more than {FALLBACK_SHARE:.0%} of the texts no token met the condition; fallback used by: {names}."


def _on_thresholds(study: Study, results: Sequence[CellResult]) -> str:
    """How many texts set the thresholds of the accuracy, and what other, equally good thresholds would give."""
    if not all(result.metrics["texts/validation"] for result in results):
        return "No validation texts: the accuracy is at the best threshold on the tested texts themselves."
    widest = (0.0, "")
    for result, spec, state in itertools.product(results, study.detectors, study.states):
        held, test = (read_scores(result, part) for part in ("validation", "test"))
        column = f"{spec.key}.{state}"
        if column not in test:
            continue
        thresholds = best_thresholds(held["label"] == 1, held[column])
        accuracies = [float(((test[column] >= each) == (test["label"] == 1)).mean()) for each in thresholds]
        low, high = (shortened(end(accuracies)) for end in (min, max))
        which = f"{len(thresholds)} thresholds of {spec.shown} ({STATES[state]}) are equally accurate there and give "
        widest = max(widest, (max(accuracies) - min(accuracies), f"; {which}test accuracies from {low} to {high}"))
    return (
        f"The threshold of the accuracy is set by {_sizes(results, 'validation')} validation texts, the highest of "
        f"equally accurate ones{widest[1]}. The intervals leave this choice out."
    )


def _sizes(results: Sequence[CellResult], part: str) -> str:
    return _range({int(result.metrics[f"texts/{part}"]) for result in results})


def _range(values: set[Any]) -> str:
    return " to ".join(dict.fromkeys(str(end) for end in (min(values), max(values))))
