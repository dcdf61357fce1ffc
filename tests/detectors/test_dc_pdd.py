import math
from collections import Counter

import numpy as np
import pytest

from detectors.dc_pdd import dc_pdd

LN2 = math.log(2)


@pytest.fixture
def pair(make):
    """Tokens 5 7 5 of probability 1/2, 1/100, 1/4 and frequency 1/8, 1/4, 1/8."""
    token = [5, 7, 5]
    return (
        make([math.log(0.5), math.log(0.01), math.log(0.25)], token=token),
        make([-3 * LN2, -2 * LN2, -3 * LN2], token=token),
    )


def slow(text, unigram, cap, limit, first):
    seen, values = set(), []
    for token, logp, logf in zip(text.token, text.logp, unigram.logp, strict=True):
        if first and int(token) in seen:
            continue
        seen.add(int(token))
        value = -math.exp(logp) * float(logf)
        values.append(min(cap, value) if limit else value)
    return sum(values) / len(values)


def test_by_hand(pair):
    # -p ln f = 1/2 · 3 ln 2, 1/100 · 2 ln 2 = 0.01386..., 1/4 · 3 ln 2
    assert dc_pdd(*pair) == pytest.approx((0.01 + 0.01) / 2, rel=1e-12)
    assert dc_pdd(*pair, cap=0.02) == pytest.approx((0.02 + 0.02 * LN2) / 2, rel=1e-12)


def test_variants_by_hand(pair):
    cld = dc_pdd(*pair, cap=0.02, limit=False, first=False)
    lup = dc_pdd(*pair, cap=0.02, limit=True, first=False)
    uncapped = dc_pdd(*pair, cap=0.02, limit=False, first=True)
    assert cld == pytest.approx((1.5 + 0.02 + 0.75) * LN2 / 3, rel=1e-12)
    assert lup == pytest.approx((0.02 + 0.02 * LN2 + 0.02) / 3, rel=1e-12)
    assert uncapped == pytest.approx((1.5 + 0.02) * LN2 / 2, rel=1e-12)


def test_smoothed_token_counts_and_neither_raw_nor_document_counts(make):
    # Corpus of two documents over a vocabulary of 4: N' = 4, f(v) = (count(v) + 1) / (4 + 4)
    documents = [[0, 0, 1], [0]]
    count = Counter(token for document in documents for token in document)
    holding = Counter(token for document in documents for token in set(document))
    token, p = [0, 1, 2], [0.5, 0.25, 0.125]
    frequency = [(count[t] + 1) / (4 + 4) for t in token]
    assert frequency == [1 / 2, 1 / 4, 1 / 8]
    text = make(np.log(p), token=token)
    score = dc_pdd(text, make(np.log(frequency), token=token), cap=10.0)
    assert score == pytest.approx((0.5 * 1 + 0.25 * 2 + 0.125 * 3) * LN2 / 3, rel=1e-12)

    log_count_port = sum(q * math.log(count[t] + 1) for q, t in zip(p, token, strict=True)) / 3
    document_port = -sum(q * math.log((holding[t] + 1) / (2 + 4)) for q, t in zip(p, token, strict=True)) / 3
    assert abs(score - log_count_port) > 0.02
    assert abs(score - document_port) > 0.02


def test_equals_a_loop(agree):
    agree(dc_pdd, slow, "text", "unigram", cap=(0.01, 0.3), limit=(True, False), first=(True, False))


def test_small_differences_survive(make):
    # p differs in the tenth digit: float32 would lose it
    unigram = make([-1.0])
    low, high = (dc_pdd(make([math.log(p)]), unigram) for p in (0.005, 0.0050000001))
    assert high - low == pytest.approx(1e-10, rel=1e-4)
