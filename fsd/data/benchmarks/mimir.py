"""MIMIR: texts of 100 to 200 words from the Pile's training and test splits (arXiv 2402.07841).

Non-members of a group ngram_N_T have at most a share T of their N-grams in the training split: the lower T, the easier
the group. The repository has a loading script, so its JSONL files are read directly: a text per line, members in
train/ and non-members in test/. Rows do not name the document they come from. The dataset is gated.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fsd.data import hub_dataset
from fsd.data.documents import Benchmark
from fsd.data.readers import Row, parse_rows
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
"""Groups of each domain; the non-members of the temporal domains are newer than the Pile."""
DEFAULT = "ngram_13_0.8"
PARTS = tuple(f"{name}/{group}" if group else name for name, groups in GROUPS.items() for group in groups or ("",))


def load(part: str) -> Benchmark:
    """One domain and group, e.g. arxiv/ngram_13_0.2; the default group is ngram_13_0.8.

    Raises:
        UsageError: for another part, a line that is not a text, or if the files are not available.
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
    (members, others), revision = hub_dataset.files(DATASET, paths, revision=REVISION)
    rows = (*_rows(members, paths[0], True), *_rows(others, paths[1], False))
    left_out = Counter[str]()
    documents = list(parse_rows(rows, COLUMNS, labelled=True, skipped=left_out))
    return Benchmark(documents, f"{DATASET}/{whole}", revision, left_out)


def _rows(file: Path, path: str, member: bool) -> Iterator[tuple[Row, str]]:
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        where = f"{DATASET}/{path}:{number}"
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{where}: must be a JSON string; {error}") from error
        row = value if isinstance(value, dict) else {"text": value}
        yield {**row, "label": member}, where
