"""PatentMIA: Chinese patents cut to 512 words (DC-PDD, arXiv 2409.14781).

The authors released it as an archive with their code, not on the hub: `patentmia:PatentMIA.jsonl` reads the unpacked
file, one object per line. Rows do not name the patent.
"""

from collections import Counter

from fsd.data import local_files
from fsd.data.documents import Benchmark
from fsd.data.readers import read_files

DATASET = ""
REVISION = None
COLUMNS = {"text": "text", "label": "label"}
GROUP = ""
LABELS = "1: published before 2023; 0: published after 1 March 2024"
PARTS = ("FILE",)


def load(part: str) -> Benchmark:
    """The texts of the unpacked file.

    Raises:
        UsageError: if the file does not exist, or a row is invalid.
    """
    files = local_files.paths(part, PARTS, "patentmia")
    left_out = Counter[str]()
    documents = read_files(files, COLUMNS, labelled=True, skipped=left_out)
    return Benchmark(documents, str(files[0]), local_files.digest(files), left_out)
