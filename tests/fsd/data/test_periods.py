from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from fsd.data import embedded
from fsd.data.documents import Document
from fsd.data.periods import AFTER, UP_TO, check_parts, compared, has_both, kinds, parse_cutoff, with_periods
from fsd.errors import UsageError
from fsd.evaluation.audit import alone

CUTOFF = date(2023, 6, 30)
MEMBER = Document("a member", True, source="m.jsonl:1")
EARLY = Document("an early text", False, date(2023, 6, 30), source="n.jsonl:1")
LATE = Document("a late text", False, date(2023, 7, 1), source="n.jsonl:2")


def test_nonmembers_of_a_period_that_members_have_are_contemporaries():
    kind = kinds([1, 1, 0, 0, 0], ["2020", "2021", "2021", "2022", "2019"])
    assert kind.tolist() == ["member", "member", "contemporary", "later", "later"]
    assert has_both(kind)
    assert compared(kind).tolist() == [True, True, True, False, False]


def test_without_both_kinds_all_texts_are_compared():
    for periods in (["a", "a", "a"], ["a", "b", "b"]):
        kind = kinds([1, 0, 0], periods)
        assert not has_both(kind)
        assert compared(kind).all()


def test_periods_are_unknown_if_one_is_missing():
    kind = kinds([1, 0, 0], ["a", "a", ""])
    assert kind.tolist() == ["member", "non-member", "non-member"]
    assert compared(kind).all()


def test_a_cutoff_parts_nonmembers_by_their_dates_alone():
    dated = with_periods([MEMBER, EARLY, LATE], CUTOFF)
    assert [d.period for d in dated] == [UP_TO, UP_TO, AFTER]
    assert [replace(d, period="") for d in dated] == [MEMBER, EARLY, LATE]


def test_a_cutoff_completes_the_column():
    named = [MEMBER, replace(EARLY, period=UP_TO, date=None), LATE]
    assert [d.period for d in with_periods(named, CUTOFF)] == [UP_TO, UP_TO, AFTER]


def test_without_a_cutoff_periods_stay_as_they_are():
    assert with_periods([MEMBER, EARLY], None) == [MEMBER, EARLY]
    named = [replace(MEMBER, period="a"), replace(EARLY, period="b")]
    assert with_periods(named, None) == named


@pytest.mark.parametrize(
    ("documents", "cutoff", "message"),
    [
        (
            [replace(MEMBER, period="a"), EARLY, LATE],
            None,
            "every text must have a period if any has one; 2 of 3 have none, the first n.jsonl:1: fill in the column, "
            "or give --cutoff DATE",
        ),
        (
            [MEMBER, EARLY, replace(LATE, date=None)],
            CUTOFF,
            "every non-member must have a date or a period where a cutoff parts them; 1 of 3 texts have neither, "
            "the first n.jsonl:2",
        ),
        (
            [replace(MEMBER, date=date(2023, 7, 1)), EARLY],
            CUTOFF,
            "members must be dated on or before the cutoff, 2023-06-30; 1 of 1 are not, the first is of 2023-07-01: "
            "m.jsonl:1",
        ),
        (
            [replace(MEMBER, period="x"), replace(EARLY, period="x"), replace(LATE, period="x")],
            CUTOFF,
            "contemporaries (non-members of a period that members have) must be dated on or before the cutoff, "
            "2023-06-30; 1 of 2 are not, the first is of 2023-07-01: n.jsonl:2",
        ),
        (
            [replace(MEMBER, period="x"), replace(EARLY, period="y"), replace(LATE, period="y")],
            CUTOFF,
            "non-members of a period that no member has must be dated after the cutoff, 2023-06-30; 1 of 2 are not, "
            "the first is of 2023-06-30: n.jsonl:1",
        ),
    ],
)
def test_contradictions_are_refused(documents, cutoff, message):
    with pytest.raises(UsageError) as error:
        with_periods(documents, cutoff)
    assert message in str(error.value)


def test_a_cutoff_is_a_day():
    assert parse_cutoff("2023-06-30") == CUTOFF
    assert parse_cutoff(None) is None
    for text in ("", "2023", "yesterday", "2023-02-30"):
        with pytest.raises(UsageError, match=f"cutoff must be a day like 2023-02-24; got '{text}'"):
            parse_cutoff(text)


def test_both_parts_must_have_both_kinds():
    def part(*sizes):
        named = zip(("member", "early", "late"), (UP_TO, UP_TO, AFTER), sizes, strict=True)
        return [Document(f"{k} {i}", k == "member", period=p) for k, p, size in named for i in range(size)]

    check_parts(part(1, 1, 1), part(2, 2, 2))
    check_parts(None, part(2, 2, 2))
    with pytest.raises(UsageError, match=r"at least 2 families in the test part .* got 1 and 2: give more texts"):
        check_parts(part(1, 1, 1), part(2, 1, 2))
    with pytest.raises(UsageError, match=r"at least 1 family in the validation part .* got 1 and 0"):
        check_parts(part(1, 1, 0), part(2, 2, 2))
    related = [replace(d, group="one article") if not d.member and d.period == UP_TO else d for d in part(2, 2, 2)]
    with pytest.raises(UsageError, match=r"at least 2 families in the test part .* got 1 and 2"):
        check_parts(None, related)


def test_the_dates_of_the_embedded_corpus_do_not_tell_members_from_nonmembers():
    documents = list(embedded.corpus())
    member = np.array([bool(document.member) for document in documents])
    days = np.array([document.date.toordinal() for document in documents])

    reached = alone(days.tolist(), member.tolist()).auc
    assert reached.low < 0.5 < reached.high
    for side in (days[member], days[~member]):
        assert date.fromordinal(int(side.min())) < date(2023, 2, 1)
        assert date(2025, 6, 1) < date.fromordinal(int(side.max())) <= embedded.CUTOFF
    kind = kinds(member, [document.period for document in documents])
    assert set(kind) == {"member", "contemporary"}
