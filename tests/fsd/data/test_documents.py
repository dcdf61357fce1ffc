import hashlib
from datetime import date, datetime

import pytest

from fsd.data.documents import Document, content_hash, cut, utc_day
from fsd.data.segments import segments


def test_content_hash_is_sha256_of_utf8_and_the_day_of_a_time_is_that_of_utc():
    assert content_hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert content_hash("é") == hashlib.sha256(b"\xc3\xa9").hexdigest()
    assert utc_day(datetime(2024, 1, 6, 0, 30)) == date(2024, 1, 6)
    assert utc_day(datetime.fromisoformat("2024-01-06T00:30+09:00")) == date(2024, 1, 5)


@pytest.mark.parametrize(
    ("count", "places", "starts"),
    [
        (9, "head", []),
        (10, "tail", [0]),
        (25, "tail", [0, 10]),
        (29, "head,middle,tail", [0, 10]),
        (39, "middle", [10]),
        (40, "head,middle,tail", [0, 20, 30]),
        (105, "head,middle,tail", [0, 50, 80, 90]),
    ],
)
def test_segments_are_those_of_the_surp_paper(count, places, starts):
    text = " ".join(f"w{n}" for n in range(count))
    found = segments(text, 10, tuple(places.split(",")))
    assert [segment.split() for segment in found] == [[f"w{n + i}" for i in range(10)] for n in starts]


def test_cut():
    for text, words, expected in ((" a  b\nc ", 2, "a  b"), ("a b", 2, "a b"), (" a b ", 0, "a b")):
        assert cut(text, words) == expected


def test_the_representation_is_short():
    document = Document("one two three " * 100, False, date(2024, 5, 1), "g", origin_url="a file" * 50)
    assert repr(document).endswith("three one two', member=False, date='2024-05-01', group='g')")
