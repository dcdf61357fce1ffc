"""Subsets of the Pile, training split against validation split (LLM Dataset Inference, arXiv 2406.06443).

Both classes are random samples of one collection, so there is no shift in time between them. Rows do not name the
document they come from.
"""

from fsd.data import hub_dataset
from fsd.data.documents import Benchmark
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


def load(part: str) -> Benchmark:
    """One subset: one of `PARTS`, or any other configuration of the dataset.

    Raises:
        UsageError: without a subset, or if it is not available.
    """
    if not part:
        raise UsageError(f"pile must be followed by one subset, as in pile:wikipedia; known are {', '.join(PARTS)}")
    return hub_dataset.load(DATASET, COLUMNS, config=part, splits=SPLITS, revision=REVISION)
