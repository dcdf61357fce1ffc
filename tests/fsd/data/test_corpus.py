import pickle
from dataclasses import replace

import numpy as np
import pytest

from fsd.data import corpus as module
from fsd.data import embedded
from fsd.data.corpus import Corpus, Split, as_corpus
from fsd.data.documents import Document
from fsd.data.near_duplicates import families
from fsd.data.periods import AFTER, UP_TO
from fsd.data.splitting import split

TEXTS = [
    Document("one two", True, group="x", period=UP_TO, source="a"),
    Document("three four", False, group="y", period=UP_TO, context="before"),
    Document("five six", False, group="x", period=AFTER),
    Document("Three, four", None, group="z", period=AFTER),
    Document("seven eight", True, group="y", period=UP_TO),
]


@pytest.fixture
def counted(monkeypatch):
    """How many texts the families were computed of, for each time."""
    calls = []

    def count(documents):
        calls.append(len(documents))
        return families(documents)

    monkeypatch.setattr(module, "families", count)
    return calls


def test_columns_by_hand():
    corpus = Corpus(TEXTS)
    assert corpus == tuple(TEXTS)
    assert corpus.texts == ["one two", "three four", "five six", "Three, four", "seven eight"]
    assert corpus.members.tolist() == [True, False, False, False, True]
    assert corpus.sources == ["a", "", "", "", ""]
    assert corpus.family.tolist() == [0, 1, 0, 2, 1]
    assert corpus.kind.tolist() == ["member", "contemporary", "later", "later", "member"]


def test_a_part_keeps_families_and_kinds_of_the_whole_and_numbers_the_families_anew():
    corpus = Corpus(TEXTS)
    part = corpus.take(np.array([False, True, True, True, True]))
    assert part == tuple(TEXTS[1:])
    assert part.family.tolist() == [0, 1, 2, 0]
    assert part.kind.tolist() == ["contemporary", "later", "later", "member"]
    assert part.take(np.array([2, 0])) == (TEXTS[3], TEXTS[1])
    assert part.take(np.array([2, 0])).positions.tolist() == [3, 1]
    assert part.take(np.array([2, 0])).family.tolist() == [0, 1]
    # without a member of the period, the text would be later on its own
    assert part.take(np.array([0])).kind.tolist() == ["contemporary"]
    assert Corpus(part.take(np.array([0]))).kind.tolist() == ["later"]


def test_an_empty_corpus_and_an_empty_part():
    for corpus in (Corpus(), Corpus(TEXTS).take(np.zeros(5, bool))):
        assert corpus == ()
        assert corpus.texts == corpus.sources == []
        assert (corpus.members.size, corpus.family.size, corpus.kind.size) == (0, 0, 0)


def test_columns_are_computed_once_for_a_corpus_its_parts_and_their_parts(counted):
    documents = list(embedded.corpus())
    corpus = Corpus(documents)
    parts = split(corpus)
    judged = parts.without_later().judged
    assert judged.family.size == judged.kind.size == len(judged)
    assert corpus.family is as_corpus(corpus).family
    assert parts.test.family.size == len(parts.test)
    assert counted == [len(documents)]


def test_judged_texts_are_validation_and_test_with_families_across_both(counted):
    corpus = Corpus(TEXTS)
    parts = Split((), corpus.take(np.array([0, 1])), corpus.take(np.array([2, 3])))
    assert parts.judged == tuple(TEXTS[:4])
    assert parts.judged.family.tolist() == [0, 1, 0, 2]
    assert counted == [5]
    apart = Split((), TEXTS[:2], TEXTS[2:4])
    assert apart.judged == parts.judged
    # on their own, the two copies without the group that is between them
    assert apart.judged.family.tolist() == families(TEXTS[:4])
    assert counted == [5, 4]


def test_a_split_compares_by_its_texts_and_replaces_its_parts():
    parts = Split(TEXTS[:1], TEXTS[1:2], TEXTS[2:])
    assert list(parts) == [tuple(TEXTS[:1]), tuple(TEXTS[1:2]), tuple(TEXTS[2:])]
    assert parts == Split(tuple(TEXTS[:1]), Corpus(TEXTS[1:2]), TEXTS[2:])
    assert hash(parts) == hash(Split(tuple(TEXTS[:1]), Corpus(TEXTS[1:2]), TEXTS[2:]))
    assert parts != Split((), TEXTS[1:2], TEXTS[2:])
    foreign = [replace(TEXTS[1], text="foreign")]
    replaced = parts.replace(unseen=foreign)
    assert replaced.unseen.texts == ["foreign"]
    assert (replaced.validation, replaced.test) == (parts.validation, parts.test)
    with pytest.raises(TypeError):
        parts.replace(training=foreign)


def test_of_each_family_the_first_text():
    documents = [Document("a b"), Document("c d", group="g"), Document("a b"), Document("e f", group="g")]
    assert Corpus(documents).one_per_family().texts == ["a b", "c d"]
    assert Corpus(documents).take(np.array([3, 2, 1])).one_per_family().texts == ["e f", "a b"]
    assert Corpus().one_per_family() == ()


def test_a_part_survives_another_process():
    part = Corpus(TEXTS).take(np.array([1, 4]))
    again = pickle.loads(pickle.dumps(part))
    assert (again, again.family.tolist(), again.texts) == (part, [0, 0], ["three four", "seven eight"])


def test_without_later_texts_by_hand():
    members = [Document(f"m{i} n{i}", True, period=UP_TO) for i in range(3)]
    early = [Document(f"e{i} f{i}", False, period=UP_TO) for i in range(3)]
    late = [Document(f"l{i} k{i}", False, period=AFTER) for i in range(3)]
    parts = Split(late[:1], [members[0], early[0], late[1]], [*members[1:], late[2], *early[1:]])
    compared = parts.without_later()
    assert compared.unseen == parts.unseen
    assert compared.validation == (members[0], early[0])
    assert compared.test == (*members[1:], *early[1:])
    # without contemporaries, later texts are all that there is to compare members with
    alone = Split((), members[:1], [*members[1:], *late])
    assert alone.without_later() == alone
