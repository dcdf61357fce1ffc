"""arXivTection: passages of papers older and newer than the models (DE-COP, arXiv 2402.09910).

`Example_A` is the original passage; the paraphrases B, C and D are not used. The group is the paper, which has
several passages.
"""

from fsd.data import hub_dataset
from fsd.data.documents import Benchmark
from fsd.errors import UsageError

DATASET = "avduarte333/arXivTection"
REVISION = None
COLUMNS = {"text": "Example_A", "label": "Label", "group": "ID"}
GROUP = "paper"
LABELS = "1: the paper is older than the models; 0: it is newer"
PARTS = ()


def load(part: str) -> Benchmark:
    """All passages.

    Raises:
        UsageError: for a part, or if the dataset is not available.
    """
    if part:
        raise UsageError(f"arxivtection must be loaded whole, it has no parts; got {part!r}")
    return hub_dataset.load(DATASET, COLUMNS, revision=REVISION)
