"""Frequency tables: smoothing, files, tokenizers, the unigram scorer; counts against a slow counter."""

import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from fsd.data.passages import Passage, TextStream
from fsd.errors import UsageError
from fsd.models.language_model import load
from fsd.scoring import token_counting as counting
from fsd.scoring.token_counting import Tally, count
from fsd.scoring.token_frequencies import FrequencyTable, fingerprint, unigram_scorer
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


def soup(seed, pieces):
    rng = random.Random(seed)
    return "".join(rng.choice(LETTERS if rng.random() < 0.6 else SPACES) for _ in range(pieces))


SOUPS = [soup(seed, seed % 40) for seed in range(3000)]


def tokenizer():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, initial_alphabet=alphabet)
    backend.train_from_iterator([ENGLISH, *SOUPS[:1000]], trainer)
    backend.add_tokens([AddedToken("    ", normalized=True), AddedToken("<e>", normalized=False, special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


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


def test_counts_equal_a_slow_counter_on_anything():
    made = tokenizer()
    texts = [ENGLISH * 3, *SOUPS[::3]]
    found = counted(made, texts)
    assert found.counts.tolist() == slowly(made, texts)
    assert (found.documents, found.vocabulary, found.fingerprint) == (len(texts), 800, fingerprint(made))

    @settings(max_examples=30)
    @given(st.lists(st.lists(st.sampled_from([*LETTERS, *SPACES, "foo", "don't"]) | st.characters(codec="utf-8"))))
    def equal(parts):
        texts = ["".join(text) for text in parts] * 2
        tally = Tally(made.backend_tokenizer, 800)
        assert tally.add(texts) == len(texts)
        assert tally.counts.tolist() == slowly(made, texts)

    equal()


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
