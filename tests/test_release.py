"""What a release says of itself agrees: its version everywhere, and what NOTICE says of embedded texts and models."""

import json
import re
import tomllib
from pathlib import Path

import yaml

from fsd.data.embedded import CHATS, CORPORA, HERE
from fsd.data.readers import read_rows
from pipelines.command import pages


def test_the_version_is_the_same_everywhere(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    cited = yaml.safe_load((root / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])


def test_notice_names_every_embedded_corpus_and_model(root: Path) -> None:
    notice = " ".join((root / "NOTICE").read_text().split())
    for file in [*(corpus.file for corpus in CORPORA.values()), CHATS]:
        texts = sum(1 for _ in read_rows([file]))
        described = rf"{texts} [a-z ]+\({file.relative_to(HERE).as_posix()}\)"
        assert re.search(described, notice)
    cards = sorted(HERE.rglob("card.json"))
    folders = [card.parent.relative_to(HERE).as_posix() for card in cards]
    (listed,) = re.findall(r"Models, in fsd/data/embedded \(([^)]+)\)", notice)
    assert sorted(listed.split(", ")) == folders
    for card in cards:
        background = json.loads(card.read_text())["background"]
        assert f"{background['texts']:,} paragraphs of docstrings" in notice
        for source, version in background["source"].items():
            assert f"{source.removeprefix('docstrings of ')} {version}" in notice


def test_licence_and_notice_go_into_every_distribution(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["license-files"] == ["LICENSE", "NOTICE"]
    assert "Apache License" in (root / "LICENSE").read_text()


def test_a_page_is_that_of_the_checkout_or_by_its_name(root: Path) -> None:
    assert pages.page("questions.md") == root / "docs" / "questions.md"
    assert pages.page("none.md") == Path("docs/none.md")
