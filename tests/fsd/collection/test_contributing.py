"""The example of CONTRIBUTING.md: a domain that is one file and one test can be collected from."""

import importlib.util
import re
import sys
import textwrap
from datetime import date

import pytest

from fsd.collection import domains
from fsd.collection.engine import CollectionSpec, prepare
from fsd.collection.source import Window


@pytest.fixture
def example(root, tmp_path, monkeypatch):
    """The domain of the example as a file among the domains; gives the module of its tests."""
    section = (root / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Add a domain")[1].split("\n## ")[0]
    domain, test = (textwrap.dedent(code) for code in re.findall(r"^ *```python\n(.*?)^ *```", section, re.M | re.S))
    folder = tmp_path / "domains"
    folder.mkdir()
    (folder / "example.py").write_text(domain, encoding="utf-8")
    (tmp_path / "test_example.py").write_text(test, encoding="utf-8")
    monkeypatch.setattr(domains, "__path__", [*domains.__path__, str(folder)])
    spec = importlib.util.spec_from_file_location("test_example", tmp_path / "test_example.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["fsd.collection.domains.example"], domains.example


def test_the_test_of_the_example_passes(example, service, fake_time, tmp_path):
    example.test_items_come_page_by_page(service, fake_time, tmp_path)


@pytest.mark.parametrize(
    ("window", "days"), [(Window(after=date(2024, 1, 3)), [4, 5, 6]), (Window(before=date(2024, 1, 5)), [4, 3, 2])]
)
def test_the_example_can_be_collected_from(example, service, fake_time, tmp_path, prose, window, days):
    texts = [(date(2024, 1, n), prose(n)) for n in range(1, 9)]
    domain = domains.load("example")
    options = domain.parse_options(example.publish(texts, service, tmp_path))
    spec = CollectionSpec("example", window, domain.language, options)
    collection = prepare(spec, 3, tmp_path / "out.jsonl", clock=fake_time.clock).run()
    assert "example" in domains.names()
    assert [document.date.day for document in collection.documents] == days
    assert {document.member for document in collection.documents} == {window.after is None}
