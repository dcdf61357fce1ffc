"""The report of a study: its numbers in one long frame, the paper's table and figure of them, and what they rest on."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, product
from textwrap import fill
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from extensions.study.catalogue import BEST, DATA, MODEL, OWN, DetectorSpec, Study
from extensions.study.cells import BELOW, TOKENS, PreparedCell, heading, rates
from extensions.study.grid import SETTING, Cell, label
from extensions.study.store import in_order, pivot, pivoted, stored
from fsd.api import (
    BASE,
    AdapterConfig,
    Bootstrap,
    Estimate,
    FSDConfig,
    Report,
    RunRecord,
    Scores,
    Section,
    Table,
    as_findings,
    charts,
    columns_of,
    compare,
    figures,
    load_detector,
    markdown,
    numbers,
    of_state,
    shortened,
)

STATES = {"base": "base", "fsd": "FSD"}
# Number of columns above which intervals are omitted, since the lines would not fit a page.
WIDE = 8
# Characters in a line of the title of a figure.
TITLE = 76
# And in one of that of a panel.
PANEL = 26
# Share of texts scored by a fallback above which a note says so.
FALLBACK_SHARE = 0.1
# Maximum number of detectors listed in a note.
MAX_LISTED = 5
# Maximum number of lines whose intervals are drawn as bands; the bands of more lines would hide one another.
MAX_BANDS = 5
SPLITS = {
    "grouped": "grouped: articles and near-duplicates are in one part",
    "paper": "paper: of the rows drawn at random in each file, non-members are trained on and members dropped; "
    "near-duplicates may be in two parts",
}

# The cells of a study, and the run that holds the numbers and scores of each, which may be of an earlier study.
Results = Sequence[tuple[PreparedCell, RunRecord]]


def report(study: Study, results: Results, left_out: Mapping[str, str]) -> Report:
    """Table, figure and remarks, as they are printed and logged; `left_out`: cell that could not be run → reason."""
    measured = measurements(study, results)
    arranged = arrange(study, measured)
    table = layout(study, arranged)
    plain_numbers = frame(study, arranged)
    notes = list(notes_on(study, results, left_out, arranged, table))
    points = "".join(f"- {note}\n" for note in notes)
    page = f"# {study.place}\n\n{study.title}\n\n{markdown(table)}\n{points}"
    artifacts = {
        "table.csv": plain_numbers,
        "cells.csv": measured,
        "table.md": page,
        "figure.png": figures.png(figure(study, results[0][1], measured)),
    }
    section = Section("", tables=[table, numbers("results", measured)])
    return Report(
        headline=f"{study.place}: {study.title}",
        findings=as_findings(notes),
        sections=[section],
        artifacts=artifacts,
        page="table.md",
    )


def measurements(study: Study, results: Results) -> pd.DataFrame:
    """All numbers that the study shows, cell by cell, then the p-values of its paired tests.

    One row a number: its labels by axis, detector setting, detector, state and metric; `value`, `low` and `high`;
    `paper`, the paper's number, or NaN where anything differs; `run`, the id of the run.
    """
    rows = []
    places = product(results, study.detectors, study.states, study.metrics)
    for (prepared, run), spec, state, metric in places:
        # A cell without training has no FSD; its base score takes the place.
        measured = state if f"auc/{spec.key}.{state}" in run.metrics else "base"
        value = run.metrics.get(f"{metric}/{spec.key}.{measured}")
        if value is None:
            continue
        row: dict[str, Any] = dict(prepared.cell.labels)
        for setting, level in spec.settings.items():
            row[setting] = f"{level:g}"
        row |= {"detector": spec.shown, "state": STATES[state], "metric": heading(metric), "value": value}
        for end in ("low", "high"):
            # A number without an interval has one of no width.
            row[end] = run.metrics.get(f"{metric}_{end}/{spec.key}.{measured}", value)
        row |= {"paper": _printed(study, prepared.cell, spec, measured, metric), "run": run.id}
        rows.append(row)
    rows += _paired_tests(study, results)
    return pd.DataFrame(rows)


def _printed(study: Study, cell: Cell, spec: DetectorSpec, state: str, metric: str) -> float:
    """The paper's number for the same model, texts, split, training, detector and setting; NaN without one."""
    if not _as_printed(study, cell):
        return math.nan
    # The parts of this benchmark are samples of one, of which the paper prints a single number.
    data = ["patentmia" if entry.startswith("patentmia:") else entry for entry in cell.config.data.data]
    varied = ", ".join(level for axis, level in cell.labels.items() if axis not in (MODEL, DATA))
    settings = {varied}
    # One that is named as the detector alone is the paper's, whatever its settings here.
    if spec.shown != spec.name:
        settings = {BEST if spec.grid else spec.shown}
    elif state == "base":
        # A setting is empty in papers.csv where it makes no difference, as that of the training to base scores.
        settings.add("")
    # The codes take rates below the bound, and the prints do not tell: both ways stand beside theirs, with a remark.
    rate = metric.removesuffix(BELOW)
    for setting in settings:
        labels = (cell.config.model.model, ", ".join(data), spec.name, setting, state, rate)
        if labels in study.paper:
            return study.paper[labels]
    return math.nan


def _as_printed(study: Study, cell: Cell) -> bool:
    """Whether the weights are whole, and the split and the training those of the papers but for what is varied."""
    if cell.config.model.bits or (study.trained and cell.config.data.split != "paper"):
        return False
    varied: set[str] = set()
    for axis in study.axes:
        # Of a study that varies one axis at a time, the cell has the paper's values on the others.
        if not study.one_at_a_time or cell.labels[SETTING].startswith(f"{axis.name} "):
            varied.update(*axis.levels.values())
    usual = asdict(AdapterConfig())
    for name, value in asdict(cell.config.training).items():
        if value != usual[name] and f"training.{name}" not in varied:
            return False
    return True


def _part(run: RunRecord, part: str = "test") -> pd.DataFrame:
    """Scores of the test or validation texts of a cell: label, group, and one column per detector and state."""
    table = stored(run)
    return table[table["split"] == part].reset_index(drop=True)


def _paired_tests(study: Study, results: Results) -> Iterator[dict[str, Any]]:
    """p-values of `study.against` against every other detector, Holm-corrected within each cell."""
    if not study.against:
        return
    labels = {spec.key: spec.shown for spec in study.detectors}
    for prepared, run in results:
        table = _part(run)
        scores = of_state(columns_of(table), BASE)
        against = scores.pop(study.against, None)
        if against is None:
            continue
        bootstrap = Bootstrap.draw(table["label"] == 1, list(table["group"]))
        for name, test in compare(bootstrap, scores, dict.fromkeys(scores, against)).items():
            row: dict[str, Any] = dict(prepared.cell.labels)
            row["detector"] = labels[name]
            row["state"] = "base"
            row["metric"] = f"p against {labels[study.against]}"
            # A p-value has no interval.
            row |= dict.fromkeys(("value", "low", "high"), test.p_holm)
            row["paper"] = math.nan
            row["run"] = run.id
            yield row


def arrange(study: Study, measured: pd.DataFrame) -> pd.DataFrame:
    """The measurements as the table has them, one for each place of it.

    Equal base scores are merged into one column, as where only the training of the adapter is varied.
    """
    headings = list(study.rows + study.columns)
    varied = {axis.name for axis in study.axes} - {MODEL, DATA}
    columns = [axis for axis in study.columns if axis in varied and measured[axis].nunique() > 1]
    base = measured["state"] == STATES["base"]
    merged = measured.copy()
    merged.loc[base, columns] = ""
    distinct = merged[base].groupby(headings)[["value", "low", "high"]].nunique()
    # Base scores that differ, as those of texts that are varied as well, keep a column each.
    if study.trained and distinct.le(1).all(axis=None):
        measured = merged
    return in_order(measured, headings).drop_duplicates(headings, keep="last")


def frame(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """The table with plain numbers, next to them the paper's where they are known."""
    values = pivot(table, study.rows, study.columns, "value").round(4)
    # A row or a column without any number of the paper is left out by the pivot.
    paper = pivot(table, study.rows, study.columns, "paper").reindex(values.index)
    columns = {}
    for name in values:
        columns[name] = values[name]
        if name in paper:
            columns[f"{name} (paper)"] = paper[name]
    return pd.DataFrame(columns).reset_index()


def layout(study: Study, table: pd.DataFrame) -> Table:
    """The table as it is shown, with intervals of AUCs unless it is wide."""
    wide = len(table[list(study.columns)].drop_duplicates()) > WIDE
    texts = [_text(number, wide=wide) for number in table.itertuples()]
    return pivoted(table.assign(text=texts), study.rows, study.columns, source="table.csv")


def _text(number: Any, *, wide: bool) -> str:
    """A number as the table shows it."""
    if number.metric.startswith("p "):
        text = "<.001" if number.value < 5e-4 else shortened(number.value, ".3f")
    elif wide or number.low == number.high:
        text = shortened(number.value)
    else:
        text = str(Estimate(number.value, number.low, number.high))
    if math.isnan(number.paper):
        return text
    return f"{text} (paper {shortened(number.paper)})"


def notes_on(
    study: Study, results: Results, left_out: Mapping[str, str], arranged: pd.DataFrame, table: Table
) -> Iterator[str]:
    """What the numbers rest on, and what is missing."""
    runs = [run for _, run in results]
    metrics = pd.DataFrame([run.metrics for run in runs])
    remarks: dict[str, None] = {}
    configs = []
    for prepared, _ in results:
        # Cells of the same texts have the same remarks, each of which is said once.
        remarks |= dict.fromkeys(prepared.inputs.remarks)
        configs.append(prepared.cell.config)
    for remark in remarks:
        yield f"{remark}."
    yield from _on_texts(study, configs, metrics)
    yield from _on_references(study, configs)
    if "accuracy" in study.metrics:
        yield _on_threshold(metrics)
    if "[" in "".join(chain.from_iterable(table.rows)):
        yield "In brackets: 95 % bootstrap intervals, resampled by groups of related texts."
    if "audit/blind_auc" in metrics:
        # Rounded first, so that cells that hardly differ are not shown as a range.
        blind = metrics["audit/blind_auc"].dropna().round(2)
        yield f"A blind classifier, which never sees the model, reaches AUC {_range(blind)} on the same texts."
    if study.note:
        yield study.note
    yield from _on_settings(study, runs)
    yield from _on_fallbacks(study, metrics.max())
    missing = list(left_out.items())
    for run in runs:
        missing += json.loads(run.tags["left_out"]).items()
    # Many cells lack a detector for the same reason.
    for name, reason in dict.fromkeys(missing):
        yield f"{name} is missing where it cannot be computed: {reason}."
    if not study.place.startswith(OWN):
        yield from _on_paper(study, arranged)


def _on_texts(study: Study, configs: Sequence[FSDConfig], metrics: pd.DataFrame) -> Iterator[str]:
    """Models, texts and split of the cells."""
    models: dict[str, None] = {}
    data: dict[str, None] = {}
    for config in configs:
        models[label(config.model.model)] = None
        data[", ".join(map(label, config.data.data))] = None
    texts = f"{'; '.join(data)}; {_count(metrics, 'test')} test texts"
    yield f"Model: {', '.join(models)}. Texts: {texts}, seed {configs[0].seed}."
    if not study.trained:
        yield "Base scores of all texts: nothing is split or trained on."
        return
    # All cells are split alike, as --split says.
    split = SPLITS[configs[0].data.split]
    yield f"Split {split}. Texts: {_count(metrics, 'unseen')} unseen, {_count(metrics, 'validation')} validation."


def _on_threshold(metrics: pd.DataFrame) -> str:
    if not metrics["texts/validation"].all():
        return "No validation texts: the accuracy is at the best threshold on the tested texts themselves."
    return (
        f"The threshold of the accuracy is set by {_count(metrics, 'validation')} validation texts, the highest of "
        "equally accurate ones. The intervals leave this choice out."
    )


def _count(metrics: pd.DataFrame, part: str) -> str:
    """Number of texts in a part of the split, which may differ between cells."""
    return _range(metrics[f"texts/{part}"].astype(int))


def _on_paper(study: Study, arranged: pd.DataFrame) -> Iterator[str]:
    """Whether the paper's numbers are shown, and what differs all the same."""
    if not study.paper:
        yield "The paper prints no numbers for this, or none that are on record here."
        return
    if not arranged["paper"].notna().any():
        yield "The paper's own numbers are for other models, texts, splits or settings."
        return
    yield "In parentheses: the paper's numbers, where model, texts, split, training, detector and setting agree."
    source = study.source
    if source and source.code:
        yield f"{source.code}."
    metrics = {metric.removesuffix(BELOW) for metric in study.metrics}
    if source and metrics & rates().keys():
        yield f"{source.rate}."


def _on_references(study: Study, configs: Sequence[FSDConfig]) -> Iterator[str]:
    """The reference models that the study took by itself."""
    pairs: dict[str, None] = {}
    for config in configs:
        model = config.model.model
        reference = config.model.reference_model
        if reference and study.references.get(model) == reference:
            pairs[f"{reference} for {model}"] = None
    if pairs:
        yield f"Reference models, as the paper names them: {'; '.join(pairs)}."


def _on_settings(study: Study, runs: Sequence[RunRecord]) -> Iterator[str]:
    """Which settings of the grids were chosen."""
    for spec in study.detectors:
        if not spec.grid:
            continue
        best = Counter[str]()
        for run in runs:
            chosen = json.loads(run.tags["chosen"])
            # A cell in which no detector of the grid can be computed has no choice.
            if spec.key in chosen:
                best[chosen[spec.key].removeprefix(f"{spec.name} ")] += 1
        settings = ", ".join(f"{setting} ({cells})" for setting, cells in best.most_common())
        yield (
            f"{spec.shown}: of {len(spec.grid)} settings, the one with the highest AUC on the tested texts "
            f"themselves, as in the paper, so that it is too high. Chosen in the cells: {settings}."
        )


def _on_fallbacks(study: Study, highest: pd.Series) -> Iterator[str]:
    """Which detectors often fell back, by the highest share of texts in a cell."""
    often = []
    for spec in study.detectors:
        share = highest.get(f"fallback/{spec.key}.base", 0)
        if share > FALLBACK_SHARE:
            often.append(spec.shown)
    if not often:
        return
    names = ", ".join(often)
    if len(often) > MAX_LISTED:
        names = f"{len(often)} of {len(study.detectors)} settings"
    yield f"On more than {FALLBACK_SHARE:.0%} of the texts no token met the condition; fallback used by: {names}."


def _range(values: Iterable[float]) -> str:
    """The lowest and the highest value, or the only one."""
    return " to ".join(map(str, sorted({min(values), max(values)})))


def figure(study: Study, run: RunRecord, measured: pd.DataFrame) -> Figure:
    """The study's figure: of the scores of its only cell, or of the numbers of all cells."""
    if study.figure in ("roc", "scores"):
        return _of_scores(study, run)
    if study.figure == "before and after":
        return _before_and_after(study, run)
    if study.figure == "tokens":
        return _of_tokens(study, run)
    aucs = measured[measured["metric"] == heading("auc")]
    title = f"{study.place}\n{fill(study.title, TITLE)}"
    if study.figure == "curve":
        return _curve(study, measured, title)
    if study.figure == "heat map":
        return _heat_map(study, aucs, title)
    if study.figure == "rates":
        shares = measured[measured["metric"] != heading("auc")]
        panels = _series(shares, shares["metric"], _names(shares, study.rows))
        return figures.dots(panels, x_name="members found", title=title)
    headings = _names(aucs, study.columns)
    panels = _series(aucs, headings, _names(aucs, study.rows))
    return figures.dots(panels, x_name="AUC", title=title, chance=0.5)


def _series(measured: pd.DataFrame, panels: Iterable[str], rows: Iterable[str]) -> Mapping[str, Any]:
    """Panel → state → row → number with its interval."""
    series: dict[str, dict[str, dict[str, Estimate]]] = {}
    places = zip(panels, measured["state"], rows, _estimates(measured), strict=True)
    for panel, state, row, estimate in places:
        states = series.setdefault(fill(panel, PANEL), {})
        states.setdefault(state, {})[row] = estimate
    return series


def _names(aucs: pd.DataFrame, axes: Iterable[str]) -> list[str]:
    """The labels of each number on some axes, but state and metric, which a figure shows in another way."""
    labels = [axis for axis in axes if axis not in ("state", "metric")]
    rows = aucs[labels].to_numpy()
    return list(map(" · ".join, rows))


def _estimates(aucs: pd.DataFrame) -> list[Estimate]:
    rows = aucs[["value", "low", "high"]].itertuples(index=False)
    return list(map(Estimate._make, rows))


def _heat_map(study: Study, aucs: pd.DataFrame, title: str) -> Figure:
    table = aucs.pivot(index=study.y, columns=study.x, values="value")
    # A pivot sorts the settings as words: 10 before 5.
    x = list(aucs[study.x].unique())
    y = list(aucs[study.y].unique())
    settings = load_detector(study.detectors[0].name).settings
    return charts.heat_map(
        x,
        y,
        table.loc[y, x].to_numpy(),
        x_name=study.x,
        y_name=study.y,
        name="AUC",
        title=title,
        default=(f"{settings[study.x]:g}", f"{settings[study.y]:g}"),
    )


def _curve(study: Study, measured: pd.DataFrame, title: str) -> Figure:
    """A panel a metric, with a line for each row and column of the table."""
    x = [float(level) for level in measured[study.x].unique()]
    hidden: set[str] = set()
    for spec in study.detectors:
        hidden.update(spec.settings)
    # A line has all labels but x in its name, or the name of the detector if only a setting of it is varied.
    if study.x in hidden:
        hidden.add("detector")
    hidden.add(study.x)
    axes = [axis for axis in study.rows + study.columns if axis not in hidden]
    panels: dict[str, dict[str, list[Estimate | float]]] = {}
    for metric, of_metric in measured.groupby("metric", sort=False):
        panels[str(metric)] = _lines(study, of_metric, axes)
    # Numbers over two powers of ten would lie on one another.
    lowest = min(x)
    x_log = lowest > 0 and max(x) / lowest >= 100
    if len(panels) > 1:
        return charts.curves(x, panels, x_name=study.x, y_name="", across=2, x_log=x_log)
    return charts.curves(x, {title: panels[heading("auc")]}, x_name=study.x, y_name="AUC", chance=0.5, x_log=x_log)


def _lines(study: Study, measured: pd.DataFrame, axes: Iterable[str]) -> dict[str, list[Estimate | float]]:
    """Name of a line → its numbers; too many lines are drawn without their intervals, as bare numbers."""
    names = _names(measured, axes)
    bands = len(set(names)) <= MAX_BANDS
    lines: dict[str, list[Estimate | float]] = {}
    for name, estimate in zip(names, _estimates(measured), strict=True):
        line = lines.setdefault(name or study.detectors[0].name, [])
        line.append(estimate if bands else estimate.value)
    return lines


def _of_scores(study: Study, run: RunRecord) -> Figure:
    table = _part(run)
    base: Scores = {}
    fsd: Scores = {}
    for state, columns in (("base", base), ("fsd", fsd)):
        for spec in study.detectors:
            if f"{spec.key}.{state}" in table:
                columns[spec.shown] = table[f"{spec.key}.{state}"].to_numpy()
    draw = figures.roc if study.figure == "roc" else figures.score_distributions
    return draw(table["label"].to_numpy() == 1, base, fsd)


def _before_and_after(study: Study, run: RunRecord) -> Figure:
    """What the first detector measures, before fine-tuning and after it."""
    spec = study.detectors[0]
    table = _part(run)
    base = table[f"{spec.key}.base"].to_numpy()
    # The FSD is the base score less that of the fine-tuned model.
    tuned = base - table[f"{spec.key}.fsd"].to_numpy()
    # Members score higher, so that a perplexity is a score with the other sign.
    sign = -1 if spec.name == "perplexity" else 1
    member = table["label"].to_numpy() == 1
    return charts.before_and_after(member, sign * base, sign * tuned, name=spec.shown)


def _of_tokens(study: Study, run: RunRecord) -> Figure:
    table = stored(run, TOKENS)
    selections = {spec.shown: table[spec.key].to_numpy() for spec in study.detectors}
    return charts.tokens(
        table["label"].to_numpy() == 1, table["entropy"].to_numpy(), table["logp"].to_numpy(), selections
    )
