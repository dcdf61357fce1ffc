import hashlib
import json
import random
from collections import Counter
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsd.data.documents import Document
from fsd.data.periods import AFTER, UP_TO, compared, has_both, kinds, parse_cutoff, with_periods
from fsd.data.splitting import split, split_labelled, split_with
from fsd.errors import UsageError


def singles(members, nonmembers):
    return [Document(f"a{i} b{i}", i < members, origin_url=str(i)) for i in range(members + nonmembers)]


def classes(part):
    members = sum(d.member is True for d in part)
    return members, len(part) - members


def test_grouped_sizes_by_hand():
    # 30 % of 100 non-members; then 2/7 of 100 members and of 70 non-members
    assert [classes(part) for part in split(singles(100, 100))] == [(0, 30), (29, 20), (71, 50)]
    assert [len(part) for part in split(singles(20, 20), validation=0)] == [6, 0, 34]


def test_paper_sizes_by_hand():
    parts = split(singles(100, 100), scheme="paper")
    members, nonmembers = classes(parts.test)
    assert len(parts.test) == 140
    assert not parts.validation
    assert classes(parts.unseen) == (0, 100 - nonmembers)
    assert 60 - len(parts.unseen) == 100 - members  # the members among the 30 % are dropped
    parts = split(singles(100, 100), scheme="paper", validation=0.2)
    assert (len(parts.validation), len(parts.test)) == (40, 100)


@st.composite
def benchmarks(draw):
    labels = draw(st.lists(st.booleans(), min_size=20, max_size=60))
    groups = draw(st.lists(st.sampled_from(["", *"abcdefgh"]), min_size=len(labels), max_size=len(labels)))
    return [
        Document(f"a{i} b{i}", m, group=g, origin_url=str(i))
        for i, (m, g) in enumerate(zip(labels, groups, strict=True))
    ]


@settings(max_examples=100)
@given(benchmarks(), st.sampled_from([0.1, 0.3, 0.5]), st.sampled_from([None, 0.0, 0.1, 0.4]), st.integers(0, 9))
def test_every_document_once_in_order_and_no_group_in_two_parts(documents, unseen, validation, seed):
    try:
        parts = split(documents, unseen=unseen, validation=validation, seed=seed)
    except UsageError:  # too few texts of a label
        return
    numbers = [[int(d.origin_url) for d in part] for part in parts]
    assert numbers == [sorted(part) for part in numbers]
    assert sorted(number for part in numbers for number in part) == list(range(len(documents)))
    homes = {(d.group, k) for k, part in enumerate(parts) for d in part if d.group}
    assert len(homes) == len({group for group, _ in homes})
    assert parts.unseen
    assert not any(d.member for d in parts.unseen)
    assert parts == split(documents, unseen=unseen, validation=validation, seed=seed)


@settings(max_examples=60)
@given(st.integers(20, 80), st.integers(30, 120), st.integers(1, 4), st.integers(0, 9))
def test_class_mix_of_validation_and_test_is_equal(members, nonmembers, size, seed):
    documents = [replace(d, group=f"{d.member}{int(d.origin_url) // size}") for d in singles(members, nonmembers)]
    parts = split(documents, seed=seed)
    rest = len(parts.validation) + len(parts.test)
    assert abs(len(parts.unseen) - 0.3 * nonmembers) <= size / 2
    assert abs(len(parts.validation) - rest * 2 / 7) <= size
    for k in (0, 1):
        whole = classes(parts.validation)[k] + classes(parts.test)[k]
        assert abs(classes(parts.validation)[k] - len(parts.validation) / rest * whole) <= size


def leaked(parts):
    articles = [{" ".join(d.text.lower().split()[:12]) for d in part} for part in parts]
    return sum(n > 1 for n in Counter(a for part in articles for a in part).values())


def test_no_wikimia_article_is_in_two_parts_but_under_the_papers_split(benchmark_data):
    files = [benchmark_data / f"wikimia_{length}.jsonl" for length in (32, 64, 128, 256)]
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    wikimia = [Document(row["input"], row["label"] == 1) for row in rows]
    parts = split(wikimia)
    assert len(wikimia) == sum(map(len, parts)) == 1650
    assert leaked(parts) == 0
    mix = [members / (members + others) for members, others in map(classes, [parts.validation, parts.test])]
    assert mix[0] == pytest.approx(mix[1], abs=0.01)
    assert leaked(split(wikimia, scheme="paper")) > 100


def test_the_papers_split_of_wikimia_is_that_of_its_released_code_length_by_length(benchmark_data):
    """FSD, Table 7: 231 non-members trained on, 599 + 558 tested, so that 262 members are dropped."""
    documents = []
    for length in (32, 64, 128, 256):
        lines = (benchmark_data / f"wikimia_{length}.jsonl").read_text(encoding="utf-8").splitlines()
        for number, row in enumerate(map(json.loads, lines), 1):
            source = f"swj0419/WikiMIA/WikiMIA_length{length}:{number}"
            documents.append(Document(row["input"], row["label"] == 1, origin_url=source))
    parts = split(documents, scheme="paper")
    assert (classes(parts.unseen), classes(parts.test)) == ((0, 231), (599, 558))
    tested = Counter(document.origin_url.partition("length")[2].partition(":")[0] for document in parts.test)
    assert tested == {"32": 544, "64": 380, "128": 175, "256": 58}


def test_the_papers_split_draws_the_rows_of_each_table_alone():
    documents = [replace(d, origin_url=f"a.jsonl:{i}") for i, d in enumerate(singles(10, 10))]
    documents += [replace(d, text=f"b {d.text}", origin_url=f"b.jsonl:{i}") for i, d in enumerate(singles(9, 10))]
    parts = split(documents, scheme="paper")
    assert Counter(document.origin_url[0] for document in parts.test) == {"a": 14, "b": 14}  # 30 % of 19 are 5
    alone = split(documents[:20], scheme="paper")
    assert set(alone.test) == {document for document in parts.test if document.origin_url.startswith("a")}


def test_split_with_given_unseen_texts_by_hand():
    benchmark = singles(20, 10)
    given = [Document("x1 y1"), Document("x2 y2", False, origin_url="new")]
    parts, left_out = split_with(given, benchmark)
    assert parts.unseen == tuple(replace(d, member=False) for d in given)
    assert [classes(part) for part in [parts.validation, parts.test]] == [(4, 2), (16, 8)]
    assert left_out == ()
    assert set(parts.validation) | set(parts.test) == set(benchmark)
    whole, _ = split_with(given, benchmark, validation=0)
    assert (whole.validation, whole.test) == ((), tuple(benchmark))


def test_split_with_leaves_out_the_families_of_unseen_texts():
    benchmark = [replace(d, group=str(i // 3)) for i, d in enumerate(singles(15, 15))]
    given = [Document("new text", group="2"), Document("a29  B29!")]  # a group, and a copy but for marks and case
    parts, left_out = split_with(given, benchmark)
    assert left_out == tuple(benchmark[6:9] + benchmark[27:30])
    assert len(parts.validation) + len(parts.test) == 24
    assert not {d.group for d in parts.validation} & {d.group for d in parts.test}


def test_members_too_are_reserved_in_whole_groups_and_change_no_other_part_under_paper():
    documents = [replace(d, member=i % 3 == 0, group=str(i // 5)) for i, d in enumerate(singles(30, 30))]
    for seed in range(5):
        parts = split(documents, unseen=0.25, validation=0.25, seed=seed, members_too=True)
        assert sum(len({d.group for d in part}) for part in parts) == 12
        assert all(parts)
    reserved, usual = (split(singles(50, 50), scheme="paper", seed=5, members_too=members) for members in (True, False))
    assert (reserved.validation, reserved.test) == (usual.validation, usual.test)
    assert tuple(d for d in reserved.unseen if not d.member) == usual.unseen
    assert len(reserved.unseen) == 30


def three_kinds(members, contemporaries, later):
    sides = [(True, "then")] * members + [(False, "then")] * contemporaries + [(False, "now")] * later
    return [Document(f"a{i} b{i}", m, group="", origin_url=str(i), period=p) for i, (m, p) in enumerate(sides)]


def of_kinds(part):
    counts = Counter((d.member, d.period) for d in part)
    return counts[True, "then"], counts[False, "then"], counts[False, "now"]


def test_unseen_texts_are_later_ones_where_there_are_contemporaries():
    # 30 % of 100 later texts; then 2/7 of 100 members, 60 contemporaries and 70 later texts
    parts = split(three_kinds(100, 60, 100))
    assert [of_kinds(part) for part in parts] == [(0, 0, 30), (29, 17, 20), (71, 43, 50)]
    assert [of_kinds(part) for part in parts.without_later()] == [(0, 0, 30), (29, 17, 0), (71, 43, 0)]
    parts = split(three_kinds(100, 60, 100), scheme="paper")
    assert of_kinds(parts.unseen)[:2] == (0, 0)
    assert len(parts.test) == 182
    few = split(three_kinds(100, 300, 20))  # fewer than 30 % of all non-members
    assert [of_kinds(part)[2] for part in few] == [6, 4, 10]
    parts, _ = split_with([Document(f"z{i} y{i}") for i in range(5)], three_kinds(100, 60, 100))
    assert [of_kinds(part) for part in [parts.validation, parts.test]] == [(20, 12, 20), (80, 48, 80)]
    for plain in (split(three_kinds(100, 0, 60)), split(three_kinds(100, 60, 0)), split(singles(50, 50))):
        assert plain.without_later() == plain


def test_a_family_with_a_member_or_a_contemporary_is_never_trained_on():
    documents = [replace(d, group=str(int(d.origin_url) % 10)) for d in three_kinds(10, 30, 0)]
    documents += [replace(d, text=f"later {d.origin_url}", group=d.origin_url) for d in three_kinds(0, 0, 60)]
    for seed in range(10):
        assert all(int(d.group) >= 10 for d in split(documents, seed=seed).unseen)
        assert all(int(d.group) >= 10 for d in split([replace(d, period="") for d in documents], seed=seed).unseen)


def test_without_both_contemporaries_and_later_texts_the_split_is_that_of_earlier_releases():
    def identity(parts):
        return hashlib.sha256(" | ".join(" ".join(d.origin_url for d in part) for part in parts).encode()).hexdigest()[
            :16
        ]

    for periods in ({}, {True: "a", False: "a"}, {True: "a", False: "b"}):
        rng, documents = random.Random(7), []
        for i in range(200):
            member, group = rng.random() < 0.4, rng.choice(["", "", *"abcdefgh"])
            documents.append(
                Document(f"a{i} b{i}", member, group=group, origin_url=str(i), period=periods.get(member, ""))
            )
        given = [Document(f"z{i} y{i}") for i in range(5)]
        assert identity(split(documents)) == "becdd441159a197c"
        assert identity(split(documents, seed=3, unseen=0.2, validation=0.4)) == "3a65cca0285c86e6"
        assert identity(split(documents, scheme="paper", validation=0.2)) == "ef6a4cc235ac92b3"
        assert identity(split(documents, members_too=True)) == "d8533eafb40cfcfc"
        assert identity(split_with(given, documents)[0]) == "9e02dff6642a15cb"
        assert identity(split_labelled(documents, validation=0.3)) == "7f313d3883ab6d5d"


def test_bad_input():
    unlabelled, one_group = [Document("x"), Document("y")], [replace(d, group="one") for d in singles(9, 9)]
    with_one = [*singles(0, 9), Document("m n", True)]
    for call, says in (
        (lambda: split(singles(9, 0)), "9 members and 0 non-members"),
        (lambda: split([*singles(9, 9), *unlabelled]), "2 of 20 are not"),
        (lambda: split(singles(9, 9), unseen=float("nan")), "unseen must be a share .* got nan"),
        (lambda: split(singles(9, 9), scheme="random"), "grouped or paper; got 'random'"),
        (lambda: split(singles(9, 2)), "too few families .* 1 members|too few families .* 0 non-members"),
        (lambda: split(one_group), "left to train on.* none to take"),
        (lambda: split(singles(9, 1), scheme="paper", seed=0), "non-members"),
        (lambda: split(three_kinds(100, 1, 100)), "at least 2 families in the test part .*; got 1 and 50"),
        (lambda: split(three_kinds(100, 60, 1)), "some non-members must be left to train on"),
        (lambda: split(three_kinds(100, 60, 3)), "at least 2 families in the test part .*; got 43 and 1"),
        (lambda: split_with([], singles(9, 9)), "at least one unseen text must be given; got none"),
        # An adapter was trained on a text that the data call a member: no file says so by itself.
        (
            lambda: split_with([replace(singles(1, 0)[0], member=False)], singles(9, 9)),
            "unseen texts must be non-members; 1 are members",
        ),
        (lambda: split_with(singles(0, 9), with_one), "too few families"),
    ):
        with pytest.raises(UsageError, match=says) as error:
            call()
        assert "\n" not in str(error.value)


# Periods

CUTOFF = date(2023, 6, 30)
MEMBER = Document("a member", True, origin_url="m.jsonl:1")
EARLY = Document("an early text", False, date(2023, 6, 30), origin_url="n.jsonl:1")
LATE = Document("a late text", False, date(2023, 7, 1), origin_url="n.jsonl:2")


def test_nonmembers_of_a_period_that_members_have_are_contemporaries():
    kind = kinds([1, 1, 0, 0, 0], ["2020", "2021", "2021", "2022", "2019"])
    assert kind.tolist() == ["member", "member", "contemporary", "later", "later"]
    assert has_both(kind)
    assert compared(kind).tolist() == [True, True, True, False, False]


def test_without_both_kinds_or_with_a_missing_period_all_texts_are_compared():
    for periods in (["a", "a", "a"], ["a", "b", "b"], ["a", "a", ""]):
        kind = kinds([1, 0, 0], periods)
        assert not has_both(kind)
        assert compared(kind).all()
    assert kind.tolist() == ["member", "non-member", "non-member"]


def test_a_cutoff_parts_nonmembers_by_their_dates_alone():
    dated = with_periods([MEMBER, EARLY, LATE], CUTOFF)
    assert [d.period for d in dated] == [UP_TO, UP_TO, AFTER]
    assert [replace(d, period="") for d in dated] == [MEMBER, EARLY, LATE]


def test_a_cutoff_completes_the_column_which_stays_without_one():
    named = [MEMBER, replace(EARLY, period=UP_TO, date=None), LATE]
    assert [d.period for d in with_periods(named, CUTOFF)] == [UP_TO, UP_TO, AFTER]
    for documents in ([MEMBER, EARLY], [replace(MEMBER, period="a"), replace(EARLY, period="b")]):
        assert with_periods(documents, None) == documents


def test_a_text_without_period_and_date_or_with_one_that_contradicts_the_cutoff_is_refused():
    for documents, cutoff, message in (
        ([replace(MEMBER, period="a"), EARLY, LATE], None, "2 of 3 have none, the first n.jsonl:1: fill in the column"),
        ([MEMBER, EARLY, replace(LATE, date=None)], CUTOFF, "1 of 3 texts have neither, the first n.jsonl:2"),
        (
            [replace(MEMBER, period="x"), replace(EARLY, period="y"), replace(LATE, period="y")],
            CUTOFF,
            "must be dated after the cutoff, 2023-06-30; 1 of 2 are not, the first is of 2023-06-30: n.jsonl:1",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            with_periods(documents, cutoff)


def test_a_cutoff_is_a_day():
    assert parse_cutoff("2023-06-30") == CUTOFF
    assert parse_cutoff(None) is None
