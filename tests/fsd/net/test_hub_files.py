import gzip
import io
import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from fsd.errors import UsageError
from fsd.net.hub_files import hub_files

TEXTS = [f"text {i} of the corpus" for i in range(5000)]
LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
SHA = "0123456789abcdef0123456789abcdef01234567"

READ = """
import json, sys
from fsd.data.streaming import Corpus
from fsd.errors import UsageError

for place in json.loads(sys.argv[1]):
    try:
        corpus = Corpus([place])
        texts = [passage.text for passage in corpus]
        print(json.dumps([[f.url for f in corpus.files], corpus.size, corpus.done, len(texts), texts[-1]]))
    except UsageError as error:
        print(json.dumps(str(error)))
"""


def table() -> bytes:
    stream = io.BytesIO()
    parquet.write_table(pa.table({"text": TEXTS}), stream, row_group_size=1000)
    return stream.getvalue()


def test_files_are_streamed_at_their_commit(serve, in_fresh_process):
    packed = gzip.compress(LINES)
    files = {"en/a-0.json.gz": packed, "en/a-1.json.gz": packed, "all.parquet": table(), "cut.jsonl.gz": packed[:-200]}
    endpoint, asked = serve({"some/corpus": files})
    base = "hf://datasets/some/corpus"
    places = [f"{base}/en/a-*.json.gz", f"{base}@main/all.parquet", f"{base}/cut.jsonl.gz", f"{base}/en/b.jsonl"]
    many, one, cut, missing = in_fresh_process(READ, endpoint, [*places])
    pinned = f"hf://datasets/some/corpus@{SHA}"
    urls = [f"{pinned}/en/a-0.json.gz", f"{pinned}/en/a-1.json.gz"]
    assert many == [urls, 2 * len(packed), 2 * len(packed), 2 * len(TEXTS), TEXTS[-1]]
    assert one == [[f"{pinned}/all.parquet"], len(table()), len(table()), len(TEXTS), TEXTS[-1]]
    assert cut.startswith(f"{pinned}/cut.jsonl.gz must be a whole file of gzip of jsonl in UTF-8; ")
    assert missing == f"dataset some/corpus must have files en/b.jsonl; it has none of that name at commit {SHA}"
    whole = [line for line in asked if line.startswith("GET") and line.endswith("a-0.json.gz") and "resolve" in line]
    assert len(whole) == 1


def test_what_cannot_be_had_is_told_in_one_line(serve, in_fresh_process):
    endpoint, _ = serve({})
    absent, malformed = in_fresh_process(
        READ, endpoint, ["hf://datasets/no/body/a.jsonl", "hf://datasets/nobody.jsonl"]
    )
    assert absent.startswith("dataset no/body must be on the hub and open to you; ")
    assert malformed.startswith("a file on the hub must be given as hf://datasets/OWNER/NAME[@REVISION]/PATH; got hf:")


def test_without_a_network_it_is_refused_at_once():
    with pytest.raises(UsageError, match="the hub must be within reach"):
        hub_files("hf://datasets/some/corpus/a.jsonl")
