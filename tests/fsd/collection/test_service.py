"""The client of public services, and the checks of their records."""

import gc
import time
from datetime import date
from email.message import Message
from email.utils import formatdate

import pytest

from fsd.collection import service as service_module
from fsd.collection.service import FormatError, RefusedError, Service, field, iso_day, json_object
from fsd.errors import UsageError


@pytest.fixture
def client_of(service, fake_time):
    def start(answer=lambda *_: b'{"a": 1}'):
        fake = service(answer)
        return fake, Service("arxiv", fake.url, interval=3.0, clock=fake_time.clock)

    return start


def test_requests_are_spaced_and_name_the_project_with_its_page_and_the_contact(client_of, fake_time, monkeypatch):
    package = Message()
    package["Project-URL"] = "Source, https://example.org/fsd"
    monkeypatch.setattr(service_module.metadata, "metadata", lambda name: package)
    # A name may have letters that Latin-1 lacks.
    monkeypatch.setenv("FSD_CONTACT", "Łucja <someone@example.org>")
    fake, client = client_of()
    for _ in range(3):
        assert client.get("/x", json_object, {"q": "a b"}) == {"a": 1}
    assert fake_time.waits == [3.0, 3.0]
    assert fake.requests == [("/x", {"q": "a b"})] * 3
    (agent,) = {headers["User-Agent"] for headers in fake.headers}
    assert agent.startswith("fsd/")
    assert "https://example.org/fsd; Łucja <someone@example.org>" in agent.encode("latin-1").decode()


def test_a_refusal_is_final_and_one_who_is_forbidden_is_told_about_the_contact(client_of, reply, monkeypatch):
    for status, contact, said in (
        (404, "", "no such page$"),
        (403, "", "no such page; set FSD_CONTACT to .*; the texts .* again to resume$"),
        (403, "me@example.org", "no such page; the texts collected .* again to resume$"),
    ):
        monkeypatch.setenv("FSD_CONTACT", contact)
        fake, client = client_of(lambda *_, status=status: reply(b"no\nsuch page", status))
        with pytest.raises(RefusedError, match=f"arxiv must give .*; it answered HTTP {status}: {said}") as caught:
            client.get("/x", json_object)
        assert caught.value.status == status
        assert len(fake.requests) == 1


def test_a_broken_reply_is_repeated_after_the_pause_that_it_demands(client_of, fake_time, reply, request):
    gc.disable()  # a collection at the depth where the reply is given up cannot end other tests' objects
    request.addfinalizer(gc.enable)
    fake, client = client_of()
    fake.faults = [
        reply(b'{"a": ', 200, {"Retry-After": "50"}),
        reply(b"[" * 100_000, 200, {"Retry-After": formatdate(time.time() + 100, usegmt=True)}),
        reply(b'{"a": ', 200, length=100),
    ]
    assert client.get("/x", json_object) == {"a": 1}
    assert fake_time.waits == pytest.approx([50.0, 100.0, 8.0], abs=3)


def test_the_address_comes_from_the_caller_then_the_environment(fake_time, monkeypatch):
    how = {"interval": 3.0, "clock": fake_time.clock}
    with pytest.raises(UsageError, match=r"arxiv must be within reach; http://127.0.0.1:9 does not .* FSD_ARXIV_URL"):
        Service("arxiv", "http://127.0.0.1:9", **how).get("/x", json_object)
    assert not fake_time.waits  # without a network it fails at once
    monkeypatch.setenv("FSD_ARXIV_URL", "http://mirror/")
    assert Service("arxiv", "http://a", **how).base_url == "http://mirror"
    assert Service("arxiv", "http://a", **how, mirror="http://b/").base_url == "http://b"


def test_a_missing_field_or_one_of_another_kind_is_named():
    assert field({"a": None}, "a", "arxiv") is None
    for record, kind, message in (
        ({"b": 1}, None, "'a' here; it gives b: its format may have changed"),
        ({"a": None}, str, "'a' as a string here; it gives None: its format may have changed"),
        ({"a": "7"}, int, "'a' as a whole number here; it gives '7'"),
        ({"a": {"b": "c" * 90}}, list, r"'a' as a list here; it gives {'b': 'c+\.\.\.: its"),
        (["a"], str, r"'a' in an object here; it gives \['a'\]"),
    ):
        with pytest.raises(UsageError, match=f"arxiv must give {message}"):
            field(record, "a", "arxiv", kind)
    assert iso_day(" 2023-03-01T23:59:59Z\n", "published", "arxiv") == date(2023, 3, 1)
    assert iso_day("2024-01-06T00:30:00+09:00", "published", "arxiv") == date(2024, 1, 5)
    for stamp in ("1 March 2023", "9999-12-31T23:30:00-05:00"):
        with pytest.raises(FormatError, match=f"arxiv must give 'published' as an ISO date here; it gives '{stamp}'"):
            iso_day(stamp, "published", "arxiv")
