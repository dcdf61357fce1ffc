"""Frequency tables: smoothing, files, tokenizers, the unigram scorer; counts against a slow counter, cuts by pieces."""

import json
import math
import random
import re
import string
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from fsd.data.passages import Passage, TextStream
from fsd.errors import UsageError
from fsd.models.language_model import load
from fsd.scoring import token_counting as counting
from fsd.scoring.token_counting import Tally, count
from fsd.scoring.token_frequencies import FrequencyTable, fingerprint, unigram_scorer
from fsd.scoring.word_cuts import PIECE, SEPARATING, SPACES_BEYOND, cuts
from fsd.token_stats import STD_FLOOR, Prompt


def word_tokenizer(words):
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words.split())}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?", pad_token="?")


def table(counts, **changes):
    values = {"fingerprint": "f", "model": "m", "corpus": "c", "documents": 2} | changes
    return FrequencyTable(np.array(counts, dtype=np.int64), **values)


def test_log_frequency_by_hand():
    # N' = 7 tokens, V = 4: (count + 1) / 11. Documents (2) do not enter.
    expected = [math.log(6 / 11), math.log(3 / 11), math.log(1 / 11), math.log(1 / 11)]
    np.testing.assert_allclose(table([5, 2, 0, 0]).log_frequency(), expected, rtol=1e-15)
    counts = np.random.default_rng(0).integers(0, 10**9, 50_000)
    assert np.exp(table(counts).log_frequency()).sum() == pytest.approx(1, abs=1e-12)


def test_round_trip_and_same_bytes(tmp_path):
    one = table([3, 0, 2**40], corpus="größe")
    one.save(tmp_path / "deep" / "a.npz")
    one.save(tmp_path / "b.npz")
    back = FrequencyTable.load(tmp_path / "b.npz")
    assert (back.counts.tolist(), back.counts.dtype) == ([3, 0, 2**40], np.int64)
    assert (back.fingerprint, back.model, back.corpus, back.documents) == ("f", "m", "größe", 2)
    assert (tmp_path / "deep" / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b.npz", "deep"]


def test_a_broken_table_is_refused_wherever_a_byte_changes(tmp_path):
    file = tmp_path / "a.npz"
    table(range(200)).save(file)
    whole = file.read_bytes()
    changed = 0
    for at in range(0, len(whole), 7):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            assert FrequencyTable.load(file).counts.tolist() == list(range(200))
        except UsageError:
            changed += 1
    assert changed > len(whole) / 14
    np.savez(tmp_path / "other.npz", counts=np.arange(3))
    for content in (whole[: len(whole) // 2], b"", b"text", (tmp_path / "other.npz").read_bytes()):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="whole file"):
            FrequencyTable.load(file)
    with pytest.raises(UsageError, match="no file"):
        FrequencyTable.load(tmp_path / "no.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(UsageError, match="can be written"):
        table([1]).save(tmp_path / "folder.npz")
    assert not list(tmp_path.glob(".*"))


def test_the_fingerprint_survives_saving_and_ignores_truncation_and_padding(tmp_path):
    tokenizer = word_tokenizer("? a b")
    mark = fingerprint(tokenizer)
    tokenizer.save_pretrained(tmp_path)
    assert fingerprint(AutoTokenizer.from_pretrained(tmp_path)) == mark
    tokenizer.backend_tokenizer.enable_truncation(2)
    tokenizer.backend_tokenizer.enable_padding()
    assert fingerprint(tokenizer) == mark
    assert fingerprint(word_tokenizer("? b a")) != mark


def test_a_table_fits_models_of_its_tokenizer_only_with_their_own_vocabulary():
    tokenizer = word_tokenizer("? a b")
    one = table([1, 2, 0, 0], fingerprint=fingerprint(tokenizer))
    assert one.matching(tokenizer, 6, "big").counts.tolist() == [1, 2, 0, 0, 0, 0]
    assert one.matching(tokenizer, 3, "small").counts.tolist() == [1, 2, 0]
    with pytest.raises(UsageError, match=r"must be made with the tokenizer of 'other'; got one made with that of 'm'"):
        one.matching(word_tokenizer("? b a"), 4, "other")
    with pytest.raises(UsageError, match="beyond the vocabulary of 1"):
        one.matching(tokenizer, 1, "tiny")
    with pytest.raises(UsageError, match="fast"):
        fingerprint(object())


def test_unigram_scorer_by_hand():
    # f = (1/2, 1/4, 1/4): mean = −1.5 log 2; log2 f is −1, −2, −2 with variance 1/4.
    scorer = unigram_scorer(table([1, 0, 0]), lambda texts: [[int(c) for c in text] for text in texts])
    first, second = scorer([Prompt("0120", context="22"), Prompt("1")])
    np.testing.assert_allclose(first.logp, np.log([1 / 2, 1 / 4, 1 / 4, 1 / 2]), rtol=1e-14)
    np.testing.assert_allclose(first.mean, [-1.5 * math.log(2)] * 4, rtol=1e-14)
    np.testing.assert_allclose(first.std, [0.5 * math.log(2)] * 4, rtol=1e-14)
    assert (first.text, first.token.tolist(), second.token.tolist()) == ("0120", [0, 1, 2, 0], [1])
    prompts = [Prompt(str(i % 2)) for i in range(2500)]
    stats = list(unigram_scorer(table([5, 5]), lambda texts: [[int(text)] for text in texts])(prompts))
    assert [s.text for s in stats] == [p.text for p in prompts]
    assert stats[0].std[0] == STD_FLOOR


# Counting

ENGLISH = "It wasn't the first time, in 1984, that they'd seen foo.bar(x)!\n\nBut a second (or third?) one: no.  "
LETTERS = ["a", "b", "B", "é", "e\u0301", "\u0301", "字", "1", "23", "'s", "'", ".", "/", "_", "(", "”", "¨", "<e>"]
SPACES = [" ", " ", " ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", "\x85", "\xa0", "\u2003", "\u3000", "\x1c", "\u200b"]
PATTERNS = [None, *sorted(SEPARATING)]
ONE_FIRST = [None, *(pytest.param(pattern, marks=pytest.mark.slow) for pattern in PATTERNS[1:])]


def soup(seed, pieces):
    rng = random.Random(seed)
    return "".join(rng.choice(LETTERS if rng.random() < 0.6 else SPACES) for _ in range(pieces))


SOUPS = [soup(seed, seed % 40) for seed in range(3000)]


def splitting(pattern, *more):
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    split = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    return pre_tokenizers.Sequence([*split, *more, level])


def tokenizer(splitter=None):
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = splitter or splitting(None)
    backend.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, initial_alphabet=alphabet)
    backend.train_from_iterator([ENGLISH, *SOUPS[:1000]], trainer)
    backend.add_tokens([AddedToken("    ", normalized=True), AddedToken("<e>", normalized=False, special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


WHOLE = pre_tokenizers.ByteLevel(use_regex=False, add_prefix_space=False)


def slowly(made, texts, vocabulary=800):
    counter = Counter()
    for text in texts:
        counter.update(made(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])
    return [counter[i] for i in range(vocabulary)]


def counted(made, texts, **limits):
    return count([Passage(text) for text in texts], made, 800, model="m", corpus="c", **limits)


def test_a_quoted_special_token_is_counted_as_the_text_that_is_scored(tiny):
    model = load(str(tiny), device="cpu")
    texts = ["the end is written <|endoftext|> and", "<|endoftext|>"]
    found = count(map(Passage, texts), model.tokenizer, 300, model="m", corpus="c").counts
    ids = [i for row in model.tokens(texts) for i in row]
    assert found[model.start] == 0
    assert found.tolist() == np.bincount(ids, minlength=300).tolist()


@pytest.mark.parametrize("pattern", ONE_FIRST)
def test_counts_equal_a_slow_counter_on_anything(pattern):
    made = tokenizer(splitting(pattern))
    texts = [ENGLISH * 3, *SOUPS[::3]]
    found = counted(made, texts)
    assert found.counts.tolist() == slowly(made, texts)
    assert (found.documents, found.vocabulary, found.fingerprint) == (len(texts), 800, fingerprint(made))

    @settings(max_examples=30)
    @given(st.lists(st.lists(st.sampled_from([*LETTERS, *SPACES, "foo", "don't"]) | st.characters(codec="utf-8"))))
    def equal(parts):
        texts = ["".join(text) for text in parts] * 2
        tally = Tally(made.backend_tokenizer, 800)
        tally.add(texts)
        assert tally.total().tolist() == slowly(made, texts)

    equal()


def test_memory_is_bounded_without_changing_counts_and_any_other_tokenizer_takes_whole_texts(monkeypatch):
    texts = [f"word{i} " * 3 + "common " + "a" * (i % 90) for i in range(200)] + SOUPS[:80]
    for name, value in (("BATCH", 200), ("BLOCK", 10), ("WORDS", 50)):
        monkeypatch.setattr(counting, name, value)
    for splitter, known in ((None, True), (WHOLE, False)):
        made = tokenizer(splitter)
        assert (cuts(made.backend_tokenizer) is not None) == known
        expected = slowly(made, texts)
        for pending in (1, 1000, 10**9):
            monkeypatch.setattr(counting, "PENDING", pending)
            assert counted(made, texts).counts.tolist() == expected


def test_truncation_and_padding_of_the_tokenizer_are_ignored_and_kept():
    made = tokenizer()
    expected = slowly(made, [ENGLISH, "a"])
    made.backend_tokenizer.enable_truncation(2)
    made.backend_tokenizer.enable_padding()
    assert counted(made, [ENGLISH, "a"]).counts.tolist() == expected
    assert made.backend_tokenizer.truncation["max_length"] == 2


def test_limits_of_documents_and_tokens(monkeypatch):
    made = tokenizer()
    texts = SOUPS[20:40]
    lengths = np.cumsum([sum(slowly(made, [text])) for text in texts])
    assert counted(made, texts, documents=7).counts.tolist() == slowly(made, texts[:7])
    for size in (40, 10**6):
        monkeypatch.setattr(counting, "BATCH", size)
        found = counted(made, texts, tokens=int(lengths[10]))
        assert (found.counts.tolist(), found.documents) == (slowly(made, texts[:11]), 11)
        assert counted(made, texts, tokens=10**6).tokens == lengths[-1]
    passages = [Passage("a b"), Passage(" c", False), Passage("d")]
    assert count(passages, made, 800, model="m", corpus="c", documents=1).tokens == sum(slowly(made, ["a b c"]))
    for texts, limits, message in (([], {}, "at least one token"), (["a"], {"tokens": 0}, "limit of tokens")):
        with pytest.raises(UsageError, match=message):
            counted(made, texts, **limits)
    with pytest.raises(UsageError, match="every token"):
        count([Passage(ENGLISH)], made, 5, model="m", corpus="c")


def test_the_first_tokens_of_each_document_alone_are_counted(tmp_path):
    made = tokenizer()
    texts = ["one two three four five", "", "one", "six seven " * 90]
    for most in (1, 3, 1000):
        ids = [made.backend_tokenizer.encode(text, add_special_tokens=False).ids[:most] for text in texts]
        counts = count(map(Passage, texts), made, 800, model="m", corpus="c", document_tokens=most).counts
        assert counts.tolist() == np.bincount(np.concatenate(ids).astype(int), minlength=800).tolist()
    parts = [Passage("one two"), Passage("three", opens=False)]  # the rest of a long document
    assert count(parts, made, 800, model="m", corpus="c", document_tokens=1024).tokens == len(
        made("one two")["input_ids"]
    )


def test_a_long_text_file_counts_as_in_one_piece(tmp_path):
    made = tokenizer()
    text = " ".join(f"{ENGLISH}{i}" for i in range(4000))
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": ENGLISH}))
    found = count(TextStream([tmp_path / "a.txt", tmp_path / "b.jsonl"]), made, 800, model="m", corpus="c")
    assert found.counts.tolist() == slowly(made, [text, ENGLISH])
    assert found.documents == 2


# Cuts

BLANKS = [*string.whitespace, *SPACES_BEYOND, "  ", "   ", "\n  ", "\r\n", "\n\n", " \n ", "\n    "]
ODD = ["\u200b", "\ufeff", "\x1c", "\x1f", "\0", "\u180e", "\u2060"]
SIGNS = ["a", "Z", "s", "don't", "I'LL", "'ſ", "é", "é", "́", "̸", "ǆ", "ж", "字", "ด", "👩\u200d👧", "K"]
MARKS = [*string.punctuation, "’", "。", "\u037e", "\u1fef", "...", "./", "\n/", "=\u0338", "'s", "_x"]
DIGITS = ["1", "23", "4567", "²", "１", "٣"]
SOUP = st.lists(st.sampled_from([*BLANKS * 2, *ODD, *SIGNS, *MARKS, *DIGITS]) | st.characters(codec="utf-8"))


def backend(splitter, normalizer=None, *tokens):
    """Every character of the byte-level alphabet is its own token, so that the pieces decide."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: at for at, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = splitter
    if normalizer:
        made.normalizer = normalizer
    made.add_tokens(list(tokens))
    return made


def words(cut, *texts):
    data, begins = cut.words([text.encode() for text in texts])
    return [data[begin:end].decode() for begin, end in pairwise(begins)]


def pieces(made, text):
    """What the model is given, between added tokens, by its own account: word_ids number the pieces."""
    encoding = made.encode(text, add_special_tokens=False)
    said = []
    last = None
    for token, word in zip(encoding.tokens, encoding.word_ids, strict=True):
        if word is None or word != last:
            said.append("")
        said[-1] += token
        last = word
    return said


def checker(made):
    cut = cuts(made)
    assert cut is not None

    def check(text):
        found = words(cut, text)
        assert "".join(found) == text
        assert [piece for word in found for piece in pieces(made, word)] == pieces(made, text), found
        for word in found:
            if cut.pieces and re.search(PIECE, word):
                assert pieces(made, word) == [word.replace(" ", "Ġ")]

    return check


@pytest.mark.parametrize("pattern", ONE_FIRST)
@pytest.mark.parametrize(
    "normalizer",
    [normalizers.NFC(), *(pytest.param(other, marks=pytest.mark.slow) for other in (None, normalizers.NFD()))],
)
def test_the_words_have_the_pieces_of_the_text(pattern, normalizer):
    check = checker(backend(splitting(pattern), normalizer))

    @settings(max_examples=100)
    @given(SOUP)
    def equal(parts):
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


@pytest.mark.parametrize("pattern", ONE_FIRST)
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
        parts = [*(token.content for token in tokens), *BLANKS, *SIGNS, *"axz<>.1mby"]
        for _ in range(300):
            check("".join(rng.choices(parts, k=rng.randint(1, 9))))


@pytest.mark.slow
def test_whitespace_is_what_the_patterns_take_for_it():
    split = pre_tokenizers.Split(Regex(r"\s"), "isolated")
    beyond = "".join(chr(code) for code in range(128, 0x110000) if not 0xD800 <= code < 0xE000)
    found = [piece for piece, _ in split.pre_tokenize_str(beyond)]
    assert "".join(piece for piece in found if piece.isspace() and len(piece) == 1) == SPACES_BEYOND


def test_a_digit_step_or_an_inverted_split_separates_too_and_nothing_unknown_does():
    inverted = pre_tokenizers.Split(Regex(PATTERNS[1]), "removed", invert=True)
    for splitter in (splitting(None, pre_tokenizers.Digits(True)), pre_tokenizers.Sequence([inverted, WHOLE])):
        checker(backend(splitter))("In 1984,  it's\n\n  foo.bar(23) ")
    plain = splitting(None)
    for splitter, normalizer, *token in (
        (None, None),
        (splitting(r"\s+"), None),
        (WHOLE, None),
        (pre_tokenizers.ByteLevel(add_prefix_space=True), None),
        (pre_tokenizers.Sequence([WHOLE, plain]), None),
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
