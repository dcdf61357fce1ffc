import re

import pytest

from fsd.errors import UsageError
from fsd.scoring.neighbours import WORD, Proposal, build_vocabulary, masked_neighbours, word_class, word_swaps

UNSEEN = [
    "The old river runs slowly past a mill, and nobody knows why the mill was built there.",
    "A young doctor walks quickly to the town; Nobody meets her. NASA and ESA agree, however.",
    "Every winter the people gather wood, bread and stories around long tables in Berlin or Madrid.",
]
VOCABULARY = build_vocabulary(UNSEEN)
TEXT = "  The cat,\tsat  on\n\n(a) mat — Paris 2024!  It wasn't a very  long story; NATO knew.\r\n"


def layout(text: str) -> str:
    return WORD.sub("#", text)


def test_whitespace_punctuation_and_digits_stay_in_place():
    for neighbour in word_swaps(TEXT, VOCABULARY, seed=1):
        assert layout(neighbour) == layout(TEXT)
        assert neighbour != TEXT


def test_they_are_determined_by_text_and_seed():
    first = word_swaps(TEXT, VOCABULARY, seed=1)
    assert first == word_swaps(TEXT, VOCABULARY, seed=1)
    assert first != word_swaps(TEXT, VOCABULARY, seed=2)
    assert len(first) == len(set(first)) == 25


def test_the_share_of_words_is_swapped():
    words = WORD.findall(TEXT)
    assert len(words) == 15
    for share, swapped in ((0.15, 2), (0.01, 1), (0.5, 8), (1.0, 15)):
        for neighbour in word_swaps(TEXT, VOCABULARY, share=share, seed=3):
            changed = [(a, b) for a, b in zip(words, WORD.findall(neighbour), strict=True) if a != b]
            assert len(changed) == swapped
            assert all(word_class(a)[0] == word_class(b)[0] for a, b in changed)


def test_words_come_from_the_nearest_ranks_of_their_class():
    texts = [" ".join(f"w{chr(97 + i // 26)}{chr(97 + i % 26)} " * (100 - i) for i in range(100))]
    vocabulary = build_vocabulary(texts)
    words = vocabulary.classes["lower", 1]
    assert (words[0], words[-1], vocabulary.ranks["wcu"]) == ("waa", "wdv", 72)
    drawn = {word_swaps(word, vocabulary, count=1, seed=seed)[0] for word in ["wcu"] for seed in range(300)}
    assert drawn == set(words[62:83]) - {"wcu"}
    rare = {word_swaps("zzz", vocabulary, count=1, seed=seed)[0] for seed in range(300)}
    assert rare == set(words[-21:])


def test_a_text_without_words_is_its_own_neighbour():
    for text in ("", "2024 — 17!", "\n"):
        assert word_swaps(text, VOCABULARY, count=3, seed=0) == [text] * 3


def test_one_word_and_little_to_choose_from():
    assert word_swaps("cat", build_vocabulary(["cat"]), count=2, seed=0) == ["cat", "cat"]
    assert word_swaps("cat", build_vocabulary(["cat dog"]), count=3, seed=0) == ["dog"] * 3
    assert word_swaps("Incomprehensibly", build_vocabulary(["Cat Mice"]), count=1, seed=0)[0] in {"Cat", "Mice"}
    assert set(word_swaps("cat", VOCABULARY, count=10, seed=0)).isdisjoint({"cat"})


def test_scripts_without_spaces_swap_characters():
    text = "今天天气很好，我们去公园。"
    vocabulary = build_vocabulary(["昨天下雨他在家里看书", "明年春天花会开"])
    for neighbour in word_swaps(text, vocabulary, count=5, seed=0):
        assert len(neighbour) == len(text)
        assert sum(a != b for a, b in zip(text, neighbour, strict=True)) == 2


def test_classes_by_hand():
    words = ["a", "I", "the", "NATO", "Paris", "wasn't", "McDonald", "comprehends"]
    cases = ["lower", "title", "lower", "upper", "title", "lower", "other", "lower"]
    assert [word_class(word) for word in words] == list(zip(cases, [0, 0, 1, 2, 2, 2, 3, 4], strict=True))


def test_masked_neighbours_by_hand():
    proposals = [
        Proposal(4, 7, "dog", 0.3),
        Proposal(4, 7, "cat", 0.9),  # the original
        Proposal(9, 12, "ran", 0.5),
        Proposal(0, 3, "One", 0.3),
        Proposal(4, 7, "ox", 0.1),
    ]
    best = masked_neighbours("The cat, sat.\n", proposals, count=3)
    assert best == ["The cat, ran.\n", "One cat, sat.\n", "The dog, sat.\n"]
    assert len(masked_neighbours("The cat, sat.\n", proposals)) == 4
    assert masked_neighbours("The cat", []) == ["The cat"]
    with pytest.raises(ValueError, match="must be a span of the text"):
        masked_neighbours("The", proposals)


def test_mistakes_are_refused():
    for name, value in (("count", 0), ("share", 0.0), ("share", 1.1), ("share", float("nan"))):
        with pytest.raises(UsageError, match=name):
            word_swaps(TEXT, VOCABULARY, seed=0, **{name: value})
    with pytest.raises(UsageError, match="hold words"):
        build_vocabulary(["1984", ""])
    with pytest.raises(UsageError, match="count"):
        masked_neighbours(TEXT, [], count=0)


def test_real_text_keeps_its_layout(benchmark_data):
    texts = re.findall(r'"(?:input|text)": "([^"]{100,})"', (benchmark_data / "wikimia_64.jsonl").read_text())[:40]
    assert texts
    vocabulary = build_vocabulary(texts[:20])
    for text in texts[20:]:
        neighbours = word_swaps(text, vocabulary, seed=0)
        assert len(set(neighbours)) == 25
        assert {layout(neighbour) for neighbour in neighbours} == {layout(text)}
