"""BookMIA: passages of memorised books and of books from 2023 (arXiv 2310.16789).

The group is the book, which has many passages.
"""

from fsd.data import hub_dataset
from fsd.data.documents import Benchmark
from fsd.errors import UsageError

DATASET = "swj0419/BookMIA"
REVISION = "e0d586e4ed039eeb7d4481b79fb6357f19d92329"
COLUMNS = {"text": "snippet", "label": "label", "group": "book_id"}
GROUP = "book"
LABELS = "1: from a book that OpenAI models had memorised; 0: from a book first published in 2023"
PARTS = ()


def load(part: str) -> Benchmark:
    """All passages.

    Raises:
        UsageError: for a part, or if the dataset is not available.
    """
    if part:
        raise UsageError(f"bookmia must be loaded whole, it has no parts; got {part!r}")
    return hub_dataset.load(DATASET, COLUMNS, revision=REVISION)
