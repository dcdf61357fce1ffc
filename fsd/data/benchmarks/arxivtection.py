"""arXivTection: passages of papers older and newer than the models (DE-COP, Duarte et al., ICML 2024).

`Example_A` is the passage in its own words; B, C and D are paraphrases for a quiz and are not read. A paper gives
several passages, so the paper is the group.
"""

from fsd.data import hub_dataset as _hub
from fsd.data.benchmarks import Loaded
from fsd.errors import UsageError

DATASET = "avduarte333/arXivTection"
REVISION = None
COLUMNS = {"text": "Example_A", "label": "Label", "group": "ID"}
GROUP = "paper"
LABELS = "1: the paper is older than the models; 0: it is newer"
PARTS = ()


def load(part: str) -> Loaded:
    """All passages.

    Raises:
        UsageError: for a part, or if the dataset cannot be had.
    """
    if part:
        raise UsageError(f"arxivtection must be loaded whole, it has no parts; got {part!r}")
    found = _hub.load(DATASET, COLUMNS, revision=REVISION)
    return Loaded(found.documents, DATASET, found.revision)
