from collections import Counter
from dataclasses import replace
from datetime import date
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.study import ablations
from extensions.study.ablations import (
    add_unseen,
    balanced,
    counted,
    fine_tuning_set,
    hold_out_each,
    retime,
    take_unseen,
    truncate,
)
from fsd.data.corpus import Split
from fsd.data.documents import Document
from fsd.data.splitting import split
from fsd.errors import UsageError


def texts(*values):
    return [Document(value, origin_url=str(i)) for i, value in enumerate(values)]


def singles(members, others, prefix="a"):
    return [Document(f"{prefix}{i} b{i}", i < members, origin_url=f"{prefix}{i}") for i in range(members + others)]


def test_truncate_keeps_white_space_and_leaves_out_what_is_shorter():
    got = truncate(texts(" one  two\nthree - four", "one two three", "one two", ""), 3)
    assert [d.text for d in got] == ["one  two\nthree", "one two three"]
    assert [d.text for d in truncate(texts("a - b c"), 3)] == ["a - b"]  # as str.split counts


def test_truncate_counts_words_of_chinese_by_jieba():
    pytest.importorskip("jieba", exc_type=ImportError)
    kept = {"中国的首都": ["中国的"], "中国，首都北": ["中国，"], "GPU 中国的显卡": ["GPU "], "中国": []}
    assert {text: [d.text for d in truncate(texts(text), 2)] for text in kept} == kept


def test_truncate_counts_two_characters_of_another_script_without_spaces_as_a_word():
    kept = {"これはペンです": ["これはペ"], "東京は、日本": ["東京は、日"], "GPUはこれ": ["GPUはこ"], "これは": []}
    assert {text: [d.text for d in truncate(texts(text), 2)] for text in kept} == kept


@given(st.text(alphabet="ab \n-", max_size=40), st.integers(1, 6))
def test_truncate_is_str_split_where_there_are_spaces(text, size):
    got = truncate(texts(text), size)
    assert [d.text.split() for d in got] == ([text.split()[:size]] if len(text.split()) >= size else [])


def test_retime():
    documents = [Document("in 2014", date=date(2014, 1, 1)), Document("2014"), Document("never")]
    assert retime(documents, "keep") == tuple(documents)
    got = retime(documents, "delete")
    assert [d.text for d in got] == ["in", "never"]
    assert got[0].date == date(2014, 1, 1)
    assert [d.text for d in retime(documents, "replace")] == ["in 2023", "2023", "never"]


@pytest.mark.parametrize("scheme", ["grouped", "paper"])
def test_fine_tuning_sets_share_their_test_texts(scheme):
    documents = [replace(d, group=str(i % 30)) for i, d in enumerate(singles(60, 60))]
    non, mem, everything = (
        fine_tuning_set(documents, kind, scheme=scheme, seed=3)  # type: ignore[arg-type] # str, not Literal
        for kind in ("non", "mem", "all")
    )
    assert non.validation == mem.validation == everything.validation
    assert non.test == mem.test == everything.test
    sizes = [[sum(d.member is side for d in part) for side in (True, False)] for part in everything]
    assert scheme == "paper" or sizes == [[18, 18], [12, 12], [30, 30]]
    assert {d.member for d in non.unseen} == {False}
    assert {d.member for d in mem.unseen} == {True}
    assert Counter(everything.unseen) == Counter(non.unseen) + Counter(mem.unseen)
    placed = Counter((*everything.unseen, *everything.validation, *everything.test))
    assert placed == Counter(documents)  # every text once
    if scheme == "grouped":
        groups = [{d.group for d in part} for part in everything]
        assert not groups[0] & (groups[1] | groups[2])


def test_the_papers_own_split_is_the_set_of_non_members():
    documents = singles(50, 50)
    assert fine_tuning_set(documents, "non", scheme="paper", seed=7) == split(documents, scheme="paper", seed=7)
    mem = fine_tuning_set(documents, "mem", scheme="paper", seed=7).unseen
    assert not set(mem) & {d for part in split(documents, scheme="paper", seed=7) for d in part}


PARTS = Split(tuple(singles(0, 10)), (), tuple(singles(2, 2, "t")))


def test_unseen_texts_of_another_domain_join_or_replace_the_own_ones():
    foreign = [replace(d, member=None) for d in singles(0, 12, "f")]
    for own, names in ((True, "a" * 10 + "f" * 12), (False, "f" * 12)):
        got = add_unseen(PARTS, foreign, with_own=own)
        assert "".join(d.origin_url[0] for d in got.unseen) == names
        assert (got.validation, got.test) == (PARTS.validation, PARTS.test)
        assert all(d.member is False for d in got.unseen)


def test_no_text_of_a_tested_family_is_trained_on():
    related = Document("t1 b1", False)
    foreign = [*singles(0, 5, "f"), related]
    assert [d.text for d in add_unseen(PARTS, foreign, with_own=False).unseen] == [d.text for d in foreign[:5]]
    with pytest.raises(UsageError, match="none of 1 is left"):
        add_unseen(PARTS, [related], with_own=True)


def test_take_unseen_is_nested():
    kept = [set(take_unseen(PARTS, n).unseen) for n in range(11)]
    assert [len(k) for k in kept] == list(range(11))
    assert all(fewer < more for fewer, more in pairwise(kept))
    assert take_unseen(PARTS, 10) == PARTS
    assert take_unseen(PARTS, 0).test == PARTS.test
    some = [int(d.origin_url[1:]) for d in take_unseen(PARTS, 6, seed=1).unseen]
    assert some == sorted(some)


@pytest.mark.parametrize("scheme", ["grouped", "paper"])
def test_a_number_of_unseen_texts_and_as_many_members_as_others_tested(scheme):
    documents = singles(80, 60)
    for unseen, tested in ((1, 10), (20, 40), (25, 30)):
        parts = counted(documents, unseen=unseen, tested=tested, scheme=scheme, seed=3)
        assert [len(part) for part in parts] == [unseen, 0, 2 * tested]
        assert parts.test.members.sum() == tested
        assert not parts.unseen.members.any()
        assert not set(parts.unseen) & set(parts.test)
    other = counted(documents, unseen=20, tested=40, scheme=scheme, seed=4)
    assert set(other.unseen) != set(counted(documents, unseen=20, tested=40, scheme=scheme, seed=3).unseen)


def test_families_stay_whole_but_under_the_papers_split():
    documents = [replace(d, group=str(i // 3)) for i, d in enumerate(singles(60, 60))]
    parts = counted(documents, unseen=20, tested=1000)
    assert not {d.group for d in parts.unseen} & {d.group for d in parts.test}
    assert (len(parts.unseen), len(parts.test)) == (20, 2 * 39)  # 21 in whole families, one of which is dropped
    by_row = counted(documents, unseen=20, tested=40, scheme="paper")
    assert {d.group for d in by_row.unseen} & {d.group for d in by_row.test}


def test_texts_of_each_class_are_held_out_of_the_tested_ones():
    parts = split(singles(60, 60), scheme="paper")
    held = hold_out_each(parts, 10)
    assert (len(held.validation), held.validation.members.sum()) == (20, 10)
    assert Counter((*held.validation, *held.test)) == Counter(parts.test)
    assert held.unseen == parts.unseen
    assert len(balanced(parts, 5).test) == 10


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: counted(singles(9, 9), unseen=9, tested=1), "more than 9 non-members to fine-tune on, .*; got 9"),
        (
            lambda: counted(singles(9, 9), unseen=4, tested=6, scheme="paper"),
            "must leave 6 members and 6 non-members to test on beside 4 unseen texts; got 9 and 5",
        ),
        (lambda: hold_out_each(PARTS, 2), "more than 2 texts of each class to hold out; got 2"),
        (lambda: fine_tuning_set(singles(1, 30), "mem", scheme="paper", share=0.1), "holds no mem text"),
        (lambda: take_unseen(PARTS, 11), "from 0 to 10; got 11"),
    ],
)
def test_mistakes(call, said):
    assert callable(call)
    with pytest.raises(UsageError, match=said):
        call()


@pytest.mark.parametrize(
    ("text", "deleted", "replaced"),
    [
        ("Born on 5 July 2014, he", "Born on, he", "Born on 5 July 2023, he"),
        ("2014 was (2014 film) in 2014.", "was (film) in.", "2023 was (2023 film) in 2023."),
        ("July 5th, 2014; Jul 2014", ";", "July 5th, 2023; Jul 2023"),
        ("14 June. Jun. 14.", "..", "14 June. Jun. 14."),
        ("5th of July, July 5", ",", "5th of July, July 5"),
        ("2014-15 and 2014–2016 x", "and x", "2023 and 2023 x"),
        ("the 1990s, 1980's", "the,", "the 2020s, 2020's"),
        ("at 2014-07-05T12:00:00Z x", "at x", "at 2023-07-05T12:00:00Z x"),
        ("05.07.2014, 2014/7/5", ",", "05.07.2023, 2023/7/5"),
        ("于2014年7月5日在北京", "于在北京", "于2023年7月5日在北京"),
        ("二〇一四年，2014年7月", "，", "二〇二三年，2023年7月"),
        ("２０１４年；7月5号", "；", "2023年；7月5号"),
        ("90年代和2010年代", "和", "20年代和2020年代"),
        ("in 2014 2015 x", "in x", "in 2023 2023 x"),
        ("2023's record, 2014’s x", "record, x", "2023's record, 2023’s x"),
        ("September 23 – 30, 2022, x", ", x", "September 23 – 30, 2023, x"),
        ("on 3–5 June 2023.", "on.", "on 3–5 June 2023."),
        ("from 20 to 27 November 2022.", "from.", "from 20 to 27 November 2023."),
        ("September 23 to October 2, 2022; x", "; x", "September 23 to October 2, 2023; x"),
        ("23 September - 2 October 2022; x", "; x", "23 September - 2 October 2023; x"),
        ("June–July 2022, 3 and 4 May, May 3-4 x", ",, x", "June–July 2023, 3 and 4 May, May 3-4 x"),
        ("on March 5 to 10 people", "on to 10 people", "on March 5 to 10 people"),
        ("the 2010's and 1980’s", "the and", "the 2020's and 2020’s"),
        ("line\n2014\nline", "line\n\nline", "line\n2023\nline"),
    ],
)
def test_dates_by_hand(text, deleted, replaced):
    assert ablations.delete_dates(text) == deleted
    assert ablations.replace_years(text) == replaced


@pytest.mark.parametrize(
    "text",
    ["12014", "2,014", "0.2014", "2014.5", "$2014", "2014%", "COVID2019", "20145", "1492", "2100", "may 5", "Mayor 3",
     "a 5 marching band", "x2014y", "120年代", ""],
)  # fmt: skip
def test_other_numbers_are_not_changed(text):
    assert ablations.delete_dates(text) == text
    assert ablations.replace_years(text) == text
