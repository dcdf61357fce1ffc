import csv
import io
import json
from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsd.data import benchmarks
from fsd.token_stats import written

Run = Callable[[str, str, Any], list[Any]]

SHA = "0123456789abcdef0123456789abcdef01234567"
CODE = """
import json, sys
from fsd.data import benchmarks
from fsd.data.periods import kinds_of
from fsd.errors import UsageError
for entry in json.loads(sys.argv[1]):
    try:
        found = benchmarks.load(entry) if isinstance(entry, str) else benchmarks.hub_documents(entry[0], {}, **entry[1])
        rows = [[d.text, d.member, d.group, d.origin_url] for d in found.documents]
        kinds = sorted({str(kind) for kind in kinds_of(found.documents)})
        print(json.dumps({"source": found.source, "kinds": kinds, "revision": found.revision, "rows": rows}))
    except UsageError as error:
        print(json.dumps(str(error)))
"""


def parquet(rows):
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


def lines(values):
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def wikimia():
    """A Parquet file a length, the splits named by the files alone."""
    return {
        f"data/WikiMIA_length{n}-00000-of-00001-{n:016x}.parquet": parquet(
            [{"input": f"{n} {i}", "label": i} for i in (0, 1)]
        )
        for n in (32, 64, 128, 256)
    }


def bookmia():
    rows = [
        {"book_id": i // 2, "book": f"Book {i // 2}.txt", "snippet_id": i % 2, "snippet": f"page {i}", "label": i // 2}
        for i in range(4)
    ]
    return {"README.md": b"---\nlicense: mit\n---\n", "book_data.jsonl": lines(rows)}


def tection(lengths=(), more=()):
    """The verbatim passage, three paraphrases, the place of the answer, the label, the document (, the length)."""
    out = io.StringIO()
    writer = csv.writer(out)
    head = ["Example_A", "Example_B", "Example_C", "Example_D", "Answer", "Label", "ID"]
    writer.writerow(head + ["Length"] * bool(lengths))
    for length in lengths or ("",):
        rows = [[f'a "{length}" passage, {i}', "b", "c", "d", "A", i, f"Title {i}"] for i in (0, 1)]
        writer.writerows(row + [length] * bool(lengths) for row in [*rows, *more])
    return out.getvalue().encode()


def pile():
    """Two of the configurations, each with a training and a validation split, and a perturbed text beside each."""
    card, files = "---\nconfigs:\n", {}
    for name in ("arxiv", "wikipedia"):
        card += f"- config_name: {name}\n  data_files:\n"
        for split in ("train", "val"):
            path = f"{name}/{split}-00000-of-00001.parquet"
            card += f"  - split: {split}\n    path: {path}\n"
            files[path] = parquet([{"text": f"{name} {split} {i}", "butter_fingers": "txet"} for i in (0, 1)])
    return {"README.md": f"{card}---\n".encode(), **files}


def nih():
    """Three splits, of which the last two are non-members."""
    rows = {split: [{"text": f"{split} grant {i}"} for i in (0, 1)] for split in ("train", "validation", "test")}
    return {f"data/{split}-00000-of-00001.parquet": parquet(content) for split, content in rows.items()}


def mimir():
    """JSON strings, one a line; the sides need not be of one length; a loading script beside them."""
    files = {"mimir.py": b"raise RuntimeError\n"}
    for folder, name in (
        ("cache_100_200_1000_512", "arxiv_ngram_13_0.8"),
        ("cache_100_200_1000_512", "arxiv_ngram_7_0.2"),
        ("cache_100_200_10000_512", "full_pile"),
    ):
        files[f"{folder}/train/{name}.jsonl"] = lines([f"{name} in\u2028side", f"{name} \u4e2d"])
        files[f"{folder}/test/{name}.jsonl"] = lines([f"{name} out"])
    return files


def hubble():
    """Inserted passages, with the number of times, and those that were left out."""
    files = {}
    for split, counts in (("train", (1, 256)), ("test", (0, 0))):
        rows = "".join(f'"{split} passage, {at}",{count}\n' for at, count in enumerate(counts))
        files[f"{split}.csv"] = f"text,duplicates\n{rows}".encode()
    return files


def wikimia25():
    names = ("WikiMIA_length32", "WikiMIA_length64", "WikiMIA_length128", "paper_subset")
    rows = {name: parquet([{"input": f"{name} {i}", "label": i} for i in (0, 1)]) for name in names}
    return {f"data/{name}-00000-of-00001.parquet": content for name, content in rows.items()}


def toaa():
    """Token ids, all of which begin with the start token, of several conditions."""
    rows = [
        {
            "condition": condition,
            "membership": side,
            "suffix_type": "random",
            "n_suffix_tokens": 1,
            "duplication": 16,
            "input_ids": [100257, 15, at, 7],
            "suffix_start": 3,
            "example_idx": at,
        }
        for at, (condition, side) in enumerate((c, s) for c in ("plain_16x", "random_1tok_16x") for s in (1, 0))
    ]
    return {"data/train-00000-of-00001.parquet": parquet(rows)}


def hub():
    return {
        "sbordt/TOAA-Membership-Inference": toaa(),
        "SimMIA/WikiMIA-25": wikimia25(),
        "allegrolab/passages_wikipedia": hubble(),
        "swj0419/WikiMIA": wikimia(),
        "swj0419/BookMIA": bookmia(),
        "avduarte333/arXivTection": {"0_arXivTection_data.csv": tection()},
        "avduarte333/BookTection": {"0_BookTection_data.csv": tection(("small", "medium", "large"))},
        "pratyushmaini/llm_dataset_inference": pile(),
        "parameterlab/scaling_mia_the_pile_00_NIH_ExPorter": nih(),
        "iamgroot42/mimir": mimir(),
    }


@pytest.mark.slow
def test_every_benchmark_of_the_hub_and_then_from_the_cache(serve, in_fresh_process):
    url, _ = serve(hub())
    entries = [
        "wikimia", "wikimia:64", "bookmia", "arxivtection", "booktection", "booktection:medium",
        "wikimia25:paper_subset", "hubble:wikipedia", "toaa:random_1tok_16x", "pile_nih",
        "pile:wikipedia", "mimir:arxiv", "mimir:arxiv/ngram_7_0.2", "mimir:full_pile",
    ]  # fmt: skip
    found = dict(zip(entries, in_fresh_process(CODE, url, entries), strict=True))
    for entry, got in found.items():
        assert isinstance(got, dict), got
        source = benchmarks.sources()[entry.partition(":")[0]]
        assert got["source"].startswith(source.dataset.format(part="wikipedia"))
        assert got["revision"] == (source.revision or SHA)
        assert {row[1] for row in got["rows"]} == {True, False}
        assert all(bool(row[2]) == bool(source.group) for row in got["rows"])
        unknown = "contemporary" if source.later is not None else "non-member"
        others = "later" if isinstance(source.later, date) else unknown
        assert got["kinds"] == sorted([others, "member"])
    rows = {entry: got["rows"] for entry, got in found.items()}
    assert [row[1] for row in rows["pile_nih"]] == [True, True, False, False, False, False]
    assert [row[:2] for row in rows["wikimia25:paper_subset"]] == [["paper_subset 0", False], ["paper_subset 1", True]]
    assert [row[:2] for row in rows["hubble:wikipedia"]] == [
        [f"{split} passage, {i}", split == "train"] for split in ("train", "test") for i in (0, 1)
    ]
    assert [row[:2] + row[3:] for row in rows["toaa:random_1tok_16x"]] == [
        [written([15, at, 7]), member, f"sbordt/TOAA-Membership-Inference/train:{at + 1}"]
        for at, member in ((2, True), (3, False))
    ]
    assert [row[0] for row in rows["wikimia"]] == [f"{n} {i}" for n in (32, 64, 128, 256) for i in (0, 1)]
    assert rows["wikimia:64"][1] == ["64 1", True, "", "swj0419/WikiMIA/WikiMIA_length64:2"]
    assert [row[:3] for row in rows["bookmia"]] == [[f"page {i}", i > 1, str(i // 2)] for i in range(4)]
    assert rows["arxivtection"][1][:3] == ['a "" passage, 1', True, "Title 1"]
    assert len(rows["booktection"]) == 6
    assert [row[0] for row in rows["booktection:medium"]] == [f'a "medium" passage, {i}' for i in (0, 1)]
    assert rows["booktection:medium"][0][3] == "avduarte333/BookTection/train:3"
    assert [row[:2] for row in rows["pile:wikipedia"]] == [
        [f"wikipedia {split} {i}", split == "train"] for split in ("train", "val") for i in (0, 1)
    ]
    assert rows["pile:wikipedia"][2][3] == "pratyushmaini/llm_dataset_inference/wikipedia/val:1"
    name = "arxiv_ngram_13_0.8"
    assert [row[:2] for row in rows["mimir:arxiv"]] == [
        [f"{name} in\u2028side", True], [f"{name} \u4e2d", True], [f"{name} out", False],
    ]  # fmt: skip
    assert rows["mimir:arxiv"][2][3] == f"iamgroot42/mimir/cache_100_200_1000_512/test/{name}.jsonl:1"
    assert rows["mimir:full_pile"][0][3].startswith("iamgroot42/mimir/cache_100_200_10000_512/train/")
    gone = "http://127.0.0.1:9"
    again = dict(zip(entries, in_fresh_process(CODE, gone, entries), strict=True))
    assert again == found
    sha = "f" * 40
    said = in_fresh_process(
        CODE, gone, ["mimir:github", ["swj0419/WikiMIA", {"revision": sha}], ["own/er", {}]]
    )  # fmt: skip
    assert f"iamgroot42/mimir must be on the hub and within reach: {gone} does not answer" in said[0]
    assert f"must be at commit {sha}; the cache holds a89ab76d" in said[1]
    assert f"{gone} does not answer, and from the local cache: nothing" in said[2]
    assert "--data FILE" in said[2]


def test_unexpected_contents_of_hub_datasets_are_refused(serve, in_fresh_process):
    datasets = hub()
    datasets["swj0419/WikiMIA"] = {"data/train-00000-of-00001.parquet": parquet([{"input": "x", "label": 1}])}
    datasets["swj0419/BookMIA"] = {"data.jsonl": lines([{"text": "x", "label": 1}])}
    datasets["avduarte333/BookTection"] = {"data.csv": tection(("64", "128"))}
    datasets["avduarte333/arXivTection"] = {"data.csv": tection().replace(b",A,", b",A,7")}
    datasets["iamgroot42/mimir"]["cache_100_200_1000_512/test/arxiv_ngram_7_0.2.jsonl"] = b'"x"\n["y"]\n'
    url, _ = serve(datasets)
    said = in_fresh_process(
        CODE, url,
        ["wikimia:64", "bookmia", "booktection:small", "arxivtection", "pile:nothing", "mimir:github",
         "mimir:arxiv/ngram_7_0.2", ["own/er", {}], ["pratyushmaini/llm_dataset_inference", {"config": "arxiv"}]],
    )  # fmt: skip
    assert all(isinstance(line, str) and "\n" not in line for line in said)
    wiki, book, lengths, label, config, file, text, unknown, several = said
    assert "own/er must be on the hub" in unknown
    assert several == "dataset pratyushmaini/llm_dataset_inference must have one split; it has train, val"
    assert wiki == "dataset swj0419/WikiMIA must have split WikiMIA_length64; it has train"
    assert book == "swj0419/BookMIA/train must have column book_id, snippet; it has text, label"
    assert lengths == "benchmark booktection:small must have texts labelled 0 or 1; it has none: no rows"
    assert label == "benchmark arxivtection must have texts labelled 0 or 1; it has none: 2 label neither 0 nor 1"
    assert "llm_dataset_inference must be on the hub" in config
    assert "arxiv" in config
    assert "wikipedia" in config
    assert "dataset iamgroot42/mimir must be on the hub and within reach: 404" in file
    assert "test/arxiv_ngram_7_0.2.jsonl:2: a row must be a JSON object, or a text; got ['y']" in text


def test_the_error_for_a_gated_dataset_names_its_page(serve, in_fresh_process):
    url, _ = serve(hub(), ["iamgroot42/mimir"])
    (said,) = in_fresh_process(CODE, url, ["mimir:arxiv"])
    assert f"it is gated: accept its terms at {url}/datasets/iamgroot42/mimir and set HF_TOKEN" in said


DEFAULT = """
import json, sys
from fsd.config import DataConfig, ModelConfig
from pipelines.experiment import inputs
loaded = inputs.load_texts(DataConfig(domain="arxiv"), ModelConfig(model=json.loads(sys.argv[1])))
print(json.dumps([[d.text, d.member, d.group] for d in loaded.documents]))
print(json.dumps(loaded.remarks))
"""


def test_the_default_benchmark_leaves_out_and_counts_what_it_cannot_use(serve, in_fresh_process, tiny):
    # as `--domain arxiv --model X` reads it: the authors' own file has a blank passage labelled 0
    both = " ".join(f"word{i}" for i in range(40))
    rows = [
        [" ", "b", "c", "d", "A", 0, "RESEE"], ["", "b", "c", "d", "A", 1, "RESEE"],
        ["no label", "b", "c", "d", "A", "", "RESEE"], ["another label", "b", "c", "d", "A", 2, "RESEE"],
        [both, "b", "c", "d", "A", 1, "Old"], [f"{both} more", "b", "c", "d", "A", 0, "New"],
    ]  # fmt: skip
    url, _ = serve({"avduarte333/arXivTection": {"0_arXivTection_data.csv": tection(more=rows)}})
    documents, remarks = in_fresh_process(DEFAULT, url, str(tiny))
    assert documents == [[f'a "" passage, {i}', bool(i), f"Title {i}"] for i in (0, 1)]
    assert remarks == [
        "arxivtection: 2 left out: blank text",
        "arxivtection: 1 left out: no label",
        "arxivtection: 1 left out: label neither 0 nor 1",
        "arxivtection: 2 left out: copies labelled both 1 and 0",
    ]
