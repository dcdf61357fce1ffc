import random
import re
import string
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE

from fsd.scoring.token_frequencies import PIECE, SEPARATING, SPACES_BEYOND, Cuts, cuts

SPACES = [*string.whitespace, *SPACES_BEYOND, "  ", "   ", "\n  ", "\r\n", "\n\n", " \n ", "\n    "]
ODD = ["\u200b", "\ufeff", "\x1c", "\x1f", "\0", "\u180e", "\u2060"]
LETTERS = ["a", "Z", "s", "don't", "I'LL", "'ſ", "é", "é", "́", "̸", "ǆ", "ж", "字", "ด", "👩\u200d👧", "K"]
MARKS = [*string.punctuation, "’", "。", "\u037e", "\u1fef", "...", "./", "\n/", "=\u0338", "'s", "_x"]
DIGITS = ["1", "23", "4567", "²", "１", "٣"]
SOUP = st.lists(st.sampled_from([*SPACES * 2, *ODD, *LETTERS, *MARKS, *DIGITS]) | st.characters(codec="utf-8"))
PATTERNS = [None, *sorted(SEPARATING)]


def splitting(pattern: str | None, *more: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    split = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    return pre_tokenizers.Sequence([*split, *more, level])


def backend(splitter, normalizer=None, *tokens: AddedToken) -> Tokenizer:
    """Every character of the byte-level alphabet is its own token, so that the pieces decide."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(BPE({letter: at for at, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = splitter
    if normalizer:
        made.normalizer = normalizer
    made.add_tokens(list(tokens))
    return made


def words(cut: Cuts, *texts: str) -> list[str]:
    data, begins = cut.words([text.encode() for text in texts])
    return [data[begin:end].decode() for begin, end in pairwise(begins)]


def pieces(made: Tokenizer, text: str) -> list[str]:
    """What the model is given, between added tokens, by its own account: word_ids number the pieces."""
    encoding = made.encode(text, add_special_tokens=False)
    said: list[str] = []
    last = None
    for token, word in zip(encoding.tokens, encoding.word_ids, strict=True):
        if word is None or word != last:
            said.append("")
        said[-1] += token
        last = word
    return said


def checker(made: Tokenizer) -> Callable[[str], None]:
    cut = cuts(made)
    assert cut is not None

    def check(text: str) -> None:
        found = words(cut, text)
        assert "".join(found) == text
        assert [piece for word in found for piece in pieces(made, word)] == pieces(made, text), found
        for word in found:
            if cut.pieces and re.search(PIECE, word):
                assert pieces(made, word) == [word.replace(" ", "Ġ")]

    return check


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    "normalizer",
    [normalizers.NFC(), *(pytest.param(other, marks=pytest.mark.slow) for other in (None, normalizers.NFD()))],
)
def test_the_words_have_the_pieces_of_the_text(pattern, normalizer):
    check = checker(backend(splitting(pattern), normalizer))

    @settings(max_examples=100, deadline=None)
    @given(SOUP)
    def equal(parts: list[str]) -> None:
        if text := "".join(parts):
            check(text)

    equal()


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_two_ascii_characters_in_any_company(pattern):
    check = checker(backend(splitting(pattern), normalizers.NFC()))
    rng = random.Random(0)
    letters = [chr(code) for code in range(128)]
    around = [" ", "  ", "\n", "\r\n ", "a", "B", "s", "1", "23", "'", "'s", ".", "/", "é", "\u3000", "\u0338", ""]
    for before in letters:
        for after in letters:
            check("".join([*rng.choices(around, k=2), before, after, *rng.choices(around, k=2)]))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_added_tokens_are_never_cut(pattern):
    rng = random.Random(0)
    for tokens in (
        [AddedToken("x y"), AddedToken("z "), AddedToken("\n\n")],
        [AddedToken("  "), AddedToken("    ", normalized=True), AddedToken("\t")],
        [AddedToken("<m>", lstrip=True), AddedToken("a.b"), AddedToken("1a")],
        [AddedToken("é z", normalized=False), AddedToken("\u3000."), AddedToken("=")],
        [AddedToken("a", lstrip=True), AddedToken(" b", lstrip=True), AddedToken("\t", lstrip=True)],
    ):
        check = checker(backend(splitting(pattern), None, *tokens))
        parts = [*(token.content for token in tokens), *SPACES, *LETTERS, *"axz<>.1mby"]
        for _ in range(300):
            check("".join(rng.choices(parts, k=rng.randint(1, 9))))


def test_texts_in_a_row_stay_apart():
    cut = cuts(backend(splitting(None)))
    texts = ["a  ", "b", " ", "\n", "c\u3000", " ", "1", "a.", "b"]
    assert words(cut, *texts) == [word for text in texts for word in words(cut, text)]


def test_whitespace_outside_ascii_is_what_the_patterns_take_for_it():
    split = pre_tokenizers.Split(Regex(r"\s"), "isolated")
    beyond = [chr(code) for code in range(128, 0x110000) if not 0xD800 <= code < 0xE000]
    cut = [piece for piece, _ in split.pre_tokenize_str("".join(f"{letter}" for letter in beyond))]
    assert "".join(piece for piece in cut if piece.isspace() and len(piece) == 1) == SPACES_BEYOND


def test_a_digit_step_or_an_inverted_split_separates_too():
    pattern = sorted(SEPARATING)[0]
    inverted = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for splitter in (splitting(None, pre_tokenizers.Digits(True)), pre_tokenizers.Sequence([inverted, level])):
        checker(backend(splitter))("In 1984,  it's\n\n  foo.bar(23) ")


def test_what_is_not_known_to_separate_is_not_cut():
    plain = splitting(None)
    for splitter, normalizer, *token in (
        (None, None),
        (splitting(r"\s+"), None),
        (pre_tokenizers.ByteLevel(use_regex=False, add_prefix_space=False), None),
        (pre_tokenizers.ByteLevel(add_prefix_space=True), None),
        (pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(False, use_regex=False), plain]), None),
        (plain, normalizers.NFKC()),
        (plain, normalizers.Lowercase()),
        (plain, None, AddedToken("x", rstrip=True)),
        (plain, None, AddedToken("x", single_word=True)),
        (plain, normalizers.NFC(), AddedToken("x y")),
        (plain, normalizers.NFC(), AddedToken("é")),
    ):
        assert cuts(backend(splitter, normalizer, *token)) is None
    dropping = backend(plain)
    dropping.model.dropout = 0.1  # merges, by chance
    assert cuts(dropping) is None
