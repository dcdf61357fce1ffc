"""The registry of domains and the contract of their files."""

from collections.abc import Iterator
from datetime import date
from types import ModuleType

import pytest

from fsd.collection import domains
from fsd.collection.domains import Domain
from fsd.collection.source import Journal, Window
from fsd.data import benchmarks
from fsd.data.documents import Document
from fsd.errors import UsageError


@pytest.mark.parametrize("name", domains.names())
def test_every_domain_keeps_the_contract_and_is_documented(name: str) -> None:
    domain = domains.load(name)
    assert vars(domains)[name].__doc__
    assert domain.texts.__doc__
    assert domain.benchmark in ("", *benchmarks.sources())


def test_names_are_the_files_that_are_domains() -> None:
    assert set(domains.names()) >= {"arxiv", "books", "local", "patents", "stackexchange", "wikipedia"}
    assert not any(name.startswith("_") for name in domains.names())


@pytest.mark.parametrize("name", ["nothing", "_hub", "", "os"])
def test_unknown_domain(name: str) -> None:
    with pytest.raises(UsageError, match=rf"domain must be one of arxiv, .*; got {name!r}"):
        domains.load(name)


def old_style(*, after: date, limit: int) -> Iterator[Document]:
    raise NotImplementedError


def extra(window: Window, journal: Journal, limit: int) -> Iterator[Document]:
    raise NotImplementedError


def any_option(window: Window, journal: Journal, **options: str) -> Iterator[Document]:
    raise NotImplementedError


def odd_option(window: Window, journal: Journal, *, share: float = 0.5) -> Iterator[Document]:
    raise NotImplementedError


def good(window: Window, journal: Journal, *, path: str, words: int = 0) -> Iterator[Document]:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, r"must define texts\(window, journal, \*, options\); it defines no texts$"),
        ({"nonmembers": old_style}, r"it defines no texts$"),
        ({"texts": old_style}, r"options\); it defines texts\(\*, after: .*, limit: "),
        ({"texts": extra}, r"options\); it defines texts\(window: .*, limit: int\)"),
        ({"texts": any_option}, r"options\); it defines texts\(window: .*, \*\*options: str\)"),
        ({"texts": odd_option}, r"must define options whose defaults are str, int or tuple; got share=0.5$"),
        ({"texts": good, "FIRST": "2010-01-01"}, r"must define FIRST as a date; got '2010-01-01'$"),
        ({"texts": good, "LANGUAGE": 5}, r"must define LANGUAGE as a str; got 5$"),
    ],
)
def test_a_file_that_breaks_the_contract_is_refused_when_it_is_loaded(content: dict[str, object], message: str) -> None:
    module = ModuleType("made")
    vars(module).update(content)
    with pytest.raises(UsageError, match=f"^domain made .*{message}"):
        Domain("made", module)
