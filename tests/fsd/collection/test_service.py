"""The client of public services, and the checks of their records."""

import gc
import time
from datetime import datetime
from email.message import Message
from email.utils import formatdate

import pytest
from pydantic import BaseModel

from fsd.collection import service as service_module
from fsd.collection.service import FormatError, RefusedError, Service, json_object, record
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


class Record(BaseModel):
    a: int
    day: datetime | None = None


def test_what_has_another_form_is_named():
    assert record(Record, {"a": 1, "b": 2}, "arxiv").a == 1
    for given, message in (
        ({"b": 1}, "a: field required: its format may have changed"),
        ({"a": None}, "a: input should be a valid integer; got None: its format may have changed"),
        (["a"], "content: input should be a valid dictionary .*; got .*: its format may have changed"),
        ({"a": 1, "day": "1 March 2023"}, "day: input should be a valid datetime.*; got '1 March 2023'"),
    ):
        with pytest.raises(FormatError, match=f"arxiv must give what it gave before; {message}"):
            record(Record, given, "arxiv")
