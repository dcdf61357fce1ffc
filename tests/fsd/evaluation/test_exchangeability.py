import numpy as np
import pytest

from fsd.data import embedded
from fsd.data.docstrings import docstring_paragraphs
from fsd.evaluation.domain_check import DomainCheck, Ridge
from fsd.evaluation.exchangeability import exchangeability

CORPUS = list(embedded.corpus())
MEMBERS = [document.text for document in CORPUS if document.member]
OTHERS = [document.text for document in CORPUS if not document.member]


@pytest.fixture(scope="module")
def docstrings():
    first = docstring_paragraphs(("numpy",), limit=60, seed=0)
    assert docstring_paragraphs(("numpy",), limit=60, seed=0) == first  # from the cache
    return first


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


def test_texts_of_another_kind_are_found(docstrings):
    result = exchangeability(DomainCheck(OTHERS[:40]), docstrings[:40], permutations=199)
    assert result.rejected
    assert result.auc > 0.95
    assert result.classifier_p == pytest.approx(1 / 200)
    assert exchangeability(DomainCheck(docstrings[:40]), OTHERS[:40], permutations=199).rejected


def test_a_third_of_another_kind_is_found(docstrings):
    result = exchangeability(DomainCheck(OTHERS[:60]), [*OTHERS[100:140], *docstrings[:20]], permutations=199)
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
