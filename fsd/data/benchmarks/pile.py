"""Subsets of the Pile, training against validation split (Maini et al., NeurIPS 2024).

Both sides are random parts of one collection, so that there is no shift in time between them. Rows name no
document of origin.
"""

from fsd.data import hub_dataset as _hub
from fsd.data.benchmarks import Loaded
from fsd.errors import UsageError

DATASET = "pratyushmaini/llm_dataset_inference"
REVISION = None
COLUMNS = {"text": "text"}
GROUP = ""
LABELS = "1: in the Pile's training split; 0: in its validation split (by the split, rows have no label)"
PARTS = (
    "arxiv", "bookcorpus2", "books3", "cc", "enron", "europarl", "freelaw", "github", "gutenberg", "hackernews",
    "math", "opensubtitles", "openwebtext2", "philpapers", "stackexchange", "ubuntu", "uspto", "wikipedia",
    "youtubesubtitles",
)  # fmt: skip
SPLITS = {"train": True, "val": False}


def load(part: str) -> Loaded:
    """One subset; `PARTS` are those that are known, the dataset decides which there are.

    Raises:
        UsageError: without a subset, or if it cannot be had.
    """
    if not part:
        raise UsageError(f"pile must be asked for one subset, as in pile:wikipedia; known are {', '.join(PARTS)}")
    found = _hub.load(DATASET, COLUMNS, config=part, splits=SPLITS, revision=REVISION)
    return Loaded(found.documents, f"{DATASET}/{part}", found.revision)
