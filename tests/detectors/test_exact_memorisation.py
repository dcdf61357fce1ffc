from detectors.exact_memorisation import exact_memorisation
from detectors.gap_k import gap_k


def test_by_hand(make):
    assert exact_memorisation(make([-1.0, -3.0, -2.0, -5.0], top=[-1.0, -1.0, -2.0, -1.0])) == 2 / 4


def test_equals_a_loop(agree):
    def slow(text):
        return sum(abs(float(a) - float(b)) < 1e-6 for a, b in zip(text.logp, text.top, strict=True)) / len(text.logp)

    agree(exact_memorisation, slow, "text")


def test_is_one_where_there_is_no_gap(make):
    text = make([-0.5, -2.0, -1.0], top=[-0.5, -2.0, -1.0])
    assert exact_memorisation(text) == 1
    assert gap_k(text) == 0
