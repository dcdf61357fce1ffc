"""WikiMIA: the first words of Wikipedia articles about events (Shi et al., ICLR 2024).

The lengths are prefixes of the same articles, and rows name no article, so that near-duplicates make the groups.
"""

from fsd.data import hub_dataset as _hub
from fsd.data.benchmarks import Loaded
from fsd.errors import UsageError

DATASET = "swj0419/WikiMIA"
REVISION = "a89ab76d88f704e9bc5870ac39cc9d458a2a70ac"
COLUMNS = {"text": "input", "label": "label"}
GROUP = ""
LABELS = "1: the event was before 2017; 0: it was in 2023 or later"
PARTS = ("32", "64", "128", "256")


def load(part: str) -> Loaded:
    """The articles cut to 32, 64, 128 or 256 words; "" is all four.

    Raises:
        UsageError: for another length, or if the dataset cannot be had.
    """
    if part and part not in PARTS:
        raise UsageError(f"part of wikimia must be a length in words, one of {', '.join(PARTS)}; got {part!r}")
    splits = [f"WikiMIA_length{length}" for length in ([part] if part else PARTS)]
    found = _hub.load(DATASET, COLUMNS, splits=splits, revision=REVISION)
    return Loaded(found.documents, DATASET, found.revision)
