from collections.abc import Iterator
from datetime import date
from types import ModuleType

import pytest

from fsd.collection import domains
from fsd.collection.domains import Domain
from fsd.data.documents import Document
from fsd.errors import UsageError


@pytest.mark.parametrize("name", domains.names())
def test_every_domain_offers_something_and_says_what(name: str) -> None:
    domain = domains.load(name)
    assert domain.name == name
    assert domain.offers
    assert domain.module.__doc__
    assert all(getattr(domain.module, offer).__doc__ for offer in domain.offers)


def test_names_are_the_files_that_are_domains() -> None:
    assert {"arxiv", "wikipedia"} <= set(domains.names())
    assert not any(name.startswith("_") for name in domains.names())


@pytest.mark.parametrize("name", ["nothing", "_hub", "", "os"])
def test_unknown_domain(name: str) -> None:
    with pytest.raises(UsageError, match=rf"domain must be one of arxiv, .*; got {name!r}"):
        domains.load(name)


def made(**functions: object) -> Domain:
    module = ModuleType("made")
    vars(module).update(functions)
    return Domain("made", module)


def endless(**_: object) -> Iterator[Document]:
    while True:
        yield Document("x")


def test_limit_holds_whatever_the_file_does() -> None:
    domain = made(benchmark=endless, nonmembers=endless)
    assert len(list(domain.benchmark(limit=3))) == 3
    assert len(list(domain.nonmembers(after=date(2023, 1, 1), limit=2))) == 2
    with pytest.raises(UsageError, match="limit must be at least 1; got 0"):
        domain.benchmark(limit=0)


def test_what_is_not_offered_is_refused() -> None:
    with pytest.raises(UsageError, match="offers nonmembers; made offers benchmark"):
        made(benchmark=endless).nonmembers(after=date(2023, 1, 1), limit=1)
    with pytest.raises(UsageError, match="offers benchmark; made offers nothing"):
        made().benchmark()
