"""Wikipedia articles about events."""

from collections.abc import Iterator

from fsd.documents import Document
from fsd.domains import _hub

BENCHMARK = "swj0419/WikiMIA"
LENGTHS = (32, 64, 128, 256)


def benchmark(*, limit: int | None = None) -> Iterator[Document]:
    """WikiMIA: the first 32, 64, 128 and 256 words of articles on events before 2017 and from 2023 on.

    Rows name no article, and the longer ones begin with the shorter: near-duplicates make the groups.
    Source: "Detecting pretraining data from large language models" (Shi et al. 2024).
    """
    splits = [f"WikiMIA_length{length}" for length in LENGTHS]
    return _hub.documents(BENCHMARK, {"text": "input", "label": "label"}, splits=splits, limit=limit)
