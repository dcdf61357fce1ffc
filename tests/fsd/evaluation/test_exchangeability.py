import numpy as np
import pytest

from fsd.data import embedded
from fsd.data.docstrings import docstring_paragraphs
from fsd.evaluation.domain_check import DomainCheck, Ridge
from fsd.evaluation.exchangeability import _aucs, exchangeability
from fsd.evaluation.metrics import auc

CORPUS = list(embedded.corpus())
MEMBERS = [document.text for document in CORPUS if document.member]
OTHERS = [document.text for document in CORPUS if not document.member]


@pytest.fixture(scope="module")
def docstrings():
    return docstring_paragraphs(("numpy",), limit=60, seed=0)


def test_the_prediction_leaves_each_text_out():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 12))
    gram = rows @ rows.T
    label = (np.arange(30) < 11).astype(float)[:, None]
    penalty = np.linalg.eigvalsh((rows - rows.mean(axis=0)) @ (rows - rows.mean(axis=0)).T).mean()
    for at in range(30):
        others = np.delete(np.arange(30), at)
        # ridge with an unpenalised intercept: the smoother of all texts, with the left-out label replaced by its own
        # prediction, is a fixed point
        design = np.column_stack([np.ones(29), (rows - rows.mean(axis=0))[others]])
        shrink = np.diag([0.0, *[penalty] * 12])
        weights = np.linalg.solve(design.T @ design + shrink, design.T @ label[others, 0])
        expected = weights @ np.append(1.0, (rows - rows.mean(axis=0))[at])
        assert Ridge(gram).left_out(label, np.arange(30))[at, 0] == pytest.approx(expected)


def test_a_left_out_group_says_nothing_about_its_own_texts():
    rng = np.random.default_rng(2)
    rows, block = rng.normal(size=(24, 9)), np.repeat(np.arange(8), 3)
    labels = rng.random((24, 2)) < 0.5
    predicted = Ridge(rows @ rows.T).left_out(labels, block)
    changed = np.where((block == 5)[:, None], ~labels, labels)
    np.testing.assert_allclose(Ridge(rows @ rows.T).left_out(changed, block)[block == 5], predicted[block == 5])


def test_predictions_of_new_texts_equal_those_of_the_texts_that_ridge_was_trained_on():
    rng = np.random.default_rng(4)
    rows, label = rng.normal(size=(20, 6)), (np.arange(20) < 7).astype(float)[:, None]
    ridge = Ridge(rows @ rows.T)
    centred = rows - rows.mean(axis=0)
    penalty = np.linalg.eigvalsh(centred @ centred.T).mean()
    weights = np.linalg.solve(centred.T @ centred + penalty * np.eye(6), centred.T @ (label - label.mean()))
    new = rng.normal(size=(5, 6))
    expected = (new - rows.mean(axis=0)) @ weights
    np.testing.assert_allclose(ridge.centred(new @ rows.T) @ ridge.weights(label), expected)


def test_aucs_equal_the_metric():
    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=(20, 3)), rng.random((20, 3)) < 0.4
    np.testing.assert_allclose(_aucs(scores, labels), [auc(labels[:, k], scores[:, k]) for k in range(3)])


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
    check = DomainCheck(OTHERS[:40])
    result = exchangeability(check, docstrings[:40], permutations=199)
    assert result.rejected
    assert result.auc > 0.95
    assert result.classifier_p == pytest.approx(1 / 200)
    back = exchangeability(DomainCheck(docstrings[:40]), OTHERS[:40], permutations=199)
    assert back.rejected


def test_a_third_of_another_kind_is_found(docstrings):
    check = DomainCheck(OTHERS[:60])
    result = exchangeability(check, [*OTHERS[100:140], *docstrings[:20]], permutations=199)
    assert result.rejected
    assert result.outside_p < 0.001


def test_a_subtle_difference_of_all_texts_is_found_by_the_classifier():
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    rng = np.random.default_rng(3)
    known = [" ".join(rng.choice(words, 30)) for _ in range(60)]
    shifted = [" ".join(rng.choice(words, 30, p=[0.2, 0.2, *[0.075] * 8])) for _ in range(60)]
    result = exchangeability(DomainCheck(known), shifted, permutations=199)
    assert result.classifier_p <= 0.01


def test_copies_count_once():
    check = DomainCheck(OTHERS[:40])
    copies = ["Совсем другой текст."] * 30
    result = exchangeability(check, [*OTHERS[100:120], *copies], [*range(20), *[99] * 30], permutations=99)
    assert result.groups == 21
    assert result.outside_p > 0.05


def test_few_texts_are_not_tested_and_a_single_text_outside_says_nothing_about_the_others():
    check = DomainCheck(OTHERS[:40])
    for asked in ([OTHERS[100]], [OTHERS[100], "Совсем другой текст."]):
        result = exchangeability(check, asked)
        assert not result.tested
        assert not result.rejected
        assert result.p == result.outside_p == 1
