import json
from datetime import UTC, date, datetime
from functools import partial

import pytest

from fsd.collection.domains import stackexchange
from fsd.collection.source import Journal, Window
from fsd.errors import UsageError


def seconds(day, hour=0):
    return int(datetime(day.year, day.month, day.day, hour, tzinfo=UTC).timestamp())


def question(number, day, **more):
    return {
        "question_id": number,
        "title": "Why isn&#39;t it &lt;b&gt;?",
        "body": "<p>I have <code>x &lt; y</code>.</p>\n\n<pre><code>for i:\n    pass\n</code></pre>\n",
        "link": f"https://stackoverflow.com/questions/{number}/why",
        "creation_date": seconds(day),
        "content_license": "CC BY-SA 4.0",
        **more,
    }


def serve(service, questions, **more):
    """Serves two questions a page between two times, in the order of the query."""

    def answer(path, query):
        assert path == "/2.3/questions"
        assert (query["site"], query["filter"], query["sort"]) == ("stackoverflow", "withbody", "creation")
        low, high = int(query["fromdate"]), int(query["todate"])
        fit = [q for q in questions if low <= q.get("creation_date", high) <= high]
        fit = fit if query["order"] == "asc" else fit[::-1]
        reply = {"items": fit[:2], "has_more": len(fit) > 2, "quota_remaining": 299, **more}
        return json.dumps(reply).encode()

    return service(answer)


def publish(texts, service, folder):
    """Serves (day, text) pairs; gives the options to collect them."""
    questions = [question(n, day, body=f"<p>{text}</p>") for n, (day, text) in enumerate(texts)]
    return (f"mirror={serve(service, questions).url}",)


@pytest.fixture
def site(service):
    return partial(serve, service)


def collected(fake, fake_time, window=Window(after=date(2023, 2, 28)), journal=None, **options):  # noqa: B008 - frozen
    journal = journal or Journal(clock=fake_time.clock)
    return list(stackexchange.texts(window, journal, mirror=fake.url, **options)), journal


def test_questions_by_time_each_once(site, fake_time):
    fake = site([question(n, date(2023, 3, n)) for n in range(1, 6)], backoff=7)
    documents, journal = collected(fake, fake_time, tags=("python", "list"))
    assert [d.date for d in documents] == [date(2023, 3, n) for n in range(1, 6)]
    assert documents[0].text == "Why isn't it <b>?\nI have x < y.\nfor i:\n    pass"
    assert documents[0].origin_url == "https://stackoverflow.com/questions/1/why"
    assert fake.requests[0][1]["fromdate"] == str(seconds(date(2023, 3, 1)))
    assert fake.requests[0][1]["tagged"] == "python;list"
    assert {round(wait) for wait in fake_time.waits} == {7}
    again, _ = collected(fake, fake_time, journal=journal)
    assert [d.date.day for d in again] == [5]


def test_members_newest_first_as_they_were(site, fake_time):
    late = seconds(date(2023, 3, 9))
    fake = site([question(1, date(2023, 3, 1)), question(2, date(2023, 3, 2), last_edit_date=late)])
    documents, journal = collected(fake, fake_time, Window(before=date(2023, 3, 3)))
    assert [d.date.day for d in documents] == [1]
    assert journal.dropped == {"edited after the window": 1}
    assert (fake.requests[0][1]["order"], fake.requests[0][1]["todate"]) == ("desc", str(seconds(date(2023, 3, 3)) - 1))


def test_no_date_nothing_and_a_changed_format(site, service, fake_time):
    undated = question(1, date(2023, 3, 1))
    del undated["creation_date"]
    assert [d.date for d in collected(site([undated]), fake_time)[0]] == [None]
    assert collected(site([]), fake_time)[0] == []
    for reply, message in (
        ({"questions": []}, "items: field required"),
        ({"items": None}, "items: input should be a valid list; got None"),
        ({"items": ["x"]}, ".*; got 'x'"),
        ({"items": [question(1, date(2023, 3, 1), creation_date="1 March")]}, "creation_date: .*; got '1 March'"),
        ({"items": [question(1, date(2023, 3, 1), creation_date=10**18)]}, "creation_date: .* timestamps"),
        ({"items": [], "backoff": "soon"}, "backoff: .*; got 'soon'"),
    ):
        fake = service(lambda *_, reply=reply: json.dumps({"has_more": False, **reply}).encode())
        with pytest.raises(UsageError, match=f"stackexchange must give what it gave before; {message}"):
            collected(fake, fake_time)


def test_one_malformed_question_is_dropped_and_counted(site, fake_time):
    questions = [question(n, date(2023, 3, n)) for n in range(1, 6)]
    questions[1]["body"] = None
    del questions[2]["body"]
    found, journal = collected(site(questions), fake_time)
    assert [d.date.day for d in found] == [1, 4, 5]
    assert journal.dropped == {"malformed record": 2}


def test_throttling_is_waited_for_or_ends_with_how_to_resume(site, fake_time, reply):
    def throttled(seconds):
        message = f"too many requests from this IP, more requests available in {seconds} seconds"
        body = {"error_id": 502, "error_name": "throttle_violation", "error_message": message}
        return reply(json.dumps(body).encode(), 400)

    questions = [question(1, date(2023, 3, 1))]
    fake = site(questions)
    fake.faults = [throttled(30)]
    assert len(collected(fake, fake_time)[0]) == 1
    assert max(fake_time.waits) >= 30
    fake = site(questions)
    fake.faults = [throttled(52934)]
    with pytest.raises(UsageError, match=r"a pause of 52935 s .HTTP 400: .*: run the same command again to resume"):
        collected(fake, fake_time)


def test_a_used_up_quota_ends_the_run_where_it_resumes(site, fake_time):
    questions = [question(n, date(2023, 3, n)) for n in range(1, 6)]
    journal = Journal(clock=fake_time.clock)
    with pytest.raises(UsageError, match=r"its quota of 300 is used up until tomorrow; .*: run the same command again"):
        collected(site(questions, quota_remaining=0, quota_max=300), fake_time, journal=journal)
    with pytest.raises(UsageError, match="must accept a request within 900 s; it demands a pause of 1000000 s; "):
        collected(site(questions, backoff=10**6), fake_time, journal=journal)
    found, _ = collected(site(questions), fake_time, journal=journal)
    assert [d.date.day for d in found] == [4, 5]
