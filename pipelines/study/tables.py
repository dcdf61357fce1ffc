"""Tables of a study: its numbers in one long frame, the paper's layout, and the page in Markdown."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from fsd.evaluation.intervals import Bootstrap, Estimate, shortened
from fsd.evaluation.metrics import best_thresholds, compare
from pipelines.study.catalogue import BEST, DATA, MODEL, DetectorSpec, Study
from pipelines.study.cells import SCORES, CellResult
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


def measurements(study: Study, results: Sequence[CellResult]) -> pd.DataFrame:
    """All numbers that the study shows, cell by cell, then the p-values of its paired tests.

    Returns:
        One row per number. Columns: its labels by axis, detector setting, detector, state and metric; `value`, `low`
        and `high`, the number with its interval; `paper`, the paper's number for the same model, texts, detector and
        setting, or NaN; `run`, the id of the MLflow run.
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
                numbers = {
                    "value": value,
                    "low": low,
                    "high": high,
                    "paper": _printed(study, result, spec, state, metric),
                }
                rows.append({**labels, "metric": METRICS[metric], **numbers, "run": result.run_id})
    return pd.DataFrame([*rows, *_paired_tests(study, results)])


def _printed(study: Study, result: CellResult, spec: DetectorSpec, state: str, metric: str) -> float:
    """The paper's number for the same model, texts, detector and setting; NaN without one."""
    config = result.cell.config
    varied = [label for axis, label in result.cell.labels.items() if axis not in (MODEL, DATA)]
    setting = BEST if spec.grid else spec.shown if spec.settings else ", ".join(varied)
    data = ", ".join("patentmia" if entry.startswith("patentmia:") else entry for entry in config.data.data)
    place = (config.model.model, data, spec.name)
    tuned = bool(spec.grid or spec.settings)
    for named in dict.fromkeys((setting, "" if (state == "base" or not varied) and not tuned else setting)):
        if (*place, named, state, metric) in study.paper:
            return study.paper[*place, named, state, metric]
    return math.nan


def _paired_tests(study: Study, results: Sequence[CellResult]) -> list[dict[str, Any]]:
    """p-values of `study.against` against every other detector, Holm-corrected within each cell."""
    rows = []
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
            interval = {**dict.fromkeys(("value", "low", "high"), test.p_holm), "paper": math.nan}
            rows.append({**result.cell.labels, **labels, **interval, "run": result.run_id})
    return rows


def read_scores(result: CellResult) -> pd.DataFrame:
    """Scores of a cell's test texts: label, group, and one column per detector and state."""
    frame = _all_scores(result)
    return frame[frame["split"] == "test"].reset_index(drop=True)


def _all_scores(result: CellResult) -> pd.DataFrame:
    """Scores of a cell's validation and test texts."""
    from fsd import tracking

    return pd.read_parquet(tracking.fetch_artifact(result.run_id, SCORES))


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


def layout(study: Study, table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the table, with intervals of AUCs unless it is wide."""
    wide = len(table[list(study.columns)].drop_duplicates()) > WIDE
    texts = table.assign(text=[_text(number, wide=wide) for number in table.itertuples()])
    cells = _pivot(study, texts, "text").fillna("–").reset_index()
    return [*map(str, cells)], [[*map(str, row)] for row in cells.to_numpy().tolist()]


def markdown(study: Study, table: pd.DataFrame) -> str:
    """The table in Markdown."""
    headings, rows = layout(study, table)
    rule = ["---"] * len(study.rows) + ["---:"] * (len(headings) - len(study.rows))
    lines = [headings, rule, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _text(number: Any, *, wide: bool) -> str:
    """A row of the arranged measurements as text."""
    if number.metric.startswith("p "):
        text = "<.001" if number.value < 5e-4 else shortened(number.value, ".3f")
    elif wide or number.low == number.high:
        text = shortened(number.value)
    else:
        text = str(Estimate(number.value, number.low, number.high))
    return text if math.isnan(number.paper) else f"{text} (paper {shortened(number.paper)})"


def page(study: Study, results: Sequence[CellResult], table: pd.DataFrame) -> str:
    """The Markdown page: title, table and notes."""
    lines = (f"- {note}" for note in remarks_on(study, results, table))
    return "\n".join([f"# {study.place}", "", study.title, "", markdown(study, table), *lines, ""])


def remarks_on(study: Study, results: Sequence[CellResult], table: pd.DataFrame) -> list[str]:
    """What the numbers rest on, and what is missing."""
    has_intervals = "[" in markdown(study, table)
    models = list(dict.fromkeys(label(result.cell.config.model.model) for result in results))
    data = dict.fromkeys(", ".join(map(label, result.cell.config.data.data)) for result in results)
    tested = sorted({int(result.metrics["texts/test"]) for result in results})
    seed = results[0].cell.config.seed
    notes = [f"Model: {', '.join(models)}. Texts: {'; '.join(data)}; {_range(tested)} test texts, seed {seed}."]
    notes += dict.fromkeys(f"{remark}." for result in results for remark in remarks(result.cell))
    notes += _split_notes(study, results)
    notes += _threshold_notes(study, results) if "accuracy" in study.metrics else []
    if has_intervals:
        notes.append("In brackets: 95 % bootstrap intervals, resampled by groups of related texts.")
    blind = sorted({round(r.metrics["audit/blind_auc"], 2) for r in results if "audit/blind_auc" in r.metrics})
    if blind:
        notes.append(f"A blind classifier, which never sees the model, reaches AUC {_range(blind)} on the same texts.")
    notes += [study.note] if study.note else []
    for spec in study.detectors:
        if spec.grid:
            best = Counter(r.chosen[spec.key].removeprefix(f"{spec.name} ") for r in results if spec.key in r.chosen)
            chosen = ", ".join(f"{setting} ({count})" for setting, count in best.most_common())
            notes.append(
                f"{spec.shown}: of {len(spec.grid)} settings, the one with the highest AUC on the tested texts "
                f"themselves, as in the paper, so that it is too high. Chosen in the cells: {chosen}."
            )
    often = [
        spec.shown
        for spec in study.detectors
        if max(result.metrics.get(f"fallback/{spec.key}.base", 0.0) for result in results) > FALLBACK_SHARE
    ]
    if often:
        names = ", ".join(often) if len(often) <= MAX_LISTED else f"{len(often)} of {len(study.detectors)} settings"
        share = f"{FALLBACK_SHARE:.0%}"
        notes.append(f"On more than {share} of the texts no token met the condition; fallback used by: {names}.")
    for name, reason in dict.fromkeys(pair for result in results for pair in result.left_out.items()):
        notes.append(f"{name} is missing where it cannot be computed: {reason}.")
    if not study.paper:
        notes.append("The paper prints no numbers for this, or none that are on record here.")
    elif table["paper"].notna().any():
        notes.append("In parentheses: the paper's own numbers, for the same model, texts, detector and setting.")
    else:
        notes.append("The paper's own numbers are for other models, texts or settings.")
    return notes


def _split_notes(study: Study, results: Sequence[CellResult]) -> list[str]:
    """How the texts were split, and what the threshold of an accuracy rests on."""
    if not study.trained:
        return ["Base scores of all texts: nothing is split or trained on."]
    schemes = {result.cell.config.data.split for result in results}
    sizes = [
        f"{_range(sorted({int(r.metrics[f'texts/{part}']) for r in results}))} {part}"
        for part in ("unseen", "validation")
        if all(f"texts/{part}" in r.metrics for r in results)
    ]
    how = {
        "grouped": "grouped: articles and near-duplicates are in one part",
        "paper": "paper: of the rows drawn at random, non-members are trained on and members dropped; near-duplicates "
        "may be in two parts",
    }
    return [f"Split {'; '.join(how[scheme] for scheme in sorted(schemes))}. Texts: {', '.join(sizes)}."]


def _threshold_notes(study: Study, results: Sequence[CellResult]) -> list[str]:
    """How many texts set the thresholds of the accuracy, and what other, equally good thresholds would give."""
    if not all(result.metrics["texts/validation"] for result in results):
        return ["No validation texts: the accuracy is at the best threshold on the tested texts themselves."]
    widest = (0.0, "")
    for result, spec, state in itertools.product(results, study.detectors, study.states):
        frame, column = _all_scores(result), f"{spec.key}.{state}"
        if column not in frame:
            continue
        held, test = (frame[frame["split"] == part] for part in ("validation", "test"))
        thresholds = best_thresholds(held["label"] == 1, held[column])
        accuracies = [float(((test[column] >= each) == (test["label"] == 1)).mean()) for each in thresholds]
        low, high = (shortened(end(accuracies)) for end in (min, max))
        which = f"{len(thresholds)} thresholds of {spec.shown} ({STATES[state]}) are equally accurate there and give "
        widest = max(widest, (max(accuracies) - min(accuracies), f"; {which}test accuracies from {low} to {high}"))
    sizes = _range(sorted({int(result.metrics["texts/validation"]) for result in results}))
    return [
        f"The threshold of the accuracy is set by {sizes} validation texts, the highest of equally accurate ones"
        f"{widest[1]}. The intervals leave this choice out."
    ]


def _range(values: Sequence[float]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"
