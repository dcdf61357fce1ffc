"""WikiMIA: the first words of Wikipedia articles about events (arXiv 2310.16789).

The lengths are prefixes of the same articles. Rows do not name the article, so near-duplicates are grouped.
"""

from fsd.data import hub_dataset
from fsd.data.documents import Benchmark
from fsd.errors import UsageError

DATASET = "swj0419/WikiMIA"
REVISION = "a89ab76d88f704e9bc5870ac39cc9d458a2a70ac"
COLUMNS = {"text": "input", "label": "label"}
GROUP = ""
LABELS = "1: the event was before 2017; 0: it was in 2023 or later"
PARTS = ("32", "64", "128", "256")


def load(part: str) -> Benchmark:
    """The articles cut to 32, 64, 128 or 256 words; "" is all four.

    Raises:
        UsageError: for another length, or if the dataset is not available.
    """
    if part and part not in PARTS:
        raise UsageError(f"part of wikimia must be a length in words, one of {', '.join(PARTS)}; got {part!r}")
    splits = [f"WikiMIA_length{length}" for length in ([part] if part else PARTS)]
    return hub_dataset.load(DATASET, COLUMNS, splits=splits, revision=REVISION)
