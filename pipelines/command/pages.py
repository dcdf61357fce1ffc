"""Where the pages of the documentation are: they come with the checkout, and with the wheel."""

import sys
from pathlib import Path

FOLDERS = (Path(__file__).parents[2] / "docs", Path(sys.prefix) / "share" / "doc" / "fsd")


def page(name: str) -> Path:
    """The file of a page: in the checkout, or where the wheel put it; `docs/NAME` where neither has it."""
    for folder in FOLDERS:
        if (folder / name).is_file():
            return folder / name
    return Path("docs") / name
