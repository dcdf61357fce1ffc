"""No accusation across sources: texts of another source score as high as can be, and none is called a member."""

import numpy as np
import pytest

from fsd.data import embedded
from fsd.data.documents import Document
from fsd.errors import UsageError
from fsd.evaluation.calibration import calibrate
from fsd.evaluation.domain_check import Reference, power
from fsd.evaluation.verdicts import ASSERTED, MEMBER, NO_VERDICT, NOT_SHOWN, OUT_OF_DOMAIN, TESTED, Judge, Rules

ABSTRACTS = [document.text for document in embedded.corpus() if not document.member]
ARTICLES = [" ".join(document.text.split()[:110]) for document in embedded.corpus("wikipedia")]
KNOWN, ASKED = 150, ABSTRACTS[150:]


def judge_of(known=KNOWN, collections=None, **changes):
    """A judge calibrated on abstracts that all score 0."""
    names = tuple(collections or ("",) * known)
    reference = Reference(tuple(ABSTRACTS[:known]), tuple(range(known)), names, {"novels": 1.0, **changes})
    labels = np.arange(known + 1) == known
    scores = {"loss": np.append(np.linspace(-1, 0, known), 1.0)}
    return Judge(calibrate(labels, scores, reference=reference, collections=[*names, names[0]]))


def classify(judge, texts, groups=None, score=9.0, collections=None, **rules):
    documents = [
        Document(
            text, None, group=str(at if groups is None else groups[at]), collection=(collections or {}).get(at, "")
        )
        for at, text in enumerate(texts)
    ]
    return judge.classify(documents, lambda at: {"loss": np.full(len(at), score)}, Rules(**rules))


@pytest.fixture(scope="module")
def judge():
    return judge_of()


@pytest.mark.parametrize(
    ("count", "groups"), [(60, 1), (60, 4), (4, 4), (1, 1), (60, 60)], ids=["book", "authors", "folder", "one", "many"]
)
@pytest.mark.parametrize("same_source", [False, True])
def test_texts_of_another_source_are_never_called(judge, count, groups, same_source):
    result = classify(judge, ARTICLES[:count], [n % groups for n in range(count)], same_source=same_source)
    called = (result.table["verdict"] == MEMBER).sum()
    assert called <= 0.1 * count
    if not same_source:
        assert called == 0
        assert result.table["p_value"].isna().all()
        assert not result.table["selected"].any()


def test_what_was_not_tested_has_not_passed(judge):
    result = classify(judge, ASKED[:3])
    assert set(result.table["verdict"]) <= {NO_VERDICT, OUT_OF_DOMAIN}
    inside = result.table[result.table["verdict"] == NO_VERDICT]
    assert inside["score"].notna().all()
    assert inside["rank"].notna().all()
    assert inside["p_value"].isna().all()
    assert "fewer than 5 independent texts" in inside["warning"].iloc[0]
    assert "--same-source" in inside["warning"].iloc[0]


def test_an_assertion_gives_verdicts_and_says_so(judge):
    result = classify(judge, ASKED[:3], same_source=True)
    inside = result.table[result.table["verdict"] != OUT_OF_DOMAIN]
    assert set(inside["verdict"]) == {MEMBER}
    assert set(inside["basis"]) == {ASSERTED}


def test_a_failed_test_goes_before_the_assertion(judge):
    result = classify(judge, [*ASKED[:20], *ARTICLES[:20]], same_source=True)
    assert result.bases[0].test.rejected
    assert MEMBER not in set(result.table["verdict"])
    assert "not exchangeable" in result.table["warning"][0]


def test_texts_of_the_kind_that_pass_the_tests_get_verdicts(judge):
    result = classify(judge, ASKED[:40], score=-0.5)
    inside = result.table[result.table["verdict"] != OUT_OF_DOMAIN]
    assert len(inside) >= 34
    assert set(inside["verdict"]) == {NOT_SHOWN}
    assert set(inside["basis"]) == {TESTED}


def test_passing_a_check_without_power_shows_nothing():
    result = classify(judge_of(novels=0.3), ASKED[:20])
    assert MEMBER not in set(result.table["verdict"])
    assert "was not shown to recognise texts of other kinds" in result.bases[0].reason
    assert power(Reference(tuple(ABSTRACTS[:60]), tuple(range(60)), ("",) * 60, {}))


def test_later_texts_do_not_count_as_another_kind():
    assert judge_of(**{"later texts": 0.0}).calibration.reference.powerful


def test_each_source_has_verdicts_of_its_own():
    judge = judge_of(collections=["physics"] * 100 + ["maths"] * 45 + ["few"] * 5)
    names = ["physics"] * 12 + ["maths"] * 12 + ["few", "novels", ""]
    table = classify(judge, ASKED[: len(names)], collections=dict(enumerate(names))).table
    why = [table["warning"][at] for at in (24, 25, 26)]
    assert why[0] == "source 'few' must have at least 10 groups of calibration non-members; it has 5"
    assert why[1].startswith("source 'novels' is unknown to the adapter, which was calibrated on few, maths, physics")
    assert why[2].startswith("a text without a source is unknown")
    assert set(table["verdict"][24:]) == {NO_VERDICT}
    assert table["score"].notna()[24:].all()
    assert MEMBER in set(table["verdict"][:12])


def test_sources_are_not_needed_where_the_calibration_names_none(judge):
    table = classify(judge, ASKED[:12], collections=dict.fromkeys(range(12), "novels")).table
    assert MEMBER in set(table["verdict"])


def test_a_rate_that_a_source_cannot_support_is_refused():
    judge = judge_of(collections=["physics"] * 138 + ["maths"] * 12)
    with pytest.raises(UsageError, match=r"fpr must be at least 0\.07692 = 1/\(12\+1\)"):
        classify(judge, ASKED[:12], collections=dict.fromkeys(range(12), "maths"))


def test_mixed_scripts(judge):
    texts = [*ASKED[:20], "Мы показали, что предложенные методы лучше известных. " * 12]
    table = classify(judge, texts).table
    assert table["verdict"].iloc[-1] == OUT_OF_DOMAIN
    assert "Cyrillic" in table["warning"].iloc[-1]


def test_a_text_that_is_left_out_says_nothing_about_the_others(judge):
    result = judge.classify(
        [Document(ASKED[0]), Document(ARTICLES[0])],
        lambda at: {"loss": np.zeros(len(at))},
        Rules(same_source=True),
        excluded=["", "trained on"],
    )
    assert result.table["warning"].tolist()[1] == "trained on"
    assert result.bases[0].test.groups == 1
