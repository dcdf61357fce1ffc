from detectors.extraction_strength import extraction_strength


def test_by_hand(make):
    top = [-1.0, -1.0, -1.0, -1.0]
    assert extraction_strength(make([-1.0, -3.0, -1.0, -1.0], top=top)) == 2 / 4
    assert extraction_strength(make([-1.0, -1.0, -1.0, -3.0], top=top)) == 0
    assert extraction_strength(make(top, top=top)) == 1


def slow(text):
    """By the definition: the shortest beginning of which greedy decoding gives the whole end."""
    size = len(text.logp)
    for k in range(size):
        if all(float(a) >= float(b) - 1e-6 for a, b in zip(text.logp[k:], text.top[k:], strict=True)):
            return 1 - k / size
    return 0.0


def test_every_beginning_in_turn(agree):
    agree(extraction_strength, slow, "text")
