import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import scale

from fsd.data import embedded
from fsd.data.near_duplicates import words
from fsd.statistics.groups import group_means
from fsd.text_audit.writing import spread_out, writing
from fsd.verdicts import exchangeability as module
from fsd.verdicts.domain_check import DomainCheck, other_kinds
from fsd.verdicts.domain_measures import Ridge
from fsd.verdicts.exchangeability import exchangeability, telling

CORPUS = list(embedded.corpus())
MEMBERS = [document.text for document in CORPUS if document.member]
OTHERS = [document.text for document in CORPUS if not document.member]
MANUAL = other_kinds(OTHERS, held_out=True)["Python's manual"]
HASHED = 0.005
"""By how much a scalar product may be off since a few tokens share a column."""


def test_ridge_equals_the_plain_formula_also_without_each_text_itself():
    rng = np.random.default_rng(0)
    rows, label, new = rng.normal(size=(30, 12)), (np.arange(30) < 11).astype(float), rng.normal(size=(5, 12))
    centred, mean = rows - rows.mean(axis=0), rows.mean(axis=0)
    penalty = np.linalg.eigvalsh(centred @ centred.T).mean() * np.diag([0.0, *[1.0] * 12])

    def predicted(of, without=None):
        kept = np.delete(np.arange(30), [] if without is None else without)
        design = np.column_stack([np.ones(kept.size), centred[kept]])
        return np.insert(of - mean, 0, 1, axis=1) @ np.linalg.solve(design.T @ design + penalty, design.T @ label[kept])

    ridge = Ridge(rows @ rows.T)
    weights, constant = ridge.weights(label)
    np.testing.assert_allclose(constant + (new @ rows.T) @ weights, predicted(new))
    expected = [predicted(rows[at : at + 1], at)[0] for at in range(30)]
    np.testing.assert_allclose(ridge.left_out(label, np.arange(30)), expected, rtol=1e-6)


def test_a_left_out_group_says_nothing_about_its_own_texts():
    rng = np.random.default_rng(2)
    rows, block = rng.normal(size=(24, 9)), np.repeat(np.arange(8), 3)
    labels, ridge = rng.random((24, 2)) < 0.5, Ridge(rows @ rows.T)
    changed = np.where((block == 5)[:, None], ~labels, labels)
    own = block == 5
    np.testing.assert_allclose(ridge.left_out(changed, block)[own], ridge.left_out(labels, block)[own])


def test_texts_of_the_same_kind_pass_even_if_they_are_members():
    for members in (0, 20, 40):
        rejected = 0
        for seed in range(4):
            rng = np.random.default_rng(seed)
            others = [OTHERS[i] for i in rng.permutation(len(OTHERS))]
            asked = [*others[40 + members : 80], *(MEMBERS[i] for i in rng.permutation(len(MEMBERS))[:members])]
            rejected += exchangeability(DomainCheck(others[:40]), asked, permutations=99, seed=seed).rejected
        assert rejected <= 1


def test_texts_of_another_kind_are_found():
    result = exchangeability(DomainCheck(OTHERS[:40]), MANUAL[:40], permutations=199)
    assert result.rejected
    assert result.auc > 0.95
    assert result.classifier_p == pytest.approx(1 / 200)
    assert exchangeability(DomainCheck(MANUAL[:40]), OTHERS[:40], permutations=199).rejected


def test_a_third_of_another_kind_is_found():
    result = exchangeability(DomainCheck(OTHERS[:60]), [*OTHERS[100:140], *MANUAL[:20]], permutations=199)
    assert result.rejected
    assert result.outside_p < 0.001


def test_a_subtle_difference_of_all_texts_is_found_by_the_classifier():
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    rng = np.random.default_rng(3)
    known = [" ".join(rng.choice(words, 30)) for _ in range(60)]
    shifted = [" ".join(rng.choice(words, 30, p=[0.2, 0.2, *[0.075] * 8])) for _ in range(60)]
    assert exchangeability(DomainCheck(known), shifted, permutations=199).classifier_p <= 0.01


def test_copies_count_once_and_few_texts_are_not_tested():
    check, russian = DomainCheck(OTHERS[:40]), "Совсем другой текст."
    result = exchangeability(check, [*OTHERS[100:120], *[russian] * 30], [*range(20), *[99] * 30], permutations=99)
    assert result.groups == 21
    assert result.outside_p > 0.05
    for asked in ([OTHERS[100]], [OTHERS[100], russian]):  # a single text outside says nothing about the others
        result = exchangeability(check, asked)
        assert (result.tested, result.rejected, result.p, result.outside_p) == (False, False, 1, 1)


def _simulated(known, asked, outside, rng):
    """P(so many of the asked are outside), by drawing ranks: outside are those that at most two known exceed."""
    draws = 20_000
    ranked, new = rng.random((draws, known)), rng.random((draws, asked))
    third_highest = np.sort(ranked, axis=1)[:, -3]
    return ((new > third_highest[:, None]).sum(axis=1) >= outside).mean()


def test_of_two_tests_each_has_half_of_the_level():
    """A share of 3 of 41 may be outside: five of 20 texts have a p-value of .04 by one of two tests, seven of .004."""
    check, rng = DomainCheck(OTHERS[:40]), np.random.default_rng(0)
    assert check.share == pytest.approx(3 / 41)
    for count, rejected in ((5, False), (7, True)):
        result = exchangeability(check, OTHERS[100:120], permutations=99, outside=np.arange(20) < count)
        assert result.outside_p == pytest.approx(_simulated(40, 20, count, rng), abs=0.005)
        assert result.classifier_p > 0.5
        assert result.rejected is rejected
        assert (result.outside_p < 0.05) is True


def test_five_groups_are_the_fewest_that_are_tested():
    check = DomainCheck(OTHERS[:40])
    for asked, known, tested in ((5, check, True), (4, check, False), (20, DomainCheck(OTHERS[:4]), False)):
        assert exchangeability(known, OTHERS[100 : 100 + asked], permutations=9).tested is tested


def test_the_texts_of_a_family_share_its_vote():
    """Of eight families of three, each with one text outside, as many are outside as if three were wholly."""
    check, groups = DomainCheck(OTHERS[:40]), np.arange(24) // 3
    outside = np.array([np.arange(24) % 3 == 0, groups < 3, groups < 8], dtype=float)
    p = [module._outside_p(check, group_means(row, groups)) for row in outside]
    assert p[0] == p[1] > 0.02
    assert p[2] < 0.001


@pytest.mark.slow
def test_single_texts_are_not_refused_beside_a_benchmark_of_families():
    """A text by itself is unlike another to a degree that a mean over a family is not: of 60 requests 10 were found."""
    vocabulary = np.array([f"w{number}" for number in range(300)])

    def texts_of(rng, families, size):
        topics = np.repeat(rng.dirichlet(np.full(300, 0.15), families), size, axis=0)
        texts = [" ".join(rng.choice(vocabulary, 60, p=0.5 * topic + 0.5 / 300)) for topic in topics]
        return texts, np.repeat(np.arange(families), size).tolist()

    different = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        check = DomainCheck(*texts_of(rng, 25, 4))
        asked, groups = texts_of(rng, 20, 1)
        nobody = np.zeros(20, dtype=bool)
        result = exchangeability(check, asked, groups, permutations=99, outside=nobody)
        different.append(result.classifier_p <= 0.05)
    assert np.mean(different) <= 0.1


def _plain_products(texts):
    """Scalar products by words, by character n-grams and by writing."""
    by_words = TfidfVectorizer(analyzer=words, sublinear_tf=True).fit_transform(texts)
    ngrams = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), lowercase=False, sublinear_tf=True)
    by_ngrams = ngrams.fit_transform(texts)
    shares = spread_out(writing(texts))
    varying = shares.std(axis=0) > 1e-12
    manner = np.where(varying, scale(shares), 0.0)
    return (by_words @ by_words.T).toarray(), (by_ngrams @ by_ngrams.T).toarray(), manner @ manner.T / shares.shape[1]


def test_words_ngrams_writing_and_states_have_equal_weight_in_the_classifier(monkeypatch):
    kernels = []

    class Recorded(Ridge):
        def __init__(self, products):
            kernels.append(products)
            super().__init__(products)

    monkeypatch.setattr(module, "Ridge", Recorded)
    states = np.random.default_rng(0).normal(size=(16, 5)) * [1, 2, 3, 4, 5]
    outside = np.zeros(8, dtype=bool)
    parts = _plain_products([*OTHERS[20:28], *OTHERS[:8]])
    exchangeability(DomainCheck(OTHERS[:8]), OTHERS[20:28], permutations=9, outside=outside)
    np.testing.assert_allclose(kernels.pop(), sum(parts) / 3, atol=HASHED)
    by_text = dict(zip([*OTHERS[20:28], *OTHERS[:8]], states, strict=True))
    check = DomainCheck(OTHERS[:8], states=lambda texts: np.stack([by_text[text] for text in texts]))
    exchangeability(check, OTHERS[20:28], permutations=9, outside=outside)
    hidden = scale(states)
    np.testing.assert_allclose(kernels.pop(), (sum(parts) + hidden @ hidden.T / 5) / 4, atol=HASHED)


def test_a_word_in_twice_as_many_texts_tells_more_than_a_comma_in_all():
    """Shares of 1 and 0 have an error too: a comma in 25 signs, in each of four texts, is a small difference."""
    known = ["delta aaaa bbbb cccc dddd eeee"] * 2 + ["gamma aaaa bbbb cccc dddd eeee"] * 2
    asked = ["delta aaaa, bbbb cccc dddd eeee"] * 4
    named = telling(asked, np.arange(4), DomainCheck(known))
    assert named[:2] == ("'delta' 100% (benchmark 50%)", "'gamma' 0% (benchmark 50%)")


def test_a_family_counts_once_in_what_is_told():
    known = ["delta aaaa", *["gamma aaaa"] * 3]
    check = DomainCheck(known, [0, 1, 1, 1])
    named = telling(["delta aaaa"] * 4, np.array([0, 0, 1, 2]), check)
    assert named[:2] == ("'delta' 100% (benchmark 50%)", "'gamma' 0% (benchmark 50%)")


def test_words_that_tell_as_much_are_named_by_the_alphabet():
    """In the order of a set of words, two runs on the same texts would name different ones."""
    asked = ["seven words that tell equally much here"] * 6
    named = telling(asked, np.arange(6), DomainCheck(["other ones"] * 6))
    assert [name.split()[0] for name in named] == ["'equally'", "'here'", "'much'"]
