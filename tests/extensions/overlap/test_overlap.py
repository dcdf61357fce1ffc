"""The counts against a version that keeps all n-grams in memory as words."""

import random
import string
import tracemalloc
from collections import Counter

import numpy as np
import pytest

from extensions.overlap import overlap as module
from extensions.overlap.overlap import Overlap, overlap
from fsd.data import normalised_words
from fsd.data.normalised_words import normalised
from fsd.data.passages import Passage
from fsd.errors import UsageError


def plain(text):
    return "".join(letter for letter in text.lower() if letter not in string.punctuation).split()


def slow(texts, corpus, n):
    """Source → text, for both; the result of each text, without the words of its passage."""

    def grams(text):
        found = plain(text)
        return [tuple(found[at : at + n]) for at in range(len(found) - n + 1)]

    places = {}
    for source, text in corpus.items():
        for gram in grams(text):
            places.setdefault(gram, source)
    occurrences = Counter(gram for text in texts.values() for gram in grams(text))
    for source, text in texts.items():
        own = grams(text)
        best = (0, 0)
        for start in range(len(own)):
            end = start
            while end < len(own) and own[end] in places:
                end += 1
            if end - start > best[1] - best[0]:
                best = (start, end)
        longest = best[1] - best[0] + n - 1 if best[1] else 0
        where = places[own[best[0]]] if longest else ""
        found = sum(gram in places for gram in own)
        common = sum(gram in places and occurrences[gram] > 10 for gram in own)
        start = best[0] if longest else 0
        yield Overlap(source, len(plain(text)), len(own), found, longest, start, where, common=common)


def draw(rng, count, name):
    letters = ["a", "b", "c", "Dd,", "e.", "ee", "f's", "(g)"]
    return {f"{name}:{at}": " ".join(rng.choices(letters, k=rng.randrange(40))) for at in range(count)}


def passages(texts, rng, longest):
    """The texts in passages that end between words."""
    for source, text in texts.items():
        words = text.split(" ")
        at, opens = 0, True
        while at < len(words) or opens:
            end = at + rng.randrange(1, longest)
            yield Passage((" " if at else "") + " ".join(words[at:end]), opens, source)
            at, opens = end, False


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_counts_spans_and_places_are_those_of_the_slow_version(n, collide, monkeypatch):
    if collide:  # hashes of which many are of other words
        monkeypatch.setattr(normalised_words, "_number", len)
    for seed in range(4):
        rng = random.Random(f"{n} {seed}")
        texts, corpus = draw(rng, 30, "own"), draw(rng, 30, "corpus")
        found = list(overlap(passages(texts, rng, 9), passages(corpus, rng, 9), n=n))
        assert [row._replace(passage="") for row in found] == list(slow(texts, corpus, n))
        for row in found:
            own = plain(texts[row.source])[row.start : row.start + row.longest]
            assert row.passage.split() == own[:30]
            assert row.share == (row.found / row.ngrams if row.ngrams else 0)


def test_texts_in_several_parts_are_compared_with_the_whole_corpus(monkeypatch):
    monkeypatch.setattr(module, "WORDS", 50)
    rng = random.Random(0)
    texts, corpus = draw(rng, 30, "own"), draw(rng, 30, "corpus")
    found = list(overlap(passages(texts, rng, 9), list(passages(corpus, rng, 9)), n=2))
    # what many of the texts have is counted in each part
    assert [row._replace(passage="", common=0) for row in found] == [
        row._replace(common=0) for row in slow(texts, corpus, 2)
    ]


def test_a_match_has_a_class_and_a_text_a_verdict() -> None:
    """Rows by hand, of 4-grams; the words of each are its own but for the instruction, which all twelve have."""
    instruction = "choose the right one of these"

    def row(number, words, answer):
        return Passage(f"{instruction} {words} {answer}", origin_url=str(number), answer=answer)

    own = [f"a{number} b{number} c{number} d{number} e{number} f{number}" for number in range(10)]
    texts = [row(number, words, f"x{number}, y{number}!") for number, words in enumerate(own)]
    texts += [
        Passage(f"{instruction} {words}", origin_url=f"plain {words[-1]}") for words in ("p q r s t", "u v w x y z")
    ]
    texts += [Passage("too short"), row(13, own[3].replace("3", "13"), "elsewhere")._replace(answer="not in the text")]
    corpus = [
        f"{instruction} {own[0]} X0 Y0",  # all of it
        "before d1 e1 f1 x1 y1",  # the end, with the answer
        "before d1 e1 f1 x1 other",
        f"{own[2]} then another answer",  # the question
        "d3 e3 f3 x3 another",  # half the answer
        "p q r s t and so on",  # 2 of 8 n-grams of the first text without an answer
        f"{instruction} u v w x y",  # all but one of the 9 of the second, 3 of them common
        own[3].replace("3", "13"),
    ]
    rows = list(overlap(texts, [Passage(text) for text in corpus], n=4))
    found = [(row.kind, row.verdict) for row in rows]
    assert found[:5] == [
        ("answer inside", "contaminated"), ("answer inside", "contaminated"), ("question alone", "partly"),
        ("question alone", "partly"), ("boilerplate", "not found"),
    ]  # fmt: skip
    assert found[5:10] == [("boilerplate", "not found")] * 5
    assert found[10:] == [
        ("passage", "partly"), ("passage", "partly"), ("", "too short"), ("question alone", "partly"),
    ]  # fmt: skip
    assert [row.common for row in rows] == [3] * 12 + [0, 3]
    # without its instruction, most of the text is there
    (whole,) = overlap([Passage("u v w x y z u2 v2")], [Passage("u v w x y z u2 other")], n=4)
    assert (whole.share, whole.kind, whole.verdict) == (0.8, "passage", "contaminated")


def test_words_are_lower_case_without_punctuation() -> None:
    assert normalised("Don’t: the U.S.A.'s well-known A_B — 3.5 %!") == ["dont", "the", "usas", "wellknown", "ab", "35"]
    for typed, printed in (
        ("so--and so -- and", "so—and so — and"),
        ("so---and so--and", "so–and so—and"),
        ("1914--1918, 3-5", "1914–1918, 3—5"),
        ("a well-known co-author", "a well‐known co‑author"),
        ("wait...what", "wait…what"),
        ("wait... what?...", "wait… what?…"),
        ("\"don't\", 'it', rock 'n' roll", "“don’t”, ‘it’, rock ‘n’ roll"),
        ('"don\'t" said she', "«donʼt» said she"),
        ('5\'4" x 3"', "5′4″ x 3″"),
        ("information was distributed", "in\u00adfor\u00adma\u00adtion was dis\u200btrib\u200cut\u2060ed\ufeff"),
        ("Tom & Jerry's <b> café", "Tom &amp; Jerry&rsquo;s &lt;b&gt; caf&eacute;"),
        ("so--and 10 km", "so&mdash;and 10&nbsp;km"),
        ("so--and in it", "so&#8212;and &#x69;n it"),
        ("x - 5", "x − 5"),
        ("office file", "oﬃce ﬁle"),
        ("naïve", "nai\u0308ve"),
    ):
        assert normalised(typed) == normalised(printed)
    assert normalised("so--and...so") == ["so", "and", "so"]
    assert normalised("don't") == normalised("DON’T")
    assert normalised("六七") == ["六", "七"]


def test_sides_without_an_ngram_are_refused() -> None:
    long, short = Passage("a b c", origin_url="long"), Passage("a b", origin_url="short")
    for texts, corpus, message in (
        ([short], [long], "texts must have one of at least 3 words; there is none"),
        ([long], [short, short], "corpus must have a text of at least 3 words; it has none"),
        ([long], [], "corpus must have"),
        ([], [long], "texts must have"),
    ):
        with pytest.raises(UsageError, match=message):
            list(overlap(texts, corpus, n=3))
    (row,) = overlap([long], [long], n=3)
    assert row == Overlap("long", 3, 1, 1, 3, 0, "long", "a b c")


def test_memory_does_not_grow_with_either_side(monkeypatch) -> None:
    monkeypatch.setattr(module, "WORDS", 2000)
    rng = np.random.default_rng(0)

    def texts(count, seed):
        for at in range(count):
            yield Passage(" ".join(f"w{number}" for number in rng.integers(0, 50, 200)), origin_url=f"{seed}:{at}")

    def peak(own, count):
        corpus = list(texts(40, "corpus")) * count
        tracemalloc.start()
        for _ in overlap(texts(own, "own"), corpus):
            pass
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(20, 2)
    assert peak(80, 4) < 1.2 * peak(20, 1)


@pytest.mark.parametrize(
    ("typed", "printed"),
    [
        ("--", "—"),
        ("--", "–"),
        (" -- ", "—"),
        ("...", "…"),
        ("'", "’"),
        ('"', "”"),
        ("", "\u00ad"),
        ("", "\u200b"),
        ("--", "&mdash;"),
        ("'", "&rsquo;"),
        ("...", "&hellip;"),
        (" ", "&nbsp;"),
    ],
)
def test_texts_that_are_printed_otherwise_are_found(typed, printed):
    """A sign of each kind after every fifth letter or so of forty texts, of which no n-gram would be free."""
    rng = random.Random(0)
    letters = string.ascii_lowercase[:8]
    texts = ["".join(rng.choice([*letters, *letters, " ", "\0"]) for _ in range(600)) for _ in range(40)]

    def side(sign):
        return [Passage(text.replace("\0", sign), opens=True, origin_url=str(at)) for at, text in enumerate(texts)]

    found = list(overlap(side(typed), side(printed)))
    assert len(found) == 40
    assert min(row.share for row in found) >= 0.99
