from functools import cache

from detectors.cdd import TOKEN, cdd
from fsd.token_stats import Continuations


def test_by_hand():
    outputs = Continuations("", ("a b c, d", "a x c, d", "x a b c,", ""), "a b c, d")  # 0, 1, 2 and 5 edits of 5 tokens
    assert [cdd(outputs, alpha=alpha) for alpha in (0.0, 0.05, 0.2, 0.4, 1.0)] == [1 / 4, 1 / 4, 2 / 4, 3 / 4, 1]
    assert cdd(Continuations("", ("a b c d e f",), "a b"), alpha=0.7) == 1  # the longest output has six
    assert cdd(Continuations("", ("天地", "天"), "天地"), alpha=0.5) == 1


def test_a_model_that_always_says_the_same_has_a_peak_of_1():
    for text in ("one and the same", ""):
        assert cdd(Continuations("", (text,) * 3, text), alpha=0.0) == 1


def slow(outputs, alpha):
    """By the recursive definition of the distance."""
    greedy, *samples = (TOKEN.findall(text) for text in (outputs.greedy, *outputs.samples))

    def distance(first, second):
        @cache
        def of(i, j):
            if not (i and j):
                return i + j
            return min(of(i - 1, j) + 1, of(i, j - 1) + 1, of(i - 1, j - 1) + (first[i - 1] != second[j - 1]))

        return of(len(first), len(second))

    longest = max(map(len, (greedy, *samples)))
    return sum(distance(greedy, sample) <= alpha * longest for sample in samples) / len(samples)


def test_agrees_with_a_slow_implementation(agree):
    agree(cdd, slow, "outputs", alpha=(0.0, 0.05, 0.3, 0.6, 1.0))


def test_tokens_are_words_and_signs():
    assert " ".join(TOKEN.findall("def f(x_1): return\n天気 'é'")) == "def f ( x_1 ) : return 天 気 ' é '"
