"""From finished cells to the paper's layout: numbers with their places, a table in CSV and in Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsd.evaluation.intervals import Estimate
from pipelines.study.cells import SCORES, Done
from pipelines.study.spec import DATA, MODEL, Detection, State, Study

if TYPE_CHECKING:
    import pandas as pd

METRICS = {"auc": "AUC", "tpr_at_5fpr": "TPR@5%FPR", "accuracy": "accuracy"}
STATES = {"base": "base", "fsd": "FSD"}
WIDE = 8
"""Columns beyond which a table shows no intervals."""


@dataclass(frozen=True)
class Number:
    """A number and its place: axis, detector, state, metric and the detector's settings, each with its label."""

    place: Mapping[str, str]
    estimate: Estimate


def numbers(study: Study, cells: Sequence[Done]) -> list[Number]:
    """Every number that the study shows, cell by cell."""
    found = []
    for done in cells:
        for detection in study.detectors:
            for state in study.states:
                place = {
                    **done.cell.place,
                    **{name: f"{value:g}" for name, value in detection.settings.items()},
                    "detector": detection.shown,
                    "state": STATES[state],
                }
                found += list(_metrics(study, done, detection, state, place))
    return found


def _metrics(study: Study, done: Done, detection: Detection, state: State, place: dict[str, str]) -> Iterator[Number]:
    # Where nothing was trained there is no FSD, and the base score stands for itself.
    name = f"{detection.key}.{state}"
    if f"auc/{name}" not in done.metrics:
        name = f"{detection.key}.base"
    for metric in study.metrics:
        value = done.metrics.get(f"{metric}/{name}")
        if value is None:
            continue
        low, high = (done.metrics.get(f"{metric}_{end}/{name}", value) for end in ("low", "high"))
        yield Number({**place, "metric": METRICS[metric]}, Estimate(value, low, high))


def paired(study: Study, cells: Sequence[Done]) -> list[Number]:
    """p-values, Holm-corrected in each cell, of the detector `study.against` against every other one."""
    from fsd.evaluation.metrics import compare

    found = []
    shown = {d.key: d.shown for d in study.detectors}
    for done in cells if study.against else ():
        frame = scores(done)
        columns = {c.removesuffix(".base"): frame[c].to_numpy() for c in frame.columns if c.endswith(".base")}
        if study.against not in columns:
            continue
        mine = columns.pop(study.against)
        others = dict.fromkeys(columns, mine)
        for name, result in compare(frame["label"] == 1, columns, others, list(frame["group"])).items():
            place = {"detector": shown[name], "state": "base", "metric": f"p against {shown[study.against]}"}
            found.append(Number({**done.cell.place, **place}, Estimate(result.p_holm, result.p_holm, result.p_holm)))
    return found


def scores(done: Done) -> "pd.DataFrame":
    """The scores of a cell's test texts: label, group, and a column a detector and state."""
    import pandas as pd

    from fsd import tracking

    frame = pd.read_parquet(tracking.fetch_artifact(done.run_id, SCORES))
    return frame[frame["split"] == "test"].reset_index(drop=True)


Place = tuple[tuple[str, ...], tuple[str, ...]]
"""Headings of a row and of a column."""


@dataclass(frozen=True)
class Layout:
    """The paper's table: headings of rows and columns, and the number in each place, if there is one."""

    corner: tuple[str, ...]
    rows: list[tuple[str, ...]]
    columns: list[tuple[str, ...]]
    values: Mapping[Place, Number]


def layout(study: Study, found: Sequence[Number]) -> Layout:
    """The numbers in the rows and columns of the study."""
    values: dict[Place, Number] = {}
    for number in found:
        row, column = (tuple(number.place[axis] for axis in axes) for axes in (study.rows, study.columns))
        values[row, column] = number
    values = _merged(study, values)
    rows, columns = ([*dict.fromkeys(place[side] for place in values)] for side in (0, 1))
    return Layout(study.rows, rows, _sorted(columns), values)


def _merged(study: Study, values: Mapping[Place, Number]) -> dict[Place, Number]:
    """Base scores once, where no cell's axis changes them: what is varied is how the adapter is trained."""
    axes = {axis.name for axis in study.axes if len({number.place.get(axis.name) for number in values.values()}) > 1}

    def short(place: Place) -> Place:
        row, column = place
        if values[place].place["state"] != STATES["base"]:
            return place
        return row, tuple("" if axis in axes else label for axis, label in zip(study.columns, column, strict=True))

    found: dict[Place, set[Estimate]] = {}
    for place, number in values.items():
        found.setdefault(short(place), set()).add(number.estimate)
    if not study.trained or any(len(estimates) > 1 for estimates in found.values()):
        return dict(values)
    return {short(place): number for place, number in values.items()}


def _sorted(columns: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Columns with their first headings side by side, in the order in which they came."""
    for level in reversed(range(len(columns[0]) if columns else 0)):
        order = [*dict.fromkeys(column[level] for column in columns)]
        columns = sorted(columns, key=lambda column: order.index(column[level]))
    return columns


def frame(study: Study, table: Layout) -> "pd.DataFrame":
    """The table with plain numbers, and the paper's own beside them where they are known."""
    import pandas as pd

    lines = []
    for row in table.rows:
        line: dict[str, object] = dict(zip(table.corner, row, strict=True))
        for column in table.columns:
            number = table.values.get((row, column))
            line[heading(column)] = None if number is None else round(number.estimate.value, 4)
            if number is not None and published(study, number) is not None:
                line[f"{heading(column)} (paper)"] = published(study, number)
        lines.append(line)
    return pd.DataFrame(lines)


def published(study: Study, number: Number) -> float | None:
    """The paper's own number of that model, data, detector, state and metric."""
    return study.paper.get(tuple(number.place.get(axis, "") for axis in (MODEL, DATA, "detector", "state", "metric")))


def heading(place: Sequence[str]) -> str:
    """Headings above one another, in one line."""
    return " · ".join(filter(None, place))


def markdown(study: Study, table: Layout) -> str:
    """The table in Markdown, AUCs with their intervals unless it is wide."""
    lines = [[*table.corner, *map(heading, table.columns)]]
    lines.append(["---"] * len(table.corner) + ["---:"] * len(table.columns))
    for row in table.rows:
        found = [table.values.get((row, column)) for column in table.columns]
        lines.append([*row, *(_text(study, number, wide=len(table.columns) > WIDE) for number in found)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _text(study: Study, number: Number | None, *, wide: bool) -> str:
    if number is None:
        return "–"
    value, low, high = number.estimate
    if number.place["metric"].startswith("p "):
        text = "<.001" if value < 5e-4 else f"{value:.3f}".replace("0.", ".", 1)
    elif wide or low == high:
        text = f"{value:.2f}".replace("0.", ".", 1)
    else:
        text = str(number.estimate)
    own = published(study, number)
    return text if own is None else f"{text} (paper {own:.2f})".replace(" 0.", " .")


def long(study: Study, cells: Sequence[Done], found: Sequence[Number]) -> "pd.DataFrame":
    """One row a number, with its interval and the run that it is from."""
    import pandas as pd

    runs = {tuple(done.cell.place.items()): done for done in cells}
    axes = [*next(iter(cells)).cell.place]
    rows = []
    for number in found:
        done = runs[tuple((axis, number.place[axis]) for axis in axes)]
        value, low, high = number.estimate
        rows.append({**number.place, "value": value, "low": low, "high": high, "run": done.run_id})
    return pd.DataFrame(rows)
