from zlib import compress

from detectors.samia import samia
from fsd.token_stats import UNIT, Continuations


def test_by_hand():
    # of a, b, a, c: twice a; c alone; the fifth word of a sample does not count
    assert samia(Continuations(" a b a c", ("a a a d b", "c"))) == (2 / 4 + 1 / 4) / 2
    assert samia(Continuations("天地", ("地x",))) == 1 / 2
    assert samia(Continuations("a b", ("a  c", ""))) == 1 / 4
    assert samia(Continuations("a b", ("a  c", "")), zlib=True) == len(compress(b"a c")) / 4


def slow(continuations, zlib):
    """By crossing out words, one after the other."""
    truth, scores = UNIT.findall(continuations.truth), []
    for sample in continuations.samples:
        left, words = list(truth), UNIT.findall(sample)[: len(truth)]
        for word in words:
            if word in left:
                left.remove(word)
        scores.append((1 - len(left) / len(truth)) * (len(compress(" ".join(words).encode())) if zlib else 1))
    return sum(scores) / len(scores)


def test_agrees_with_a_slow_implementation(agree):
    agree(samia, slow, "continuations", zlib=(False, True))
