"""The registry of domains and the contract of their files."""

import importlib
import inspect
from datetime import date

import pytest

from fsd.collection import domains
from fsd.collection.domains import REQUIRED
from fsd.data import benchmarks
from fsd.errors import UsageError


@pytest.mark.parametrize("name", domains.names())
def test_every_domain_keeps_the_contract_and_is_documented(name: str) -> None:
    module = importlib.import_module(f"fsd.collection.domains.{name}")
    assert module.__doc__
    assert module.texts.__doc__
    signature = inspect.signature(module.texts)
    assert [p.name for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY] == ["window", "journal"]
    domain = domains.load(name)
    assert all(default is REQUIRED or isinstance(default, str | int | tuple) for default in domain.options.values())
    assert isinstance(domain.first, date)
    assert isinstance(domain.language, str)
    assert domain.benchmark in ("", *benchmarks.sources())


def test_names_are_the_files_that_are_domains() -> None:
    assert set(domains.names()) >= {"arxiv", "books", "local", "patents", "stackexchange", "wikipedia"}
    for name in ("nothing", "_hub", "", "os"):
        with pytest.raises(UsageError, match=rf"domain must be one of arxiv, .*; got {name!r}"):
            domains.load(name)
