import csv
from datetime import date
from functools import partial
from io import StringIO

import pytest

from fsd.collection.domains import books
from fsd.collection.source import Journal, Window
from fsd.errors import UsageError

COLUMNS = ["Text#", "Type", "Issued", "Title", "Language", "Authors", "Subjects", "LoCC", "Bookshelves"]
WORDS = [f"w{n}" for n in range(40)]


def book(number, issued, kind="Text", language="en"):
    return [str(number), kind, issued, f"Book\n{number}, part", language, "Somebody, A.", "Fiction", "PS", ""]


def catalogue(rows, columns=COLUMNS):
    file = StringIO(newline="")
    csv.writer(file).writerows([columns, *rows])
    return file.getvalue().encode("utf-8-sig")


def file_of(words, name="THE BOOK"):
    return (
        f"\ufeffThe Project Gutenberg eBook of {name}\r\n\r\nThis ebook is for the use of anyone anywhere\r\n\r\n"
        f"*** START OF THE PROJECT GUTENBERG EBOOK {name} ***\r\n\r\nProduced by A and B\r\n\r\n"
        + "\r\n".join(words)
        + f"\r\n\r\n*** END OF THE PROJECT GUTENBERG EBOOK {name} ***\r\n\r\nSection 1. General Terms\r\n"
    ).encode()


def serve(service, rows, files, columns=COLUMNS):
    def answer(path, query):
        if path == "/cache/epub/feeds/pg_catalog.csv":
            return catalogue(rows, columns)
        return files.get(path)

    return service(answer)


def publish(texts, service, folder):
    """Serves a book of three segments for each (day, text); gives the options to collect them."""
    rows = [book(n, str(day)) for n, (day, _) in enumerate(texts)]
    files = {path(n): file_of(text.split()) for n, (_, text) in enumerate(texts)}
    return (f"mirror={serve(service, rows, files).url}", f"words={len(texts[0][1].split()) // 3}")


@pytest.fixture
def library(service):
    return partial(serve, service)


def collected(fake, fake_time, window=Window(after=date(2023, 2, 28)), journal=None, **options):  # noqa: B008 - frozen
    journal = journal or Journal(clock=fake_time.clock)
    return list(books.texts(window, journal, mirror=fake.url, **options)), journal


def path(number):
    return f"/cache/epub/{number}/pg{number}.txt"


def test_segments_of_new_books_without_header_and_licence(library, fake_time):
    rows = [
        book(70003, "2023-03-02"), book(70001, "2023-02-28"), book(70002, "2023-03-01"), book(70004, ""),
        book(70005, "2023-03-05", kind="Sound"), book(70006, "2023-03-05", language="fr; de"),
        book(70007, "2023-03-07"), book(70008, "2023-03-08"), book(70009, "2023-03-09"),
    ]  # fmt: skip
    files = {
        path(70002): file_of(WORDS),
        path(70003): file_of(WORDS[:25]),
        path(70008): b"no markers",
        path(70009): "*** START OF THE PROJECT GUTENBERG EBOOK É ***".encode("latin-1"),
    }
    fake = library(rows, files)
    documents, journal = collected(fake, fake_time, words=10)
    books_of = [("gutenberg:70002", date(2023, 3, 1)), ("gutenberg:70003", date(2023, 3, 2))]
    assert [(d.group, d.date) for d in documents] == [books_of[0]] * 3 + [books_of[1]] * 2
    assert [d.text.split() for d in documents] == [WORDS[:10], WORDS[20:30], WORDS[30:], WORDS[:10], WORDS[10:20]]
    assert documents[0].origin_url == "https://www.gutenberg.org/ebooks/70002"
    assert journal.dropped == {"no date": 1, "no plain text": 1, "no Gutenberg markers": 1, "not UTF-8": 1}
    assert journal.cursor == ["2023-03-09", 70009]
    assert min(fake_time.waits) == 2.0


def test_it_resumes_with_the_next_book(library, fake_time):
    rows = [book(n, "2023-03-01") for n in (3, 1, 2)]
    fake = library(rows, {path(n): file_of(WORDS[n:]) for n in (1, 2, 3)})
    documents, _ = collected(fake, fake_time, journal=Journal(["2023-03-01", 1], clock=fake_time.clock), words=10)
    assert [d.group for d in documents[::3]] == ["gutenberg:2", "gutenberg:3"]
    window = Window(before=date(2023, 3, 2))
    documents, _ = collected(fake, fake_time, window, Journal(["2023-03-01", 2], clock=fake_time.clock), words=10)
    assert {d.group for d in documents} == {"gutenberg:1"}


def test_an_empty_or_cut_reply_loses_no_book(library, fake_time, reply):
    rows, files = [book(1, "2023-03-01")], {path(1): file_of(WORDS)}
    faults = {
        b"": "nothing in place of the text",
        file_of(WORDS)[:300]: "a text without the marker of its end",
        b"<!DOCTYPE html>\n<title>Maintenance</title>": "an HTML page in place of the text",
    }
    for fault, said in faults.items():
        fake = library(rows, files)
        fake.faults = [reply(catalogue(rows)), reply(fault)]
        documents, journal = collected(fake, fake_time, words=10)
        assert [d.group for d in documents] == ["gutenberg:1"] * 3
        assert journal.dropped == {}
        with pytest.raises(UsageError, match=f"6 attempts at .*/pg1.txt failed: {said}; .* to resume"):
            collected(library(rows, {path(1): reply(fault)}), fake_time, words=10)


def test_a_changed_catalogue_a_cut_one_and_wrong_options(library, service, fake_time, reply):
    fake = library([book(1, "2023-03-01")], {}, ["Text#", "Type", "Released", *COLUMNS[3:]])
    with pytest.raises(UsageError, match="gutenberg's catalogue must have Issued: its format may have changed"):
        collected(fake, fake_time)
    fake = library([book(1, "2023-03-01")], {path(1): file_of(WORDS)})
    # A quote that is never closed makes a field of all that follows.
    csv.field_size_limit(131072)
    endless = reply(catalogue([book(1, "2023-03-01")]) + b'"' + b"x" * 200_000)
    fake.faults = [reply(catalogue([book(1, "2023-03-01")])[:-30]), endless]
    assert len(collected(fake, fake_time, words=10)[0]) == 3
    with pytest.raises(UsageError, match="'Issued' as a date"):
        collected(library([book(1, "March 2023")], {}), fake_time)
    with pytest.raises(UsageError, match="places of head,middle,tail"):
        collected(fake, fake_time, places=("end",))


def test_a_block_ends_the_run_and_loses_no_book(library, fake_time, reply):
    rows = [book(n, f"2023-03-0{n}") for n in range(1, 6)]
    files = {path(n): file_of(WORDS[n:]) for n in range(1, 6)}
    blocked = dict(files) | {path(n): reply(b"Your IP address has been automatically blocked", 403) for n in (3, 4, 5)}
    journal = Journal(clock=fake_time.clock)
    fake = library(rows, blocked)
    with pytest.raises(UsageError, match=r"HTTP 403: Your IP .* blocked; .*: run the same command again to resume"):
        collected(fake, fake_time, journal=journal, words=10)
    assert journal.cursor == ["2023-03-02", 2]
    assert len(fake.requests) == 4
    assert not journal.dropped
    again, _ = collected(library(rows, files), fake_time, journal=journal, words=10)
    assert {d.group for d in again} == {"gutenberg:3", "gutenberg:4", "gutenberg:5"}


def test_one_malformed_row_of_the_catalogue_is_dropped_and_counted(library, fake_time):
    fake = library([book(1, "2023-03-01"), book(2, "2023/03/02")], {path(1): file_of(WORDS)})
    documents, journal = collected(fake, fake_time, words=10)
    assert {d.group for d in documents} == {"gutenberg:1"}
    assert journal.dropped == {"malformed record": 1}
    assert collected(fake, fake_time, journal=Journal(["2023-03-01", 1], clock=fake_time.clock))[1].dropped == {}


def test_credits_and_notes_are_left_out_at_both_ends_and_italics_in_the_text():
    story = [f"Chapter {n}\n\n" + " ".join(f"word{n}x{i}" for i in range(60)) for n in range(12)]
    story[3] += " with an _emphasised phrase_ and a snake_case_word.\n\n[Illustration: A horse]"
    added = [
        "E-text prepared by A, B, and the Online Distributed Proofreading Team\n(http://www.pgdp.net)\n"
        "from page images generously made available by\nInternet Archive (https://archive.org)",
        "Note: Project Gutenberg also has an HTML version of this\n      file which includes the illustrations.",
        "Transcriber's Note:",
        "      Text enclosed by underscores is in italics (_italics_).\n\n      Small capitals are capitals.",
        "(This file was produced from images generously made\navailable by The Library.)",
    ]
    notes = "TRANSCRIBER’S NOTES\n\nObvious errors of the printer were corrected.\n\nThe cover is new."
    body = "\n\n\n\n".join([*added, *story, notes])
    clean = books.without_credits(body)
    cues = "_ ranscriber TRANSCRIBER HTML Internet produced pgdp capitals printer Illus"
    assert not [cue for cue in cues.split() if cue in clean.replace("snake_case_word", "")]
    assert "with an emphasised phrase and a snake_case_word." in clean
    kept = " ".join(clean.split())
    assert kept.startswith("Chapter 0 word0x0")
    assert kept.endswith("word11x59")
    assert [w for w in kept.split() if w.startswith("word")] == [f"word{n}x{i}" for n in range(12) for i in range(60)]
    body = "Transcriber's Note: x\n\n" + "\n\n".join(f"paragraph {n} " + "of many words " * 20 for n in range(40))
    assert len(books.without_credits(body).split()) > 2000  # a book without gaps is not taken for a note
