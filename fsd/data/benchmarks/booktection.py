"""BookTection: passages of books older and newer than the models, in three lengths (DE-COP, arXiv 2402.09910).

`Example_A` is the original passage; the paraphrases B, C and D are not used. The group is the book, which has many
passages of every length.
"""

from fsd.data import hub_dataset
from fsd.data.documents import Benchmark
from fsd.errors import UsageError

DATASET = "avduarte333/BookTection"
REVISION = None
COLUMNS = {"text": "Example_A", "label": "Label", "group": "ID"}
GROUP = "book"
LABELS = "1: the book is older than the models; 0: it is newer"
PARTS = ("small", "medium", "large")


def load(part: str) -> Benchmark:
    """The passages of one length (column `Length`); "" is all lengths.

    Raises:
        UsageError: for another length, or if the dataset is not available.
    """
    if part and part not in PARTS:
        raise UsageError(f"part of booktection must be a length, one of {', '.join(PARTS)}; got {part!r}")
    return hub_dataset.load(DATASET, COLUMNS, only=("Length", part) if part else None, revision=REVISION)
