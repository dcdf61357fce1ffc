"""Verdicts by rights holder or domain, where a column of the texts names them, with the day of a reservation."""

from collections.abc import Mapping, Sequence
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from typing import NamedTuple

import pandas as pd

from fsd.data.documents import Documents
from fsd.data.knowledge_cutoffs import cutoff
from fsd.data.readers import read_rows
from fsd.errors import UsageError
from fsd.reporting.report import Column, Table
from fsd.verdicts.verdicts import MEMBER, NOT_SHOWN, Verdicts

COLUMNS = ("owner", "domain")
"""Columns that name the holder of a text; the first that a row has counts."""
RESERVED = "reserved"
"""Column with the day on which rights in the text were reserved."""
TABLES = (".jsonl", ".csv", ".parquet", ".json")


class Holder(NamedTuple):
    """Who holds a text, and since when its rights are reserved, if that is known."""

    name: str
    reserved: Date | None = None


def holders(files: Sequence[str]) -> dict[str, Holder]:
    """Origin of a text → its holder, for the files that have a column of them."""
    named = {}
    for file in files:
        if not file.lower().endswith(TABLES):
            continue
        for origin, row in read_rows([file]):
            name = next((row[column] for column in COLUMNS if row.get(column)), None)
            if name is not None:
                named[origin] = Holder(str(name), _day(row.get(RESERVED), origin))
    return named


def _day(value: object, origin: str) -> Date | None:
    if value is None or value == "" or pd.isna(value):  # type: ignore[call-overload]
        return None
    try:
        return Date.fromisoformat(str(value)[:10])
    except ValueError as error:
        raise UsageError(f"{origin}: {RESERVED} must be a day such as 2024-06-30; got {value!r:.60}") from error


def owners_table(
    documents: Documents, verdicts: Verdicts, named: Mapping[str, Holder], model: str, last_day: Date | None
) -> Table | None:
    """One line per holder, the most called texts first; None if no text has one."""
    if not named:
        return None
    held = [named.get(document.origin_url, Holder("not named")) for document in documents]
    frame = pd.DataFrame(held).assign(verdict=verdicts.table["verdict"].to_numpy())
    rows = []
    for name, group in frame.groupby("name"):
        called = (group["verdict"] == MEMBER).sum()
        unshown = (group["verdict"] == NOT_SHOWN).sum()
        days = [day for day in group["reserved"].tolist() if isinstance(day, Date)]
        earliest = str(min(days, default=""))
        rows.append((name, len(group), called, unshown, len(group) - called - unshown, earliest))
    table = pd.DataFrame(rows, columns=["owner", "texts", "called", "not_shown", "no_verdict", "reserved"])
    table["data_end"] = _data_end(model, last_day)
    columns = [
        Column("holder", "owner"),
        Column("texts"),
        Column("called members", "called"),
        Column("membership not shown", "not_shown"),
        Column("no verdict", "no_verdict"),
        Column("rights reserved on", "reserved", words=True),
        Column("model's data end", "data_end", words=True),
    ]
    return Table(
        table.sort_values("called", ascending=False, kind="stable"),
        columns,
        caption="Texts by rights holder or domain, as the column of the file names them. The day of the first "
        "reservation of rights stands beside the last day of the model's data, where both are known.",
        title="by holder",
        name="owners",
        printed=False,
    )


def _data_end(model: str, last_day: Date | None) -> str:
    """The last day of a model's data, as it was given or as it is known."""
    if last_day:
        return last_day.isoformat()
    try:
        entry = cutoff(model)
    except UsageError:
        return "not known"
    return (entry.end or entry.day).isoformat()
