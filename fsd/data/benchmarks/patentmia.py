"""PatentMIA: Chinese patents cut to 512 words (DC-PDD, Zhang et al., EMNLP 2024).

Released by its authors as an archive beside their code, not on the hub: `patentmia:PatentMIA.jsonl` reads the
unpacked file, one object a line. Rows name no patent.
"""

from fsd.data import local_files as _local
from fsd.data.benchmarks import Loaded
from fsd.data.readers import read_files

DATASET = ""
REVISION = None
COLUMNS = {"text": "text", "label": "label"}
GROUP = ""
LABELS = "1: published before 2023; 0: published after 1 March 2024"
PARTS = ("FILE",)


def load(part: str) -> Loaded:
    """The texts of the unpacked file.

    Raises:
        UsageError: if it is no file, or a row breaks a rule.
    """
    files = _local.paths(part, PARTS, "patentmia")
    return Loaded(read_files(files, COLUMNS, labelled=True), str(files[0]), _local.content(files))
