"""BookMIA: passages of books known to be in a model's memory and of books from 2023 (Shi et al., ICLR 2024).

A book gives many passages, so the book is the group.
"""

from fsd.data import hub_dataset as _hub
from fsd.data.benchmarks import Loaded
from fsd.errors import UsageError

DATASET = "swj0419/BookMIA"
REVISION = "e0d586e4ed039eeb7d4481b79fb6357f19d92329"
COLUMNS = {"text": "snippet", "label": "label", "group": "book_id"}
GROUP = "book"
LABELS = "1: from a book that OpenAI models had memorised; 0: from a book first published in 2023"
PARTS = ()


def load(part: str) -> Loaded:
    """All passages.

    Raises:
        UsageError: for a part, or if the dataset cannot be had.
    """
    if part:
        raise UsageError(f"bookmia must be loaded whole, it has no parts; got {part!r}")
    found = _hub.load(DATASET, COLUMNS, revision=REVISION)
    return Loaded(found.documents, DATASET, found.revision)
