from detectors.exact_memorisation import exact_memorisation
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


def test_is_at_most_the_share_of_expected_tokens(random_views):
    for seed in range(20):
        text = random_views(seed, 12)["text"]
        assert extraction_strength(text) <= exact_memorisation(text)
