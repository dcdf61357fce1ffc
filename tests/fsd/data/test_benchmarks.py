import hashlib
import json
import re
from pathlib import Path

import pytest

from fsd.data import benchmarks
from fsd.data.fields import FIELDS
from fsd.errors import UsageError
from tests.rows import write

ALL = (
    *(
        "arxivtection",
        "booktection",
        "bookmia",
        "dolma_book",
        "hubble",
        "mimir",
        "olmo_detect",
        "patentmia",
        "pile",
        "pile_nih",
    ),
    *("toaa", "wikimia", "wikimia25"),
)


def test_all_are_declared():
    assert set(benchmarks.sources()) == set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_every_declaration_is_sound_and_described(name, root):
    source = benchmarks.sources()[name]
    assert re.fullmatch(r"([\w.-]+/[\w.{}-]+)?", source.dataset)
    assert source.revision is None or re.fullmatch("[0-9a-f]{40}", source.revision)
    assert {"text"} <= set(source.columns) <= set(FIELDS)
    assert ("group" in source.columns) == bool(source.group)
    assert re.fullmatch("1: .*; 0: .*", source.labels)
    assert len(set(source.parts)) == len(source.parts)
    assert source.reader in benchmarks.READERS
    assert not isinstance(source.later, dict) or set(source.later) < set(source.parts)
    page = (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    named = [f"`{name}`", source.dataset, source.revision or "newest", *(f"`{c}`" for c in source.columns.values())]
    assert all(word in page for word in named)


def test_is_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert benchmarks.is_name("wikimia")
    assert benchmarks.is_name("mimir:arxiv/ngram_13_0.8")
    assert benchmarks.is_name("dolma_book:a.jsonl,b.jsonl")
    assert not benchmarks.is_name("wikimia.jsonl")
    assert not benchmarks.is_name("")
    (tmp_path / "wikimia").touch()
    assert not benchmarks.is_name("wikimia")  # a file of that name wins


def test_bad_names_and_parts():
    for entry, said in {
        "nothing": "benchmark must be one of arxivtection, bookmia, .*; got 'nothing'",
        "wikimia:": "followed by a part after the colon; its parts are 32, 64, 128, 256; got 'wikimia:'",
        "bookmia:": "it has no parts",
        "wikimia:65": "part of wikimia must be one of 32, 64, 128, 256; got '65'",
        "bookmia:x": "bookmia must be loaded whole, it has no parts; got 'x'",
        "mimir": r"one of arxiv/ngram_7_0\.2, .*temporal_wiki; got ''",
        "mimir:full_pile/ngram_7_0.2": "got 'full_pile/ngram_7_0.2'",
        "pile": "part of pile must be one of arxiv, bookcorpus2, .*; got ''",
        "patentmia": "given as patentmia:FILE; got ''",
        "patentmia:no.jsonl": "files that exist; there is no no.jsonl",
        "dolma_book:a.jsonl": "given as dolma_book:MEMBERS,NONMEMBERS; got 'a.jsonl'",
        "olmo_detect:folder": "given as olmo_detect:FOLDER,PART or olmo_detect:FOLDER,PART,shifted; got 'folder'",
        "olmo_detect:folder,dclm,x": "got 'folder,dclm,x'",
        "olmo_detect:folder,dclm": "files of both sides in folder/benchmark; got 'dclm', it has none",
        "hubble": "part of hubble must be one of wikipedia, gutenberg_popular, gutenberg_unpopular; got ''",
        "hubble:x": "got 'x'",
        "toaa": "part of toaa must be one of plain_1x, .*; got ''",
        "dolma_book:a,b,end": "two files, then one of head, middle, tail, whole or none, .*; got 'a,b,end'",
    }.items():
        with pytest.raises(UsageError, match=said):
            benchmarks.load(entry)


def test_patentmia(tmp_path):
    rows = [{"text": "本发明涉及一种装置。", "label": 1}, {"text": "一种电池。", "label": 0}]
    file = write(tmp_path / "PatentMIA.jsonl", rows)
    found = benchmarks.load(f"patentmia:{file}")
    assert [(d.text, d.member) for d in found.documents] == [(row["text"], row["label"] == 1) for row in rows]
    assert found.source == file
    assert found.revision == f"sha256:{hashlib.sha256(Path(file).read_bytes()).hexdigest()}"
    assert found.documents[1].origin_url == f"{file}:2"


def book(count, letter):
    return " ".join(f"{letter}{i}" for i in range(count))


def test_dolma_book_by_hand(tmp_path):
    dolma = write(
        tmp_path / "dolma.jsonl",
        [{"id": "7", "text": book(10, "m"), "source": "gutenberg", "added": "2023-03-27", "metadata": {}},
         {"id": "8", "text": book(2, "s")}],
    )  # fmt: skip
    row = {"text": book(3, "n"), "date": "2024-05-01", "group": "7"}
    new = write(tmp_path / "new.jsonl", [row])
    found = benchmarks.load(f"dolma_book:{dolma},{new},3")
    assert [(d.text, d.member, d.group) for d in found.documents] == [
        ("m0 m1 m2", True, "dolma:7"), ("m3 m4 m5", True, "dolma:7"), ("m6 m7 m8", True, "dolma:7"),
        ("n0 n1 n2", False, "new:7"),
    ]  # fmt: skip
    assert found.source == f"{dolma}, {new}"
    middle = benchmarks.load(f"dolma_book:{dolma},{new},middle,2")
    assert [d.text for d in middle.documents] == ["m4 m5", "s0 s1", "n0 n1"]
    with pytest.raises(UsageError, match=r"dolma.jsonl must have texts of at least 512 words; all 2 are shorter"):
        benchmarks.load(f"dolma_book:{dolma},{new}")
    with pytest.raises(UsageError, match="group must be in column 'id'; columns are text, date, group"):
        benchmarks.load(f"dolma_book:{new},{dolma}")
    write(tmp_path / "new.jsonl", [row, {**row, "text": book(3, "o")}])
    assert len(benchmarks.load(f"dolma_book:{dolma},{new},3").documents) == 5
    with pytest.raises(UsageError, match=r"at most 1 rows a book for middle alone; 7 has 2: .* places=middle"):
        benchmarks.load(f"dolma_book:{dolma},{new},3,middle")
    tail = benchmarks.load(f"dolma_book:{dolma},{new},3,tail")  # the last two segments of a book
    assert [d.text for d in tail.documents] == ["m3 m4 m5", "m6 m7 m8", "n0 n1 n2", "o0 o1 o2"]
    write(tmp_path / "new.jsonl", [row] * 3)
    with pytest.raises(UsageError, match=r"at most 2 rows a book for tail alone; 7 has 3"):
        benchmarks.load(f"dolma_book:{dolma},{new},3,tail")


def test_olmo_detect_pairs_the_files_of_a_domain(tmp_path, monkeypatch):
    """The layout of the repository: stage, domain, side, alignment and part in the names, in varying order."""
    monkeypatch.chdir(tmp_path)
    names = {
        "pretraining/dclm/contaminated/matched/test/contaminated_pretraining_dclm_test_matched": "in",
        "pretraining/dclm/contaminated/shifted/test/contaminated_pretraining_dclm_test_shifted": "in, shifted",
        "pretraining/dclm/contaminated/matched/dev/contaminated_pretraining_dclm_dev_matched": "dev",
        "pretraining/dclm/uncontaminated/test/uncontaminated_pretraining_dclm_test": "out",
        "midtraining/gsm8k/contaminated/test/contaminated_midtraining_gsm8k_test": "maths in",
        "midtraining/gsm8k/uncontaminated/test/uncontaminated_midtraining_math-mix_gsm8k_test": "maths out",
        "posttraining/dpo/contaminated/matched/test/contaminated_posttraining_dpo_7b_matched_chosen_test": "7b in",
        "posttraining/dpo/uncontaminated/test/uncontaminated_posttraining_dpo_7b_chosen_test": "7b out",
        "posttraining/sft/1b-32b/contaminated/matched/test/contaminated_posttraining_sft_1b-32b_aya_test_matched": "",
    }
    for name, text in names.items():
        file = tmp_path / "clone" / "benchmark" / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"id": 1, "source": ["x"], "text": text, "7b_13-gram_overlap_score": 0.0}) + "\n")
    for part, texts, periods in (
        ("dclm", ["in", "out"], {"up to the cutoff"}),
        ("dclm,shifted", ["in, shifted", "out"], {""}),
        ("gsm8k", ["maths in", "maths out"], {"up to the cutoff"}),
        ("dpo_7b_chosen", ["7b in", "7b out"], {"up to the cutoff"}),
    ):
        loaded = benchmarks.load(f"olmo_detect:clone,{part}")
        assert [(d.text, d.member) for d in loaded.documents] == list(zip(texts, (True, False), strict=True))
        assert {d.period for d in loaded.documents} == periods
        assert loaded.revision.startswith("sha256:")
    with pytest.raises(UsageError, match="got 'sft_1b-32b_aya', it has dclm, dpo_7b_chosen, gsm8k"):
        benchmarks.load("olmo_detect:clone,sft_1b-32b_aya")


def test_a_benchmark_names_the_control_of_a_target():
    target = "allegrolab/hubble-1b-100b_toks-perturbed-hf"
    assert benchmarks.control_of(["hubble:wikipedia"], target) == "allegrolab/hubble-1b-100b_toks-standard-hf"
    assert benchmarks.control_of(["hubble:wikipedia"], "gpt2") == ""
    assert benchmarks.control_of(["toaa:plain_16x"], "sbordt/OLMo-2-179M-Exp") == "sbordt/OLMo-2-179M"
    assert benchmarks.control_of(["wikimia:64", "own.jsonl"], target) == ""
