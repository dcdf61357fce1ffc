from detectors.exact_memorisation import exact_memorisation


def test_by_hand(make):
    assert exact_memorisation(make([-1.0, -3.0, -2.0, -5.0], top=[-1.0, -1.0, -2.0, -1.0])) == 2 / 4


def test_equals_a_loop(agree):
    def slow(text):
        return sum(abs(float(a) - float(b)) < 1e-6 for a, b in zip(text.logp, text.top, strict=True)) / len(text.logp)

    agree(exact_memorisation, slow, "text")
