import re
from pathlib import Path

import pytest

from fsd.data import benchmarks
from fsd.data.readers import NAMES
from fsd.errors import UsageError

ALL = ("arxivtection", "booktection", "bookmia", "dolma_book", "mimir", "patentmia", "pile", "wikimia")


def test_names_are_the_files_that_are_benchmarks() -> None:
    assert set(ALL) <= set(benchmarks.names())


@pytest.mark.parametrize("name", benchmarks.names())
def test_every_benchmark_defines_the_interface(name: str) -> None:
    module = benchmarks.source(name)
    assert module.__doc__
    assert re.fullmatch(r"([\w.-]+/[\w.-]+)?", module.DATASET)
    assert module.REVISION is None or re.fullmatch("[0-9a-f]{40}", module.REVISION)
    assert "text" in module.COLUMNS
    assert set(module.COLUMNS) <= set(NAMES)
    assert ("group" in module.COLUMNS) == bool(module.GROUP)
    assert module.LABELS.startswith("1: ")
    assert "; 0: " in module.LABELS
    assert len(set(module.PARTS)) == len(module.PARTS)
    assert module.load.__doc__


@pytest.mark.parametrize("name", benchmarks.names())
def test_every_benchmark_is_described(name: str, root: Path) -> None:
    text = (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    module = benchmarks.source(name)
    assert f"`{name}`" in text
    assert module.DATASET in text
    assert (module.REVISION or "newest") in text
    assert all(f"`{column}`" in text for column in module.COLUMNS.values())


def test_is_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert benchmarks.is_name("wikimia")
    assert benchmarks.is_name("mimir:arxiv/ngram_13_0.8")
    assert benchmarks.is_name("dolma_book:a.jsonl,b.jsonl")
    assert not benchmarks.is_name("wikimia.jsonl")
    assert not benchmarks.is_name("")
    (tmp_path / "wikimia").touch()
    assert not benchmarks.is_name("wikimia")  # a file of that name wins


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("nothing", "benchmark must be one of arxivtection, bookmia, .*; got 'nothing'"),
        ("wikimia:", "followed by a part after the colon; its parts are 32, 64, 128, 256; got 'wikimia:'"),
        ("bookmia:", "it has no parts"),
        ("wikimia:65", "length in words, one of 32, 64, 128, 256; got '65'"),
        ("bookmia:x", "bookmia must be loaded whole, it has no parts; got 'x'"),
        ("arxivtection:x", "arxivtection must be loaded whole, it has no parts; got 'x'"),
        ("booktection:tiny", "one of small, medium, large; got 'tiny'"),
        ("mimir", r"one of arxiv/ngram_7_0\.2, .*temporal_wiki; got ''"),
        ("mimir:arxiv/ngram_9_0.2", "got 'arxiv/ngram_9_0.2'"),
        ("mimir:full_pile/ngram_7_0.2", "got 'full_pile/ngram_7_0.2'"),
        ("pile", "one subset, as in pile:wikipedia; known are arxiv, "),
        ("patentmia", "given as patentmia:FILE; got ''"),
        ("patentmia:no.jsonl", "files that exist; there is no no.jsonl"),
        ("dolma_book:a.jsonl", "given as dolma_book:MEMBERS,NONMEMBERS; got 'a.jsonl'"),
        ("dolma_book:a,b,end", "two files, then one of head, middle, tail or none, .*; got 'a,b,end'"),
    ],
)
def test_bad_names_and_parts(entry: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        benchmarks.load(entry)
    assert "\n" not in str(raised.value)
