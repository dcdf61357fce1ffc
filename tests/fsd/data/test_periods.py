from dataclasses import replace
from datetime import date

import pytest

from fsd.data.documents import Document
from fsd.data.splitting import AFTER, UP_TO, compared, has_both, kinds, parse_cutoff, with_periods
from fsd.errors import UsageError

CUTOFF = date(2023, 6, 30)
MEMBER = Document("a member", True, source="m.jsonl:1")
EARLY = Document("an early text", False, date(2023, 6, 30), source="n.jsonl:1")
LATE = Document("a late text", False, date(2023, 7, 1), source="n.jsonl:2")


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
    for text in ("", "2023"):
        with pytest.raises(UsageError, match=f"cutoff must be a day like 2023-02-24; got '{text}'"):
            parse_cutoff(text)
