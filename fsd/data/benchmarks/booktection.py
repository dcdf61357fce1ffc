"""BookTection: passages of books older and newer than the models, in three lengths (DE-COP, Duarte et al., ICML 2024).

`Example_A` is the passage in its own words; B, C and D are paraphrases for a quiz and are not read. A book gives
many passages in every length, so the book is the group.
"""

from fsd.data import hub_dataset as _hub
from fsd.data.benchmarks import Loaded
from fsd.errors import UsageError

DATASET = "avduarte333/BookTection"
REVISION = None
COLUMNS = {"text": "Example_A", "label": "Label", "group": "ID"}
GROUP = "book"
LABELS = "1: the book is older than the models; 0: it is newer"
PARTS = ("small", "medium", "large")


def load(part: str) -> Loaded:
    """The passages of one length (column `Length`); "" is all of them.

    Raises:
        UsageError: for another length, or if the dataset cannot be had.
    """
    if part and part not in PARTS:
        raise UsageError(f"part of booktection must be a length, one of {', '.join(PARTS)}; got {part!r}")
    found = _hub.load(DATASET, COLUMNS, only=("Length", part) if part else None, revision=REVISION)
    return Loaded(found.documents, DATASET, found.revision)
