import re
from datetime import date
from xml.sax.saxutils import escape

import pytest

from fsd.collection.domains import arxiv
from fsd.collection.source import Journal, Window
from fsd.errors import UsageError

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
    '  <title type="html">ArXiv Query</title>\n  <id>http://arxiv.org/api/x</id>\n'
    '  <opensearch:{total} xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">{count}</opensearch:{total}>\n'
    '  <opensearch:startIndex xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">{start}</opensearch:startIndex>\n'
)


def entry(number, day, *, revised="", title="On\n  scores", abstract="We study members & more.", link=""):
    published = f"    <published>{day}T10:00:00Z</published>\n" if day else ""
    return (
        f"  <entry>\n    <id>{link or f'http://arxiv.org/abs/{number}v2'}</id>\n"
        f"    <updated>{revised or day or '2023-05-05'}T10:00:00Z</updated>\n{published}"
        f"    <title>{title}</title>\n    <summary>  {escape(abstract)}\n</summary>\n"
        f'    <category term="cs.CL" scheme="http://arxiv.org/schemas/atom"/>\n  </entry>\n'
    )


def day_of(entry):
    return re.findall(r"<(?:updated|published)>([\d-]{10})", entry)[-1].replace("-", "")


def feed(entries, count, start=0, total="totalResults"):
    return (HEAD.format(total=total, count=count, start=start) + "".join(entries) + "</feed>\n").encode()


def serve(service, entries):
    """Serves the entries of the days in the query by date, start and max_results, as the API does."""

    def answer(path, query):
        assert path == "/api/query"
        low, high = re.search(r"submittedDate:\[(\d{8})0000 TO (\d{8})2359\]", query["search_query"]).groups()
        fit = [e for e in entries if low <= day_of(e) <= high]
        fit.sort(key=day_of, reverse=query["sortOrder"] == "descending")
        at, most = int(query["start"]), int(query["max_results"])
        return feed(fit[at : at + most], len(fit), at)

    return service(answer)


def publish(texts, service, folder):
    """Serves (day, text) pairs; gives the options to collect them."""
    entries = [entry(f"{n:04}", str(day), abstract=text) for n, (day, text) in enumerate(texts)]
    return (f"mirror={serve(service, entries).url}",)


@pytest.fixture
def archive(service, monkeypatch):
    def start(entries):
        fake = serve(service, entries)
        monkeypatch.setenv("FSD_ARXIV_URL", fake.url)
        return fake

    return start


AFTER = Window(after=date(2023, 2, 1))


def collected(journal, window=AFTER, **options):
    return [d.group for d in arxiv.texts(window, journal, **options)]


def test_papers_page_by_page(archive, fake_time, monkeypatch):
    monkeypatch.setattr(arxiv, "PAGE", 2)
    fake = archive([entry(f"2303.0000{n}", f"2023-03-0{n}") for n in range(1, 6)])
    journal = Journal(clock=fake_time.clock)
    documents = list(arxiv.texts(Window(after=date(2023, 2, 28)), journal, categories=("cs.CL", "cs.LG"), query="ti:x"))
    assert [d.date for d in documents] == [date(2023, 3, n) for n in range(1, 6)]
    assert documents[0].text == "On scores\nWe study members & more."
    assert (documents[0].group, documents[0].origin_url) == ("arxiv:2303.00001", "http://arxiv.org/abs/2303.00001v2")
    assert [query["start"] for _, query in fake.requests] == ["0", "2", "4"]
    query = fake.requests[0][1]
    expected = "(cat:cs.CL OR cat:cs.LG) AND (ti:x) AND submittedDate:[202303010000 TO 202609212359]"
    assert query["search_query"] == expected
    assert (query["sortBy"], query["sortOrder"]) == ("submittedDate", "ascending")
    assert journal.cursor["start"] == 4
    again = list(arxiv.texts(Window(after=date(2023, 2, 28)), journal, categories=("cs.CL",)))
    assert [d.date for d in again] == [date(2023, 3, 5)]
    assert set(fake_time.waits) == {3.0}


def test_members_come_newest_first_and_as_they_were(archive, fake_time):
    fake = archive(
        [entry("a", "2020-01-05", revised="2024-01-01"), entry("b", "2020-01-04"), entry("c", "", revised="2020-01-01")]
    )
    journal = Journal(clock=fake_time.clock)
    documents = list(arxiv.texts(Window(before=date(2020, 1, 6)), journal))
    assert [d.group for d in documents] == ["arxiv:b", "arxiv:c"]
    assert documents[1].date is None
    assert journal.dropped == {"revised after the window": 1}
    assert fake.requests[0][1]["sortOrder"] == "descending"
    assert fake.requests[0][1]["search_query"] == "submittedDate:[199108140000 TO 202001052359]"


def test_empty_cut_and_foreign_pages_are_retried_and_no_results_on_the_first_believed_the_second_time(
    archive, fake_time, reply
):
    fake = archive([entry("a", "2023-03-01")])
    page = b'<html xmlns="http://www.w3.org/1999/xhtml"><body>Busy</body></html>'
    cut = feed([entry("a", "2023-03-01")], 1)[:300]
    fake.faults = [reply(feed([], 1)), reply(cut), reply(page), reply(feed([], 0))]
    assert collected(Journal(clock=fake_time.clock)) == ["arxiv:a"]
    assert len(fake.requests) == 5


def test_white_space_around_a_time_is_no_part_of_it(archive, fake_time):
    archive([entry("a", "2023-03-01").replace("<published>", "<published>\n ").replace("Z</", "Z\n</")])
    (document,) = arxiv.texts(AFTER, Journal(clock=fake_time.clock))
    assert document.date == date(2023, 3, 1)


def test_one_malformed_or_withdrawn_paper_is_dropped_and_counted(archive, fake_time):
    malformed = entry("b", "2023-03-02").replace("summary", "abstract")
    withdrawn = entry("c", "2023-03-03", abstract="This paper has been withdrawn by the author.")
    for entries, found, dropped in (
        ([], [], {}),
        ([withdrawn], [], {"withdrawn": 1}),
        (
            [entry("a", "2023-03-01"), malformed, entry("d", "2023-03-04")],
            ["arxiv:a", "arxiv:d"],
            {"malformed record": 1},
        ),
    ):
        archive(entries)
        journal = Journal(clock=fake_time.clock)
        assert collected(journal) == found
        assert journal.dropped == dropped


def test_changed_formats_and_errors_are_named(service, fake_time):
    page = feed([entry("a", "2023-03-01")], 1)
    bodies = {
        page.replace(b"totalResults", b"itemsFound"): "arxiv must give <totalResults> in each feed",
        page.replace(b">1<", b">one<"): "gave before; .* valid integer.*; got 'one'",
        page.replace(b"summary", b"abstract"): "arxiv must give <summary> in each entry",
        page.replace(b"2023-03-01", b"1 March"): "gave before; .* valid datetime.*; got '1 March",
        page.replace(b"/abs/", b"/api/errors/"): "arxiv must understand the query; it says: We study members & more",
    }
    for body, message in bodies.items():
        fake = service(lambda *_, body=body: body)
        with pytest.raises(UsageError, match=message):
            collected(Journal(clock=fake_time.clock), mirror=fake.url)
        assert len(fake.requests) == 1


def test_a_total_that_falls_in_mid_run_is_retried(archive, fake_time, reply, monkeypatch):
    monkeypatch.setattr(arxiv, "PAGE", 2)
    papers = [entry(f"p{n}", f"2023-03-0{n}") for n in range(1, 6)]
    fake = archive(papers)
    # the proper first page, then one that says that there are no papers at all
    fake.faults = [reply(feed(papers[:2], 5)), reply(feed([], 0, 2))]
    journal = Journal(clock=fake_time.clock)
    assert len(collected(journal)) == 5
    fake.faults = [reply(feed(papers[:2], 5)), *[reply(feed([], 0, 2))] * 6]
    journal = Journal(clock=fake_time.clock)
    with pytest.raises(UsageError, match=r"a reply that cannot be read \(0 papers at 2 of 0\); .*again to resume"):
        collected(journal)
    assert journal.cursor["start"] == 2
    assert len(collected(journal)) == 3


def test_papers_at_a_restart_come_once(archive, fake_time, monkeypatch):
    monkeypatch.setattr(arxiv, "PAGE", 2)
    monkeypatch.setattr(arxiv, "DEEPEST", 4)
    days = [1, 1, 1, 2, 2, 2, 2, 2]
    archive([entry(f"p{n}", f"2023-03-0{day}") for n, day in enumerate(days)])
    for window in (AFTER, Window(before=date(2023, 4, 1))):
        found = collected(Journal(clock=fake_time.clock), window)
        assert sorted(found) == [f"arxiv:p{n}" for n in range(8)]
