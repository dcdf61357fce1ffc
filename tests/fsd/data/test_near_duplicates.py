import random
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsd.data import embedded
from fsd.data import near_duplicates as module
from fsd.data.documents import Document
from fsd.data.near_duplicates import (
    COMMON,
    contradictions,
    drop_contradictions,
    families,
    near_duplicates,
    refuse_contradictions,
    words,
)
from fsd.data.readers import read_files
from fsd.data.related import refuse_related, without_related
from fsd.errors import UsageError


def passage(seed, length):
    rng = random.Random(seed)
    return [f"w{rng.randrange(10**6)}" for _ in range(length)]


def text(*pieces):
    return " ".join(word for piece in pieces for word in piece)


def share(*texts):
    """Of the 7-grams of the text with fewer, those in the other one."""
    return module._share(module._read(texts), 0, 1)


def pairs(texts):
    return [(link.i, link.j, link.reason) for link in near_duplicates(texts)]


def test_words():
    expected = {
        "Don't STOP, me-now!": ["don", "t", "stop", "me", "now"],
        "数据检测 with LLMs": ["数", "据", "检", "测", "with", "llms"],
        "データの": ["デ", "ー", "タ", "の"],
        "안녕 세상": ["안녕", "세상"],
        "हिन्दी भाषा।": ["हिन्दी", "भाषा"],
        "ＡＢＣ１２３": ["abc123"],
        "ไทย": ["ไ", "ท", "ย"],
        "ที่ นี้": ["ที่", "นี้"],
        "ప్రధానమంత్రిని కలుసుకున్నారు": ["ప్రధానమంత్రిని", "కలుసుకున్నారు"],
        "ક્યાં, ભાષા": ["ક્યાં", "ભાષા"],
        "ܒܪܰܡ ܣܶܦܪܳܐ": ["ܒܪܰܡ", "ܣܶܦܪܳܐ"],
        "dis\u00adtrib\u00adut\u200bed \ufeffas o\u2060ne": ["distributed", "as", "one"],
        "می\u200cخواهم": ["میخواهم"],
        "?!": [],
    }
    assert {written: words(written) for written in expected} == expected


def test_exact_copies_but_for_case_and_punctuation_and_prefixes_are_copies():
    whole = passage(0, 64)
    assert pairs(["One two.", "three four", "ONE, two"]) == [(0, 2, "copy")]
    assert pairs([text(whole), text(passage(1, 64)), text(whole[:32])]) == [(0, 2, "copy")]
    assert share(text(whole), text(whole[:32])) == 1.0


def test_a_copy_shares_four_fifths_of_its_ngrams():
    original = passage(0, 60)
    # each changed word is in 7 n-grams; of two words with two others between them, 4 of these are the same
    for places, lost, reason in (
        ([20], 7, "copy"),
        ([20, 23], 10, "copy"),  # with the first n-gram 11 of 55: exactly four fifths are left
        ([20, 24], 11, "overlap"),
        ([20, 28, 36], 21, "overlap"),
    ):
        copy = [f"x{i}" if i in places else word for i, word in enumerate(original)]
        both = (text(["a"], original), text(["b"], copy))
        assert pairs(both) == [(0, 1, reason)]
        assert share(*both) == pytest.approx(1 - (lost + 1) / 55)


def test_openings():
    start, whole = passage(0, 10), passage(4, 40)
    texts = [text(start, passage(1, 30)), text(start, passage(2, 30)), text(start[:9], passage(3, 30))]
    assert pairs(texts) == [(0, 1, "opening")]
    assert [bool(pairs([text(whole), text(whole[:length])])) for length in (4, 5, 9)] == [False, True, True]
    shared = passage(0, 25)
    assert pairs([text(passage(1, 20), shared), text(passage(2, 20), shared)]) == [(0, 1, "overlap")]
    assert pairs([text(shared, passage(1, 20)), text(shared, passage(2, 20))]) == [(0, 1, "opening")]  # the stronger


def test_overlap_is_the_share_of_the_text_with_fewer_ngrams():
    shared = passage(0, 16)  # 10 of its 7-grams
    small, large = text(passage(1, 20), shared, passage(2, 20)), text(passage(3, 90), shared)
    assert pairs([large, small]) == [(0, 1, "overlap")]
    assert share(large, small) == pytest.approx(10 / 50)
    assert not pairs([large, text(passage(1, 20), shared, passage(2, 21))])  # 10 of 51


def test_scripts_without_spaces_need_twice_as_many_characters():
    def chinese(seed, length):
        rng = random.Random(seed)
        return "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(length))

    start = chinese(0, 20)
    assert pairs([start + chinese(1, 60), start + chinese(2, 60)]) == [(0, 1, "opening")]
    assert not pairs([start[:19] + chinese(1, 60), start[:19] + chinese(2, 60)])


def test_clean_texts_and_texts_without_words_pass():
    assert not pairs([text(passage(i, 50)) for i in range(200)])
    assert not pairs(["!", "?", "a", ""])
    assert families([]) == []


def test_an_opening_of_ten_texts_links_them_and_one_of_eleven_is_common():
    start = passage(0, 10)
    texts = [text(start, passage(1 + i, 50)) for i in range(11)]
    assert pairs(texts[:10]) == [(0, i, "opening") for i in range(1, 10)]
    assert not pairs(texts)


def test_boilerplate_links_nothing_but_copies_of_it_stay_one_family():
    boilerplate = passage(0, 40)
    many = [text(boilerplate, passage(i, 40)) for i in range(1, COMMON + 2)]
    assert pairs(many[:COMMON])
    assert not pairs(many)
    copies = [text(passage(99, 60), [f"v{i}"]) for i in range(3 * COMMON)]
    number = families([Document(text) for text in many + copies])
    assert number == [*range(len(many)), *[len(many)] * len(copies)]


def test_standard_sentences_in_a_row_are_no_common_origin():
    # each sentence, and each two in a row, is in many texts; three in a row only in two of them
    sentences = [passage(i, 15) for i in range(3)]
    texts = [text(*sentences, passage(i, 60)) for i in (10, 11)]
    texts += [text(*sentences[:2], passage(20 + i, 60)) for i in range(COMMON)]
    texts += [text(*sentences[1:], passage(40 + i, 60)) for i in range(COMMON)]
    assert not pairs([text(passage(60 + i, 10), [t]) for i, t in enumerate(texts)])


def test_families_join_groups_and_links_through_others():
    a, b = passage(0, 40), passage(1, 40)
    texts = [text(a), text(b), text(passage(2, 40)), text(a[:20]), text(passage(3, 40)), text(b[:30])]
    groups = ["x", "y", "", "z", "z", ""]
    documents = [Document(text, group=group) for text, group in zip(texts, groups, strict=True)]
    assert families(documents) == [0, 1, 2, 0, 0, 1]


def ngrams(tokens, n):
    return {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}


def slow_rule(first, second):
    """The rules by the letter, for sets too small to have boilerplate."""
    a, b = sorted((first.split(), second.split()), key=len)
    opening = len(a) >= 5 and a[:10] == b[: len(a[:10])]
    sevens = ngrams(a, 7), ngrams(b, 7)
    fewer = min(map(len, sevens))
    overlap = fewer > 0 and len(sevens[0] & sevens[1]) >= 0.2 * fewer
    return a == b or opening or overlap or bool(ngrams(a, 20) & ngrams(b, 20))


SENTENCES = [passage(100 + i, length) for i, length in enumerate((1, 2, 4, 5, 7, 8, 9, 12, 19, 21, 30))]


@settings(max_examples=150)
@given(st.lists(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=6).map(lambda s: text(*s)), max_size=COMMON))
def test_equals_a_slow_version_over_all_pairs(texts):
    expected = {(i, j) for i, j in combinations(range(len(texts)), 2) if slow_rule(texts[i], texts[j])}
    assert {(link.i, link.j) for link in near_duplicates(texts)} <= expected
    component = list(range(len(texts)))
    for i, j in expected:
        low, high = sorted((component[i], component[j]))
        component = [low if c == high else c for c in component]
    numbers = {c: n for n, c in enumerate(dict.fromkeys(component))}
    assert families([Document(text) for text in texts]) == [numbers[c] for c in component]


def test_texts_labelled_both_ways_are_refused_and_listed():
    fine = [Document("a", True), Document("b", False), Document("a", True), Document("a"), Document("?", False)]
    refuse_contradictions(fine)
    message = r"1 pair is copies .* labelled both 1 and 0 \(member = non-member\): 'a' = f:7; say how$"
    with pytest.raises(UsageError, match=message):
        refuse_contradictions([*fine, Document(" A\n", False, origin_url="f:7")], "; say how")
    many = [Document(str(i), m, origin_url=f"{'non' * (not m)}{i}") for m in (True, False) for i in range(12)]
    with pytest.raises(UsageError, match=r"12 pairs are .*: 0 = non0; .*; 4 = non4; and 7 more$"):
        refuse_contradictions(many)


def test_near_copies_labelled_both_ways_are_refused_or_left_out():
    member, other = passage(0, 150), passage(1, 150)
    changed = ["a" if i in (40, 90) else word for i, word in enumerate(member)]
    fine = [Document(text(member), True), Document(text(other), False), Document(text(passage(2, 150)), False)]
    spun = ["a" if i % 12 == 11 else word for i, word in enumerate(member)]  # 42 % of the 7-grams are left
    for copy in (changed, member[:100], [*passage(3, 20), *member], spun):
        documents = [*fine, Document(text(copy), False)]
        assert contradictions(documents) == [(0, 3)]
        assert drop_contradictions(documents) == (fine[1:], 2)
    quoting = Document(text(passage(4, 60), member[:30], passage(5, 60)), False)
    assert drop_contradictions([*fine, quoting]) == ([*fine, quoting], 0)


def test_all_copies_of_a_text_labelled_both_ways_are_left_out_in_any_order():
    whole = passage(0, 120)
    family = [Document(text(whole), True), Document(text(whole[:80]), True), Document(text(whole[40:]), False)]
    alone, unlabelled = Document(text(passage(1, 120)), True), Document(text(whole))
    rng = random.Random(0)
    for _ in range(5):
        documents = rng.sample([*family, alone, unlabelled], 5)
        assert drop_contradictions(documents) == ([d for d in documents if d in (alone, unlabelled)], 3)


def longest_common_subsequence(a, b):
    best = [0] * (len(b) + 1)
    for word in a:
        before = list(best)
        for j, other in enumerate(b):
            best[j + 1] = before[j] + 1 if word == other else max(before[j + 1], best[j])
    return best[-1]


def test_contradictions_equal_a_slow_version_over_all_pairs():
    rng = random.Random(7)
    sources = [passage(i, 60) for i in range(6)]
    documents = []
    for _ in range(60):
        words_ = list(rng.choice(sources)[: rng.choice((30, 45, 60))])
        for _ in range(rng.randrange(4)):
            words_[rng.randrange(len(words_))] = f"x{rng.randrange(10**6)}"
        documents.append(Document(text(words_), rng.random() < 0.5))

    def copies(a, b):
        first, second = a.text.split(), b.text.split()
        grams = ngrams(first, 7), ngrams(second, 7)
        share = len(grams[0] & grams[1]) / min(map(len, grams))
        aligned = longest_common_subsequence(first, second) / min(len(first), len(second))
        return share >= 0.8 or (share >= 0.2 and aligned >= 0.9)

    expected = {
        (i, j) if documents[i].member else (j, i)
        for i, j in combinations(range(60), 2)
        if documents[i].member != documents[j].member and copies(documents[i], documents[j])
    }
    assert expected
    assert set(contradictions(documents)) <= expected
    kept, _ = drop_contradictions(documents)
    assert not any(copies(a, b) for a, b in combinations(kept, 2) if a.member != b.member)


def test_the_embedded_corpus_has_no_copies_across_labels():
    assert contradictions(list(embedded.corpus())) == []


@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=60), min_size=2, max_size=2), st.integers(0, 80))
def test_the_bound_of_words_in_order_is_no_less_than_the_blocks(pair, rare):
    a, b = ([f"w{number}" for number in numbers] for numbers in pair)
    lengths = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i, j in product(range(len(a)), range(len(b))):
        longest = max(lengths[i, j + 1], lengths[i + 1, j])
        lengths[i + 1, j + 1] = lengths[i, j] + 1 if a[i] == b[j] else longest
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RARE", rare)
        bound = module._most_in_order(a, b)
        assert bound >= lengths[-1, -1]
        assert bound >= sum(block.size for block in SequenceMatcher(None, a, b).get_matching_blocks())
        patch.setattr(module, "RARE", 60 * 60)
        assert module._most_in_order(a, b) == lengths[-1, -1]


def test_books_with_one_licence_are_not_aligned_word_by_word(monkeypatch):
    def refused(*_):
        raise AssertionError("the blocks of two books take seconds")

    monkeypatch.setattr(module, "SequenceMatcher", refused)
    rng = random.Random(0)
    vocabulary = [f"w{i}" for i in range(3000)]
    often = [1 / (1 + i) for i in range(3000)]
    licence = passage(500, 300)
    books = [Document(text(licence, rng.choices(vocabulary, often, k=9000)), i % 2 == 0) for i in range(4)]
    assert len(near_duplicates([book.text for book in books])) >= 3
    assert contradictions(books) == []


@pytest.mark.slow
def test_published_benchmarks_have_no_copies_across_labels(benchmark_data):
    for name in ("wikimia_32", "wikimia_64", "wikimia_128", "wikimia_256", "arxiv_mia_dev"):
        assert contradictions(read_files([benchmark_data / f"{name}.jsonl"], labelled=True)) == []


def test_near_duplicates_of_the_texts_to_be_judged_are_counted_named_and_dropped():
    suspect = [Document(text(passage(i, 40)), origin_url=f"s:{i}") for i in range(8)]
    copies = [Document(f"{document.text} more", origin_url=f"k:{i}") for i, document in enumerate(suspect[:7])]
    others = [Document(text(passage(i, 40)), origin_url=f"k:{i}") for i in (20, 21)]
    mixed = [others[0], *copies, others[1]]
    five = "s:0 = k:0 (copy); s:1 = k:1 (copy); s:2 = k:2 (copy); s:3 = k:3 (copy); s:4 = k:4 (copy); and 2 more"
    with pytest.raises(UsageError) as refused:
        refuse_related(suspect, mixed)
    assert str(refused.value) == (
        f"known must hold other texts than those to be judged; 7 pairs are alike: {five}; "
        "leave such known texts out by --near-duplicates drop"
    )
    remark = f"7 known texts are near-duplicates of the data set and were left out: {five}"
    assert without_related(suspect, mixed) == (others, [remark])
    nothing = "0 known texts are near-duplicates of the data set and were left out"
    assert without_related(suspect, others) == (others, [nothing])
    refuse_related(suspect, others)


@pytest.mark.parametrize(("words", "copies"), [(3, 2), (40, 12)])
def test_every_copy_of_a_text_to_be_judged_is_dropped(words, copies):
    suspect = [Document(text(passage(0, words)))]
    other = Document(text(passage(1, 40)))
    kept, remarks = without_related(suspect, [*suspect * copies, other])
    assert kept == [other]
    assert remarks[0].startswith(f"{copies} known texts are near-duplicates")
    refuse_related(suspect, kept)


def test_what_links_anew_after_a_drop_is_dropped_as_well():
    """A passage of twelve texts links none. Where two of them leave as copies, it is of ten, and links these."""
    shared = passage(500, 25)
    suspect = [Document(text(shared, passage(i, 30)), origin_url=f"s:{i}") for i in range(3)]
    copies = [Document(document.text, origin_url=f"k:{i}") for i, document in enumerate(suspect[:2])]
    related = [Document(text(passage(i, 60), shared), origin_url=f"k:{i}") for i in range(10, 17)]
    free = [Document(text(passage(i, 60)), origin_url=f"k:{i}") for i in range(20, 23)]
    kept, (remark,) = without_related(suspect, [*copies, *related, *free])
    assert kept == free
    assert remark.startswith("9 known texts are near-duplicates of the data set and were left out")
    refuse_related(suspect, kept)


def test_what_contradicts_anew_after_a_drop_is_dropped_as_well():
    """Twelve texts that differ in every tenth word: only after a pair of copies has left do the others contradict."""
    shared = passage(500, 100)
    documents = []
    for i in range(11):
        own = iter(passage(i, 10))
        texts = [next(own) if at % 10 == 0 else word for at, word in enumerate(shared)]
        documents.append(Document(text(texts), i % 2 == 0))
    documents.append(replace(documents[0], member=False))
    assert contradictions(documents) == [(0, 11)]
    kept, count = drop_contradictions(documents)
    assert (kept, count) == ([], 12)
