"""MIMIR: texts of 100 to 200 words from the Pile's training and test splits (Duan et al., COLM 2024).

Non-members of a group ngram_N_T share at most the share T of their N-grams with the training split: the lower T,
the easier the group. A loading script lies beside the files, so that the files are read one by one: JSONL, a text
per line, members in train/ and non-members in test/. Rows name no document of origin. The dataset is gated.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from fsd.data import hub_dataset as _hub
from fsd.data.benchmarks import Loaded
from fsd.data.documents import Document
from fsd.data.readers import document
from fsd.errors import UsageError

DATASET = "iamgroot42/mimir"
REVISION = "02500d3b7cece0cb7628e939ba9fc93fdb6362ae"
COLUMNS = {"text": "text"}
GROUP = ""
LABELS = "1: in the Pile's training split; 0: in its test split (by the file, rows have no label)"
NGRAMS = ("ngram_7_0.2", "ngram_13_0.2", "ngram_13_0.8")
MONTHS = ("2020_08", "2021_01", "2021_06", "2022_01", "2022_06", "2023_01", "2023_06")
DOMAINS = ("arxiv", "dm_mathematics", "github", "hackernews", "pile_cc", "pubmed_central", "wikipedia_(en)")
GROUPS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(DOMAINS, NGRAMS),
    "full_pile": (),
    "c4": (),
    "temporal_arxiv": MONTHS,
    "temporal_wiki": (),
}
"""Domain → its groups; the last two have non-members that are newer than the Pile."""
DEFAULT = "ngram_13_0.8"
PARTS = tuple(f"{name}/{group}" if group else name for name, groups in GROUPS.items() for group in groups or ("",))


def load(part: str) -> Loaded:
    """One domain and group, as arxiv/ngram_13_0.2; `arxiv` alone is its group ngram_13_0.8.

    Raises:
        UsageError: for another part, a line that is no text, or if the files cannot be had.
    """
    domain, _, group = part.partition("/")
    if domain in DOMAINS:
        group = group or DEFAULT
    whole = f"{domain}/{group}" if group else domain
    if whole not in PARTS:
        raise UsageError(f"part of mimir must be one of {', '.join(PARTS)}; got {part!r}")
    folder = f"cache_100_200_{10000 if domain == 'full_pile' else 1000}_512"
    name = f"{domain}_{group}.jsonl" if group else f"{domain}.jsonl"
    paths = [f"{folder}/{side}/{name}" for side in ("train", "test")]
    (members, others), revision = _hub.files(DATASET, paths, revision=REVISION)
    found = [*_lines(members, paths[0], True), *_lines(others, paths[1], False)]
    return Loaded(found, f"{DATASET}/{whole}", revision)


def _lines(file: Path, path: str, member: bool) -> Iterator[Document]:
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        where = f"{DATASET}/{path}:{number}"
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{where}: must be a JSON string; {error}") from error
        row = value if isinstance(value, dict) else {"text": value}
        yield document({**row, "label": member}, COLUMNS, where, labelled=True)
