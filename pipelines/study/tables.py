"""Tables of a study: measurements with labels, the paper's layout, and the page in Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsd.evaluation.intervals import Estimate
from pipelines.study.cells import SCORES, CellResult
from pipelines.study.grid import label
from pipelines.study.spec import DATA, MODEL, DetectorSpec, State, Study

if TYPE_CHECKING:
    import pandas as pd

METRICS = {"auc": "AUC", "tpr_at_5fpr": "TPR@5%FPR", "accuracy": "accuracy"}
STATES = {"base": "base", "fsd": "FSD"}
WIDE = 8
"""Number of columns above which intervals are omitted."""
FALLBACK_SHARE = 0.1
"""Share of texts scored by a fallback above which a note says so."""
MAX_LISTED = 5
"""Maximum number of detectors listed in a note."""


@dataclass(frozen=True)
class Measurement:
    """A number and its labels by axis, detector, state, metric and detector setting."""

    labels: Mapping[str, str]
    estimate: Estimate


def measurements(study: Study, results: Sequence[CellResult]) -> list[Measurement]:
    """All metrics that the study shows, cell by cell."""
    measured = []
    for result in results:
        for spec in study.detectors:
            for state in study.states:
                labels = {
                    **result.cell.labels,
                    **{name: f"{value:g}" for name, value in spec.settings.items()},
                    "detector": spec.shown,
                    "state": STATES[state],
                }
                measured += list(_metrics(study, result, spec, state, labels))
    return measured


def _metrics(
    study: Study, result: CellResult, spec: DetectorSpec, state: State, labels: dict[str, str]
) -> Iterator[Measurement]:
    # A cell without training has no FSD; its base score takes the place.
    name = f"{spec.key}.{state}"
    if f"auc/{name}" not in result.metrics:
        name = f"{spec.key}.base"
    for metric in study.metrics:
        value = result.metrics.get(f"{metric}/{name}")
        if value is not None:
            low, high = (result.metrics.get(f"{metric}_{end}/{name}", value) for end in ("low", "high"))
            yield Measurement({**labels, "metric": METRICS[metric]}, Estimate(value, low, high))


def paired_tests(study: Study, results: Sequence[CellResult]) -> list[Measurement]:
    """p-values of `study.against` against every other detector, Holm-corrected within each cell."""
    from fsd.evaluation.intervals import Bootstrap
    from fsd.evaluation.metrics import compare

    measured = []
    shown = {spec.key: spec.shown for spec in study.detectors}
    for result in results if study.against else ():
        frame = read_scores(result)
        scores = {c.removesuffix(".base"): frame[c].to_numpy() for c in frame.columns if c.endswith(".base")}
        if study.against not in scores:
            continue
        against = scores.pop(study.against)
        bootstrap = Bootstrap.draw(frame["label"] == 1, list(frame["group"]))
        tests = compare(bootstrap, scores, dict.fromkeys(scores, against))
        for name, test in tests.items():
            labels = {"detector": shown[name], "state": "base", "metric": f"p against {shown[study.against]}"}
            p = Estimate(test.p_holm, test.p_holm, test.p_holm)
            measured.append(Measurement({**result.cell.labels, **labels}, p))
    return measured


def read_scores(result: CellResult) -> "pd.DataFrame":
    """Scores of a cell's test texts: label, group, and one column per detector and state."""
    import pandas as pd

    from fsd import tracking

    frame = pd.read_parquet(tracking.fetch_artifact(result.run_id, SCORES))
    return frame[frame["split"] == "test"].reset_index(drop=True)


Position = tuple[tuple[str, ...], tuple[str, ...]]
"""Headings of a row and of a column."""


@dataclass(frozen=True)
class Layout:
    """The paper's table: headings of the row headings, of rows and columns, and measurements by position."""

    corner: tuple[str, ...]
    rows: list[tuple[str, ...]]
    columns: list[tuple[str, ...]]
    values: Mapping[Position, Measurement]


def layout(study: Study, measured: Sequence[Measurement]) -> Layout:
    """Arrange measurements in the rows and columns of the study."""
    values: dict[Position, Measurement] = {}
    for measurement in measured:
        row, column = (tuple(measurement.labels[axis] for axis in axes) for axes in (study.rows, study.columns))
        values[row, column] = measurement
    values = _merge_base(study, values)
    rows, columns = ([*dict.fromkeys(position[side] for position in values)] for side in (0, 1))
    return Layout(study.rows, rows, _grouped(columns), values)


def _merge_base(study: Study, values: Mapping[Position, Measurement]) -> dict[Position, Measurement]:
    """Merge the columns of base scores if they are equal, as where only the training of the adapter is varied."""
    varied = {axis.name for axis in study.axes if len({m.labels.get(axis.name) for m in values.values()}) > 1}

    def merged(position: Position) -> Position:
        row, column = position
        if values[position].labels["state"] != STATES["base"]:
            return position
        return row, tuple("" if axis in varied else name for axis, name in zip(study.columns, column, strict=True))

    estimates: dict[Position, set[Estimate]] = {}
    for position, measurement in values.items():
        estimates.setdefault(merged(position), set()).add(measurement.estimate)
    if not study.trained or any(len(different) > 1 for different in estimates.values()):
        return dict(values)
    return {merged(position): measurement for position, measurement in values.items()}


def _grouped(columns: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Columns grouped by their first headings, otherwise in order of appearance."""
    for level in reversed(range(len(columns[0]) if columns else 0)):
        order = [*dict.fromkeys(column[level] for column in columns)]
        columns = sorted(columns, key=lambda column: order.index(column[level]))
    return columns


def frame(study: Study, table: Layout) -> "pd.DataFrame":
    """The table with plain numbers, next to them the paper's where they are known."""
    import pandas as pd

    lines = []
    for row in table.rows:
        line: dict[str, object] = dict(zip(table.corner, row, strict=True))
        for column in table.columns:
            measurement = table.values.get((row, column))
            line[heading(column)] = None if measurement is None else round(measurement.estimate.value, 4)
            if measurement is not None and printed(study, measurement) is not None:
                line[f"{heading(column)} (paper)"] = printed(study, measurement)
        lines.append(line)
    return pd.DataFrame(lines)


def printed(study: Study, measurement: Measurement) -> float | None:
    """The paper's number for the same model, data, detector, state and metric, if known."""
    axes = (MODEL, DATA, "detector", "state", "metric")
    return study.paper.get(tuple(measurement.labels.get(axis, "") for axis in axes))


def heading(labels: Sequence[str]) -> str:
    """Nested headings in one line."""
    return " · ".join(filter(None, labels))


def markdown(study: Study, table: Layout) -> str:
    """The table in Markdown, with intervals of AUCs unless it is wide."""
    lines = [[*table.corner, *map(heading, table.columns)]]
    lines.append(["---"] * len(table.corner) + ["---:"] * len(table.columns))
    wide = len(table.columns) > WIDE
    for row in table.rows:
        cells = [_text(study, table.values.get((row, column)), wide=wide) for column in table.columns]
        lines.append([*row, *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _text(study: Study, measurement: Measurement | None, *, wide: bool) -> str:
    if measurement is None:
        return "–"
    value, low, high = measurement.estimate
    if measurement.labels["metric"].startswith("p "):
        text = "<.001" if value < 5e-4 else f"{value:.3f}".replace("0.", ".", 1)
    elif wide or low == high:
        text = f"{value:.2f}".replace("0.", ".", 1)
    else:
        text = str(measurement.estimate)
    paper = printed(study, measurement)
    return text if paper is None else f"{text} (paper {paper:.2f})".replace(" 0.", " .")


def long(results: Sequence[CellResult], measured: Sequence[Measurement]) -> "pd.DataFrame":
    """One row per number, with its interval and the id of its run."""
    import pandas as pd

    runs = {tuple(result.cell.labels.items()): result.run_id for result in results}
    axes = results[0].cell.labels
    rows = []
    for measurement in measured:
        run_id = runs[tuple((axis, measurement.labels[axis]) for axis in axes)]
        rows.append({**measurement.labels, **measurement.estimate._asdict(), "run": run_id})
    return pd.DataFrame(rows)


def page(study: Study, results: Sequence[CellResult], table: Layout) -> str:
    """The Markdown page: title, table and notes."""
    text = markdown(study, table)
    return "\n".join([f"# {study.place}", "", study.title, "", text, *_notes(study, results, "[" in text), ""])


def _notes(study: Study, results: Sequence[CellResult], has_intervals: bool) -> list[str]:
    models = list(dict.fromkeys(label(result.cell.config.model.model) for result in results))
    data = dict.fromkeys(", ".join(map(label, result.cell.config.data.data)) for result in results)
    tested = sorted({int(result.metrics["texts/test"]) for result in results})
    seed = results[0].cell.config.seed
    notes = [f"Model: {', '.join(models)}. Texts: {'; '.join(data)}; {_range(tested)} test texts, seed {seed}."]
    if has_intervals:
        notes.append("In brackets: 95 % bootstrap intervals, resampled by groups of related texts.")
    blind = sorted({round(r.metrics["audit/blind_auc"], 2) for r in results if "audit/blind_auc" in r.metrics})
    if blind:
        notes.append(f"A bag-of-words classifier without the model reaches AUC {_range(blind)} on the same texts.")
    notes += [study.note] if study.note else []
    notes += _fallbacks(study, results)
    for name, reason in dict.fromkeys(pair for result in results for pair in result.left_out.items()):
        notes.append(f"{name} is missing where it cannot be computed: {reason}.")
    if not study.paper:
        notes.append("The paper's own numbers are not on record here.")
    elif {place[0] for place in study.paper} & set(models):
        notes.append("In parentheses: the paper's own numbers.")
    else:
        notes.append("The paper's own numbers are for other models.")
    return [f"- {note}" for note in notes]


def _fallbacks(study: Study, results: Sequence[CellResult]) -> list[str]:
    """A note that names the detectors that often score by their fallback."""
    often = [
        spec.shown
        for spec in study.detectors
        if max(result.metrics.get(f"fallback/{spec.key}.base", 0.0) for result in results) > FALLBACK_SHARE
    ]
    if not often:
        return []
    names = ", ".join(often) if len(often) <= MAX_LISTED else f"{len(often)} of {len(study.detectors)} settings"
    return [f"On more than {FALLBACK_SHARE:.0%} of the texts no token met the condition; fallback used by: {names}."]


def _range(values: Sequence[float]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"
