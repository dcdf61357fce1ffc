"""Answers that cannot be right: another number of rows than came in, other texts, or other scores of the same texts.

Rows are counted here by nothing of the package: lines of JSON, and the standard library's reader of CSV.
"""

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.hostile.case import Case

EXPECTED = "expected.csv"
"""Scores of data.jsonl, as `prepare` has made them."""
SAME_SCORES = {
    "data",
    "model",
    "out",
    "detectors",
    "columns",
    "json",
    "verbose",
    "name",
    "tags",
    "cache",
    "skip-invalid",
}
"""Flags that leave the score of a text what it is."""
SCORE = "loss.base"
CLOSE = 1e-4
Row = Mapping[str, Any]


def rows_of(file: Path) -> list[Row]:
    """The rows of a table; ValueError for one that is not as simple as its ending says."""
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        return list(pq.read_table(file).to_pylist())
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix == ".csv":
        return list(csv.DictReader(text.splitlines(keepends=True), strict=True))
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    raise ValueError(f"{file} is no table")


def values_of(words: Sequence[str], flag: str) -> list[str]:
    """The values of a flag on a command line; those before the first flag for ""."""
    values: list[str] = []
    now = ""
    for word in words:
        if word.startswith("--"):
            now, equals, value = word[2:].partition("=")
            values += [value] * (equals == "=" and now == flag)
        elif now == flag:
            values.append(word)
    return values


def wrong_answer(case: Case, folder: Path) -> str:
    """What cannot be right about an answer that a command gave."""
    if "--dry-run" in case.words:
        return ""
    if "--json" in case.words and (fault := _bad_json(folder / "printed.txt")):
        return fault
    if case.command in ("score", "detect"):
        return _wrong_rows(case, folder)
    return ""


def _bad_json(printed: Path) -> str:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        json.loads(printed.read_text(errors="replace"), parse_constant=refuse)
    except ValueError as error:
        return f"--json: {error}"
    return ""


def _wrong_rows(case: Case, folder: Path) -> str:
    """Rows that vanish or appear, texts that nobody gave, numbers that are none, other scores of known texts."""
    if case.circumstance.startswith("other.jsonl"):
        return ""  # the file is another one now
    outs = values_of(case.words, "out")
    inputs = values_of(case.words, "data" if case.command == "score" else "")
    try:
        given = [row for name in inputs for row in rows_of(folder / name)]
        answered = rows_of(folder / outs[-1])
    except (OSError, ValueError, LookupError, csv.Error, RecursionError):
        return ""  # too odd to be counted here
    said = (folder / "log.txt").read_text(errors="replace") + (folder / "printed.txt").read_text(errors="replace")
    missing = len(given) - len(answered)
    if missing < 0 or (missing and not re.search(rf"\b{missing:,}\b", said)):
        return f"{len(given)} rows in, {len(answered)} out, and nothing says why"
    # Columns can be joined to texts that stand in no row.
    joined = any(word.startswith("--columns") for word in case.words)
    strange = "" if joined else _other_texts(given, answered)
    return strange or _other_scores(case, answered, folder)


def _other_texts(given: Sequence[Row], answered: Sequence[Row]) -> str:
    texts = {str(row.get("text")) for row in given}
    strangers = [str(row["text"]) for row in answered if "text" in row and str(row["text"]) not in texts]
    return f"a text that nobody gave: {strangers[0][:80]!r}" if strangers and len(texts) == len(given) else ""


def _other_scores(case: Case, answered: Sequence[Row], folder: Path) -> str:
    flags = {word[2:].partition("=")[0] for word in case.words if word.startswith("--")}
    if case.command != "score" or not flags <= SAME_SCORES or values_of(case.words, "model") != ["model"]:
        return ""
    expected = {row["text"]: float(row[SCORE]) for row in rows_of(folder / EXPECTED)}
    for row in answered:
        score = float(row.get(SCORE) or math.nan)
        if SCORE in row and not math.isfinite(score):
            return f"the score of {str(row['text'])[:60]!r} is {row[SCORE]!r}"
        right = expected.get(str(row.get("text")), score)
        if abs(score - right) > CLOSE:
            return f"{str(row['text'])[:60]!r} has the score {score}, not {right}"
    return ""


def scored_as(expected: str = EXPECTED, out: str = "out.csv") -> Any:
    """A check that a table has the very rows and scores of another one."""

    def check(folder: Path) -> str:
        want = {row["text"]: float(row[SCORE]) for row in rows_of(folder / expected)}
        came = {row["text"]: float(row[SCORE]) for row in rows_of(folder / out)}
        if want.keys() != came.keys():
            return f"{len(want)} texts in, {len(came)} out, or others"
        other = [text for text, score in came.items() if abs(score - want[text]) > CLOSE]
        return f"{len(other)} texts have other scores, {other[0][:60]!r}" if other else ""

    return check
