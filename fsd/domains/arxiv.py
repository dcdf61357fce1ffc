"""Papers on arXiv."""

from collections.abc import Iterator

from fsd.documents import Document
from fsd.domains import _hub

BENCHMARK = "avduarte333/arXivTection"


def benchmark(*, limit: int | None = None) -> Iterator[Document]:
    """arXivTection: passages of papers, older and newer than the models, in their own words (`Example_A`).

    A paper gives several passages, so the paper (`ID`) is the group. Source: DE-COP (Duarte et al. 2024).
    """
    columns = {"text": "Example_A", "label": "Label", "group": "ID"}
    return _hub.documents(BENCHMARK, columns, limit=limit)
