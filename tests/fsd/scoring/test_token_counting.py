import json
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

import fsd.scoring.token_frequencies as counting
from fsd.data.readers import Corpus, Passage
from fsd.errors import UsageError
from fsd.models.language_model import load
from fsd.scoring.token_frequencies import SEPARATING, Tally, count, cuts, fingerprint

ENGLISH = "It wasn't the first time, in 1984, that they'd seen foo.bar(x)!\n\nBut a second (or third?) one: no.  "
LETTERS = ["a", "b", "B", "é", "e\u0301", "\u0301", "字", "1", "23", "'s", "'", ".", "/", "_", "(", "”", "¨", "<e>"]
SPACES = [" ", " ", " ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", "\x85", "\xa0", "\u2003", "\u3000", "\x1c", "\u200b"]


def soup(seed: int, pieces: int) -> str:
    rng = random.Random(seed)
    return "".join(rng.choice(LETTERS if rng.random() < 0.6 else SPACES) for _ in range(pieces))


SOUPS = [soup(seed, seed % 40) for seed in range(3000)]


def splitting(pattern: str | None) -> pre_tokenizers.PreTokenizer:
    if pattern is None:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def tokenizer(splitter: pre_tokenizers.PreTokenizer | None = None) -> PreTrainedTokenizerFast:
    backend = Tokenizer(BPE())
    backend.pre_tokenizer = splitter or splitting(None)
    backend.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, initial_alphabet=alphabet)
    backend.train_from_iterator([ENGLISH, *SOUPS[:1000]], trainer)
    backend.add_tokens([AddedToken("    ", normalized=True), AddedToken("<e>", normalized=False, special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def slowly(made: PreTrainedTokenizerFast, texts: list[str], vocabulary: int) -> list[int]:
    counter: Counter[int] = Counter()
    for text in texts:
        counter.update(made(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])
    return [counter[i] for i in range(vocabulary)]


def counted(made: PreTrainedTokenizerFast, texts: list[str], **limits):
    return count([Passage(text) for text in texts], made, 800, model="m", corpus="c", **limits)


def test_a_quoted_special_token_is_counted_as_the_text_that_is_scored(tiny):
    model = load(str(tiny), device="cpu")
    texts = ["the end is written <|endoftext|> and", "<|endoftext|>"]

    table = count(map(Passage, texts), model.tokenizer, 300, model="m", corpus="c")

    ids = [i for row in model.tokens(texts) for i in row]
    assert model.start == model.tokenizer("<|endoftext|>")["input_ids"][0]
    assert table.counts[model.start] == 0
    assert table.counts.tolist() == np.bincount(ids, minlength=300).tolist()


def test_counts_equal_a_slow_counter_on_any_mixture():
    for pattern in (None, *sorted(SEPARATING)):
        made = tokenizer(splitting(pattern))
        assert cuts(made.backend_tokenizer)
        texts = [ENGLISH * 3, *SOUPS[::3]]
        table = counted(made, texts)
        assert table.counts.tolist() == slowly(made, texts, 800)
        assert (table.documents, table.vocabulary, table.fingerprint) == (len(texts), 800, fingerprint(made))


def test_any_other_tokenizer_processes_the_whole_text():
    made = tokenizer(pre_tokenizers.ByteLevel(use_regex=False, add_prefix_space=False))
    assert cuts(made.backend_tokenizer) is None
    assert counted(made, SOUPS[:500]).counts.tolist() == slowly(made, SOUPS[:500], 800)


@pytest.mark.parametrize("pattern", [None, *sorted(SEPARATING)])
def test_counts_of_anything_drawn_equal_a_slow_counter(pattern):
    made = tokenizer(splitting(pattern))

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.lists(st.sampled_from([*LETTERS, *SPACES, "foo", "don't"]) | st.characters(codec="utf-8"))))
    def equal(parts: list[list[str]]) -> None:
        texts = ["".join(text) for text in parts] * 2
        tally = Tally(made.backend_tokenizer, 800)
        tally.add(texts)
        assert tally.total().tolist() == slowly(made, texts, 800)

    equal()


def test_memory_is_bounded_without_changing_counts(monkeypatch):
    texts = [f"word{i} " * 3 + "common " + "a" * (i % 90) for i in range(400)]
    monkeypatch.setattr(counting, "BATCH", 200)
    monkeypatch.setattr(counting, "BLOCK", 10)
    monkeypatch.setattr(counting, "WORDS", 50)
    for made in (tokenizer(), tokenizer(pre_tokenizers.ByteLevel(use_regex=False))):
        expected = slowly(made, texts, 800)
        for pending in (1, 1000, 3000, 10**9):
            monkeypatch.setattr(counting, "PENDING", pending)
            assert counted(made, texts).counts.tolist() == expected


def test_truncation_and_padding_of_the_tokenizer_are_ignored_and_kept():
    made = tokenizer()
    expected = slowly(made, [ENGLISH, "a"], 800)
    made.backend_tokenizer.enable_truncation(2)
    made.backend_tokenizer.enable_padding()
    assert counted(made, [ENGLISH, "a"]).counts.tolist() == expected
    assert made.backend_tokenizer.truncation["max_length"] == 2


def test_limits_of_documents_and_tokens(monkeypatch):
    made = tokenizer()
    texts = SOUPS[20:40]
    lengths = np.cumsum([sum(slowly(made, [text], 800)) for text in texts])
    assert counted(made, texts, documents=7).counts.tolist() == slowly(made, texts[:7], 800)
    for size in (40, 10**6):
        monkeypatch.setattr(counting, "BATCH", size)
        table = counted(made, texts, tokens=int(lengths[10]))
        assert (table.tokens, table.documents) == (lengths[10], 11)
        assert counted(made, texts, tokens=10**6).tokens == lengths[-1]
    passages = [Passage("a b"), Passage(" c", False), Passage("d")]
    assert count(passages, made, 800, model="m", corpus="c", documents=1).tokens == sum(slowly(made, ["a b c"], 800))


def test_a_long_text_file_counts_as_in_one_piece(tmp_path):
    made = tokenizer()
    text = " ".join(f"{ENGLISH}{i}" for i in range(4000))
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": ENGLISH}))
    table = count(Corpus([tmp_path / "a.txt", tmp_path / "b.jsonl"]), made, 800, model="m", corpus="c")
    assert table.counts.tolist() == slowly(made, [text, ENGLISH], 800)
    assert table.documents == 2


def test_mistakes_are_refused():
    made = tokenizer()
    with pytest.raises(UsageError, match="at least one token"):
        counted(made, [])
    with pytest.raises(UsageError, match="limit of tokens"):
        counted(made, ["a"], tokens=0)
    with pytest.raises(UsageError, match="every token"):
        count([Passage(ENGLISH)], made, 5, model="m", corpus="c")
    with pytest.raises(UsageError, match="fast"):
        count([Passage("a")], object(), 5, model="m", corpus="c")
