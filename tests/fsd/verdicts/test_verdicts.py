"""No accusation across sources: texts of another source score as high as can be, and none is called a member."""

from dataclasses import replace

import numpy as np
import pytest

from fsd.data import embedded
from fsd.data.documents import Document
from fsd.errors import UsageError
from fsd.scores import Score
from fsd.verdicts.calibration import calibrate
from fsd.verdicts.domain_check import Earlier, OwnText, Reference
from fsd.verdicts.verdicts import (
    ASSERTED,
    LEARNED,
    MEMBER,
    NO_VERDICT,
    NOT_SHOWN,
    OUT_OF_DOMAIN,
    TESTED,
    Rules,
    VerdictMaker,
)

LOSS = Score("loss")
ABSTRACTS = [document.text for document in embedded.corpus() if not document.member]
ARTICLES = [" ".join(document.text.split()[:110]) for document in embedded.corpus("wikipedia")]
RUSSIAN = "Мы показали, что предложенные методы лучше известных. " * 12
KNOWN, ASKED = 150, ABSTRACTS[150:]


def judge_of(known=KNOWN, sources=None, own=(), **changes):
    """A judge calibrated on abstracts that all score 0."""
    names = tuple(sources or ("",) * known)
    reference = Reference(tuple(ABSTRACTS[:known]), tuple(range(known)), names, {"novels": 1.0, **changes}, written=own)
    labels = np.arange(known + 1) == known
    scores = {LOSS: np.append(np.linspace(-1, 0, known), 1.0)}
    return VerdictMaker(calibrate(labels, scores, reference=reference, sources=[*names, names[0]]))


def classify(judge, texts, groups=None, score=9.0, sources=(), excluded=None, **rules):
    groups, sources = groups or range(len(texts)), sources or [""] * len(texts)
    documents = [
        Document(text, None, group=str(group), source=source)
        for text, group, source in zip(texts, groups, sources, strict=True)
    ]
    return judge.classify(documents, lambda at: {LOSS: np.full(len(at), score)}, Rules(**rules), excluded=excluded)


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


def test_the_tests_see_the_context_that_the_model_reads(judge):
    """The texts are of the kind, what stands before them is not: the scores are of both."""
    own = [Document(text, group=str(row)) for row, text in enumerate(ABSTRACTS[150:190])]
    foreign = [replace(document, context=article) for document, article in zip(own, ARTICLES, strict=False)]
    shares = []
    for documents in (own, foreign):
        reasons = judge.outside(documents, list(range(len(documents))))
        shares.append(np.mean([reason != "" for reason in reasons]))
        table = judge.classify(documents, lambda at: {LOSS: np.full(len(at), 9.0)}, Rules()).table
    assert shares[0] < 0.2
    assert shares[1] > 0.9
    assert MEMBER not in set(table["verdict"])


def test_each_text_is_read_once_in_a_request_and_a_server_keeps_none_of_earlier_ones():
    """What is read of the benchmark stays: it is compared with the texts of each request."""
    states, probable = [], []

    def reader(read):
        def values(texts):
            read.extend(texts)
            return np.array([[len(text), text.count("e"), text.count("a")] for text in texts], dtype=float)

        return values

    calibration = judge_of(40).calibration
    earlier = Earlier(typicality=tuple(map(tuple, reader([])(ABSTRACTS[:40]))))
    calibration = replace(calibration, reference=replace(calibration.reference, earlier=earlier))
    maker = VerdictMaker(calibration, reader(states), reader(probable))
    asked = []
    for request in (ASKED[:20], ASKED[20:25], ASKED[:20]):
        classify(maker, request)
        asked += request
    assert sorted(probable) == sorted(asked)
    assert sorted(states) == sorted(ABSTRACTS[:40] + asked)


def test_what_was_not_tested_has_not_passed_unless_it_is_asserted(judge):
    result = classify(judge, ASKED[:3])
    assert set(result.table["verdict"]) <= {NO_VERDICT, OUT_OF_DOMAIN}
    inside = result.table[result.table["verdict"] == NO_VERDICT]
    assert inside[["score", "rank"]].notna().all(axis=None)
    assert inside["p_value"].isna().all()
    assert "fewer than 5 independent texts" in inside["warning"].iloc[0]
    assert "--same-source" in inside["warning"].iloc[0]
    asserted = classify(judge, ASKED[:3], same_source=True).table.loc[inside.index]
    assert set(asserted["verdict"]) == {MEMBER}
    assert set(asserted["basis"]) == {ASSERTED}


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
    assert result.calls() == (0, len(inside))
    table = classify(judge, [*ASKED[:20], RUSSIAN]).table
    assert table["verdict"].iloc[-1] == OUT_OF_DOMAIN
    assert "Cyrillic" in table["warning"].iloc[-1]


def test_passing_a_check_without_power_shows_nothing():
    result = classify(judge_of(novels=0.3), ASKED[:20])
    assert MEMBER not in set(result.table["verdict"])
    assert "was not shown to recognise texts of other kinds" in result.bases[0].reason
    assert judge_of(**{"later texts": 0.0}).calibration.reference.powerful  # they may be like the others


def test_each_source_has_verdicts_of_its_own(judge):
    several = judge_of(sources=["physics"] * 100 + ["maths"] * 45 + ["few"] * 5)
    names = ["physics"] * 12 + ["maths"] * 12 + ["few", "novels", ""]
    table = classify(several, ASKED[: len(names)], sources=names).table
    why = [table["warning"][at] for at in (24, 25, 26)]
    assert why[0] == "source 'few' must have at least 10 groups of calibration non-members; it has 5"
    assert why[1].startswith("source 'novels' is unknown to the adapter, which was calibrated on few, maths, physics")
    assert why[2].startswith("a text without a source is unknown")
    assert set(table["verdict"][24:]) == {NO_VERDICT}
    assert table["score"].notna()[24:].all()
    assert MEMBER in set(table["verdict"][:12])
    with pytest.raises(UsageError, match=r"fpr must be at least 0\.02174 = 1/\(45\+1\), .* of 'maths', and"):
        classify(several, ASKED[:12], sources=["maths"] * 12, fpr=0.01)
    # sources are not needed where the calibration names none
    assert MEMBER in set(classify(judge, ASKED[:12], sources=["novels"] * 12).table["verdict"])


def test_a_text_that_is_left_out_says_nothing_about_the_others(judge):
    result = classify(judge, [ASKED[0], ARTICLES[0]], same_source=True, excluded=["", "trained on"])
    assert result.table["warning"].tolist()[1] == "trained on"
    assert result.bases[0].test.groups == 1


def test_a_text_that_the_adapter_was_trained_on_has_a_verdict_of_its_own(judge):
    result = classify(judge, [*ASKED[:6], ARTICLES[0]], excluded=["trained on", *[""] * 6])
    assert result.table["verdict"].iloc[0] == LEARNED
    assert result.table["verdict"].iloc[-1] == OUT_OF_DOMAIN
    assert result.table["score"].isna().iloc[0]


def test_a_score_that_texts_of_the_model_itself_reach_shows_no_membership():
    """Three of 19 such texts score 5 and more; a text beyond all of them is called as before."""
    own = [OwnText("", "plain", inside=False)] * 16 + [OwnText("", "plain", True, score=5.0)] * 3
    known = judge_of(own=tuple(own))
    for score, verdict, p_value in ((4.0, NOT_SHOWN, 4 / 20), (6.0, MEMBER, 1 / 151)):
        table = classify(known, ASKED[:10], score=score).table
        judged = table[table["p_value"].notna()]
        assert set(judged["verdict"]) == {verdict}
        assert judged["p_value"].to_numpy() == pytest.approx(p_value)


def test_ten_families_of_a_source_are_enough_and_nine_are_not():
    several = judge_of(sources=["physics"] * 131 + ["ten"] * 10 + ["nine"] * 9)
    table = classify(several, ASKED[:12], sources=["ten"] * 6 + ["nine"] * 6, fpr=0.1, same_source=True).table
    judged = table["p_value"].notna()
    assert judged[:6].any()
    assert not judged[6:].any()
    assert set(table["warning"][6:]) == {
        "source 'nine' must have at least 10 groups of calibration non-members; it has 9"
    }


def test_a_text_at_exactly_the_rate_is_called():
    """A text that two of 99 non-members reach has the p-value 3 / 100."""
    known = judge_of(99)
    scores = np.sort(known.calibration.test.scores)
    for rate, verdict in ((0.03, MEMBER), (0.0299, NOT_SHOWN)):
        table = classify(known, ASKED[:10], score=scores[-2], fpr=rate, same_source=True).table
        judged = table[table["p_value"].notna()]
        assert judged["p_value"].to_numpy() == pytest.approx(0.03)
        assert set(judged["verdict"]) == {verdict}


def test_what_refuses_all_texts_goes_before_the_assertion(judge):
    refusing = VerdictMaker(judge.calibration, refusal="the benchmark shows nothing")
    table = classify(refusing, ASKED[:10], same_source=True).table
    assert set(table["verdict"]) == {NO_VERDICT}
    assert set(table["warning"]) == {"the benchmark shows nothing"}
    assert table["score"].notna().all()
    assert table["p_value"].isna().all()
