"""Files of rows, as tests write them."""

import json
from collections.abc import Iterable
from pathlib import Path


def write(path: str | Path, rows: Iterable[object]) -> str:
    """Write a row of JSON a line, and give the path."""
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)
