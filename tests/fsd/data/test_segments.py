import pytest

from fsd.data.documents import cut, segments


@pytest.mark.parametrize(
    ("count", "places", "starts"),
    [(9, "head", []), (10, "tail", [0]), (29, "head,middle,tail", [0, 19]), (30, "head,middle,tail", [0, 10, 20])],
)
def test_segments_do_not_overlap(count, places, starts):
    text = " ".join(f"w{n}" for n in range(count))
    found = segments(text, 10, tuple(places.split(",")))
    assert [segment.split() for segment in found] == [[f"w{n + i}" for i in range(10)] for n in starts]


@pytest.mark.parametrize(
    ("text", "words", "expected"), [(" a  b\nc ", 2, "a  b"), ("a b", 2, "a b"), (" a b ", 0, "a b")]
)
def test_cut(text, words, expected):
    assert cut(text, words) == expected
