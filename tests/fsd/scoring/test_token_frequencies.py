"""Frequency tables: smoothing, files, tokenizers; and the unigram scorer."""

import math

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from fsd.errors import UsageError
from fsd.scoring.token_frequencies import FrequencyTable, fingerprint, unigram_scorer
from fsd.token_stats import STD_FLOOR, Prompt


def word_tokenizer(words: str) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words.split())}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?", pad_token="?")


def table(counts, **changes) -> FrequencyTable:
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
    assert back.counts.tolist() == one.counts.tolist()
    assert back.counts.dtype == np.int64
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
    for content in (whole[: len(whole) // 2], b"", b"text"):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="whole file"):
            FrequencyTable.load(file)


def test_a_file_of_another_format_and_a_missing_one_are_refused(tmp_path):
    np.savez(tmp_path / "other.npz", counts=np.arange(3))
    np.save(tmp_path / "array.npy", np.arange(3))
    for name in ("other.npz", "array.npy"):
        with pytest.raises(UsageError, match="whole file"):
            FrequencyTable.load(tmp_path / name)
    with pytest.raises(UsageError, match="no file"):
        FrequencyTable.load(tmp_path / "no.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(UsageError, match="can be written"):
        table([1]).save(tmp_path / "folder.npz")
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_the_fingerprint_survives_saving_and_ignores_truncation_and_padding(tmp_path):
    tokenizer = word_tokenizer("? a b")
    mark = fingerprint(tokenizer)
    tokenizer.save_pretrained(tmp_path)
    assert fingerprint(AutoTokenizer.from_pretrained(tmp_path)) == mark
    tokenizer(["a b", "a"], truncation=True, max_length=1, padding=True)
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
