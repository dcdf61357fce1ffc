from dataclasses import replace

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf

from fsd.data import embedded
from fsd.evaluation.domain_check import LEVEL, DomainCheck, Reference, mahalanobis, other_kinds, power, script

FRENCH = (
    "Nous avons montré que les méthodes proposées sont plus efficaces que celles qui existent dans la littérature "
    "et que les résultats obtenus sur plusieurs jeux de données confirment notre hypothèse de départ. "
)
NOVEL = (
    "The magistrate folded his newspaper, sighed, and beckoned the trembling bailiff nearer. Somebody had stolen "
    "Lady Ashcombe's emerald brooch during the masquerade; footmen whispered, the butler perspired, and the dowager "
    "fainted twice upon the ottoman. Outside, hansoms clattered past the gaslit embankment while constables "
    "interrogated beggars. Inspector Wren, chewing an unlit cheroot, inspected muddy boots beside the conservatory "
    "and grinned. Burglars, he announced, seldom wear dancing slippers. Every guest glared toward the violinist, "
    "whose patent pumps, alas, glistened with dew and crushed gardenia petals."
)
ABSTRACTS = [document.text for document in embedded.corpus()]


def repeated(*counts):
    return [" ".join(["word"] * count) for count in counts]


@pytest.fixture(scope="module")
def abstracts():
    return DomainCheck(ABSTRACTS[:100])


def test_script_of_most_letters():
    texts = {"abc": "Latin", "Привет abc": "Cyrillic", "他在家": "Chinese", "カナかな家族": "Kana", "123": "no known"}
    assert {text: script(text) for text in texts} == texts


def test_the_level_on_held_out_texts_of_the_same_kind():
    alarms = []
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(len(ABSTRACTS))
        texts = [ABSTRACTS[i] for i in order]
        check = DomainCheck(texts[:200], others=[text for found in other_kinds(texts).values() for text in found])
        alarms += [bool(reason) for reason in check.outside(texts[200:])]
    assert np.mean(alarms) <= LEVEL + 0.02


def test_articles_are_not_like_abstracts_though_they_have_their_length():
    articles = [" ".join(document.text.split()[:60]) for document in embedded.corpus("wikipedia")][:100]
    reference = Reference(tuple(ABSTRACTS[:200]), tuple(range(200)), ("",) * 200, {})
    assert np.mean([bool(reason) for reason in reference.check("").outside(articles)]) > 0.9
    assert replace(reference, power=power(reference)).powerful


def test_power_by_source_leaves_out_the_source_itself():
    articles = [document.text for document in embedded.corpus("wikipedia")][:40]
    names = ("abstracts",) * 60 + ("articles",) * 40
    found = power(Reference((*ABSTRACTS[:60], *articles), tuple(range(100)), names, {}))
    assert set(found) == {"source 'abstracts'", "source 'articles'", "Python's manual"}
    assert all(share > 0.5 for share in found.values())


def test_of_many_texts_a_sample_of_most_families_is_compared_and_some_new_ones_at_a_time(monkeypatch):
    families = [*range(6), *[6] * 20, *[7] * 14]
    reference = Reference(tuple(ABSTRACTS[:40]), tuple(families), ("",) * 40, {})
    whole = DomainCheck(ABSTRACTS[:40], families).p_values(ABSTRACTS[40:60])
    monkeypatch.setattr("fsd.evaluation.domain_check.BLOCK", 7)
    for name, p_values in DomainCheck(ABSTRACTS[:40], families).p_values(ABSTRACTS[40:60]).items():
        np.testing.assert_allclose(p_values, whole[name])
    monkeypatch.setattr("fsd.evaluation.domain_check.MOST", 12)
    check = reference.check("")
    assert (len(check.texts), check.groups, np.bincount(check.group).tolist()) == (12, 8, [1] * 6 + [3] * 2)


def test_one_short_text_of_the_benchmark_does_not_hide_novelty():
    """The measures have ranks of their own: an odd length does not make other texts look ordinary in their words."""
    assert DomainCheck([*ABSTRACTS[:60], "Three short words."]).outside([FRENCH * 2])[0]


def test_a_group_is_found_by_what_its_texts_have_in_common():
    """Each text is inside by its length, all of them together are not."""
    check = DomainCheck(repeated(*np.random.default_rng(0).integers(40, 160, 150)))
    asked = repeated(*[52] * 12)
    assert check.outside(asked) == [""] * 12
    assert all(check.outside(asked, [1] * 12))


def test_distances_equal_the_plain_formula():
    rng = np.random.default_rng(1)
    known, new = rng.normal(size=(40, 6)) * [1, 2, 3, 1, 1, 1], rng.normal(size=(7, 6))
    np.testing.assert_allclose(mahalanobis(known, new), LedoitWolf().fit(known).mahalanobis(new), rtol=1e-6)


def test_the_reason_is_named(abstracts):
    for text, reason in (
        (FRENCH * 3, "language"),
        ("Мы показали, что предложенные методы лучше известных. " * 12, "Cyrillic"),
        ("我们证明了所提出的方法比文献中的方法更有效" * 5, "Chinese"),
        ("We show a method.", "length 4 words"),
        ("We show a method for the problem. " * 200, "length 1400 words"),
        (NOVEL, "vocabulary"),
    ):
        assert reason in abstracts.outside([text])[0]


def test_p_values_by_hand_from_the_length():
    """Distances from the median 11.5 on a log scale: each group of the benchmark at least as far has a vote."""
    p_values = DomainCheck(repeated(10, 11, 12, 13)).p_values(repeated(30, 13, 12))
    np.testing.assert_allclose(p_values["length"], [1 / 5, 3 / 5, 5 / 5])
    grouped = DomainCheck(repeated(10, 40, 12, 13, 14), [0, 0, 1, 2, 3])
    assert grouped.p_values(repeated(30))["length"][0] == pytest.approx((1 + 0.5) / 5)  # 40 alone is farther from 13


def test_a_text_is_judged_alone(abstracts):
    together = abstracts.p_values([*ABSTRACTS[200:204], FRENCH])
    for name, values in together.items():
        alone = [abstracts.p_values([text])[name][0] for text in ABSTRACTS[200:204]]
        np.testing.assert_allclose(values[:4], alone)


def test_very_few_texts_are_enough():
    for known in (1, 2, 3):
        states = np.random.default_rng(0).normal(size=(known + 1, 4))
        check = DomainCheck(ABSTRACTS[:known], None, states[:known])
        assert np.isfinite(check.p_values([ABSTRACTS[known]], None, states[known:])["states"]).all()
