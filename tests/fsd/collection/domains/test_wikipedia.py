import json
from datetime import date
from functools import partial
from itertools import islice

import pytest

from fsd.collection.domains import wikipedia
from fsd.collection.source import Journal, Window
from fsd.errors import UsageError

LEAD = "The 2023 Sudbury flood was a flood in the north of the county.\nIt began on 3 March 2023."


def page(number, day="2023-03-03", *, category="2023 floods", extract=LEAD, **more):
    return {
        "pageid": number,
        "ns": 0,
        "title": f"Flood {number}",
        "extract": extract,
        "fullurl": f"https://en.wikipedia.org/wiki/Flood_{number}",
        "revisions": [{"timestamp": f"{day}T08:00:00Z"}] if day else [],
        "categories": [{"ns": 14, "title": f"Category:{category}"}],
        **more,
    }


def serve(service, pages, log=None):
    """Serves the log of creations between two times, two a page, and the pages that still exist."""
    numbers = log if log is not None else list(pages)

    def created(number):
        revisions = pages.get(number, {}).get("revisions")
        stamp = revisions[0].get("timestamp", "") if revisions else ""
        return stamp if stamp.startswith("2") else "2023-03-03T08:00:00Z"

    def answer(path, query):
        assert path == "/w/api.php"
        assert (query["action"], query["formatversion"], query["maxlag"]) == ("query", "2", "5")
        if "pageids" in query:
            assert (query["rvlimit"], query["rvdir"]) == ("1", "newer")
            article = pages.get(int(query["pageids"]), {"pageid": int(query["pageids"]), "missing": True})
            return json.dumps({"batchcomplete": True, "query": {"pages": [article]}}).encode()
        assert (query["list"], query["letype"], query["lenamespace"]) == ("logevents", "create", "0")
        low, high = sorted((query["lestart"], query["leend"]))
        fit = sorted((n for n in numbers if low <= created(n) <= high), key=created)
        fit = fit if query["ledir"] == "newer" else fit[::-1]
        at = int(query.get("lecontinue", "0|0").split("|")[1])
        events = [
            {"logid": n, "ns": 0, "title": f"Flood {n}", "pageid": n, "timestamp": created(n)} for n in fit[at : at + 2]
        ]
        reply = {"query": {"logevents": events}}
        if at + 2 < len(fit):
            reply["continue"] = {"lecontinue": f"20230303|{at + 2}", "continue": "-||"}
        return json.dumps(reply).encode()

    return service(answer)


def publish(texts, service, folder):
    """Serves (day, text) pairs; gives the options to collect them."""
    pages = {
        n: page(n, str(day), category=f"{day.year} floods", extract=text) for n, (day, text) in enumerate(texts, 1)
    }
    return (f"mirror={serve(service, pages).url}",)


@pytest.fixture
def wiki(service):
    return partial(serve, service)


def collected(fake, fake_time, window=Window(after=date(2023, 2, 28)), journal=None, **options):  # noqa: B008 - frozen
    journal = journal or Journal(clock=fake_time.clock)
    return list(wikipedia.texts(window, journal, mirror=fake.url, **options)), journal


def test_leads_of_new_articles_about_events(wiki, fake_time):
    changes = [
        {}, {"redirect": True}, {"pageprops": {"disambiguation": ""}}, {"extract": " "}, {"category": "1950 births"},
        {"category": "Ereignis 2022"}, {"title": "List of floods"}, {"day": ""},
    ]  # fmt: skip
    pages = {n: page(n, **change) for n, change in enumerate(changes, 1)}
    fake = wiki(pages, log=[*pages, 0, 99])
    documents, journal = collected(fake, fake_time)
    assert [d.group for d in documents] == ["wikipedia:Flood 1", "wikipedia:Flood 6", "wikipedia:Flood 8"]
    assert [d.date for d in documents] == [date(2023, 3, 3), date(2023, 3, 3), None]
    assert (documents[0].text, documents[0].origin_url) == (LEAD, "https://en.wikipedia.org/wiki/Flood_1")
    assert journal.dropped == {
        "redirect": 1, "list or disambiguation": 2, "no lead": 1, "not about an event": 1, "deleted since": 2
    }  # fmt: skip
    log = fake.requests[0][1]
    assert (log["ledir"], log["lestart"], log["leend"]) == ("newer", "2023-03-01T00:00:00Z", "2026-09-21T23:59:59Z")


def test_it_resumes_from_the_saved_cursor(wiki, fake_time):
    fake = wiki({n: page(n) for n in range(1, 6)})
    journal = Journal(clock=fake_time.clock)
    texts = wikipedia.texts(Window(after=date(2023, 2, 28)), journal, mirror=fake.url)
    assert len(list(islice(texts, 3))) == 3
    assert journal.cursor["lecontinue"] == "20230303|2"
    again, _ = collected(fake, fake_time, journal=journal)
    assert [d.group for d in again] == [f"wikipedia:Flood {n}" for n in (3, 4, 5)]


def test_options(wiki, fake_time):
    fake = wiki({1: page(1, category="1950 births")})
    documents, _ = collected(fake, fake_time, kind="all", words=4)
    assert [d.text for d in documents] == ["The 2023 Sudbury flood"]
    documents, _ = collected(fake, fake_time, Window(before=date(2024, 1, 1)), kind="all")
    assert len(documents) == 1
    assert fake.requests[-2][1]["ledir"] == "older"
    for options, message in (({"kind": "x"}, "kind must be one of events, all"), ({"language": "e/n"}, "edition")):
        with pytest.raises(UsageError, match=message):
            collected(fake, fake_time, **options)


def test_a_lagging_wiki_is_retried_and_a_wrong_query_is_not(wiki, fake_time, reply):
    fake = wiki({1: page(1)})
    lag = b'{"error": {"code": "maxlag", "info": "Waiting for db: 7 s"}}'
    fake.faults = [reply(lag, headers={"Retry-After": "5"})]
    assert len(collected(fake, fake_time)[0]) == 1
    assert fake_time.waits[0] == 5.0
    fake.faults = [reply(b'{"error": {"code": "badvalue", "info": "Unrecognized value"}}')]
    with pytest.raises(UsageError, match="wikipedia must understand the query; it says: Unrecognized value"):
        collected(fake, fake_time)


def test_nothing_new_and_a_changed_format(wiki, service, fake_time):
    assert collected(wiki({}), fake_time)[0] == []
    with pytest.raises(UsageError, match=r"gave before; content: .* valid list; got None"):
        collected(service(lambda *_: b'{"query": {"events": []}}'), fake_time)
    for change, message in (
        ({"extract": None}, "extract: .* valid string; got None"),
        ({"revisions": [{"timestamp": "3 March"}]}, "revisions.0.timestamp: .*; got '3 March'"),
        ({"revisions": [{"date": "x"}]}, "revisions.0.timestamp: field required"),
        ({"categories": ["2023 floods"]}, "categories.0: .*; got '2023 floods'"),
    ):
        with pytest.raises(UsageError, match=f"gave before; {message}: its format may have changed"):
            collected(wiki({1: page(1) | change}, log=[0, 1]), fake_time)


def test_one_malformed_article_is_dropped_and_counted(wiki, fake_time):
    found, journal = collected(wiki({1: page(1), 2: page(2) | {"extract": None}, 3: page(3)}), fake_time)
    assert [d.group for d in found] == ["wikipedia:Flood 1", "wikipedia:Flood 3"]
    assert journal.dropped == {"malformed record": 1}
