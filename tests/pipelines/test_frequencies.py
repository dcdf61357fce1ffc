import json
from collections import Counter

import pytest
from transformers import AutoTokenizer

from fsd.config import ModelConfig
from fsd.net.hub import EMBEDDED
from fsd.scoring.scorers import frequency_file
from fsd.scoring.token_frequencies import FrequencyTable
from pipelines.frequencies import FrequencyConfig, prepare

TEXTS = ["the score of a text\nmoves", "a member  moves more", "unseen"]


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"body": text}) + "\n" for text in TEXTS))
    return file


def test_it_counts_and_saves_a_table_that_fits_the_model(tiny, corpus, tmp_path, capsys):
    out = tmp_path / "new" / "table.npz"
    prepare(FrequencyConfig(corpus=(corpus, corpus), out=out, model=str(tiny), column="body")).run()
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    expected = Counter(token for text in TEXTS * 2 for token in tokenizer(text)["input_ids"])
    table = FrequencyTable.load(out).matching(tokenizer, 300, str(tiny))
    assert {i: int(n) for i, n in enumerate(table.counts) if n} == expected
    assert (table.documents, table.vocabulary, table.corpus) == (6, 300, "texts.jsonl, texts.jsonl")
    printed = capsys.readouterr().out
    assert f"{expected.total():,} tokens of 6 documents" in printed
    assert f"fsd run --model {tiny} --frequencies {out}" in printed
    prepare(FrequencyConfig(corpus=(corpus,), out=out, model=str(tiny), column="body", limit=2)).run()
    assert FrequencyTable.load(out).documents == 2


def test_a_table_is_found_beside_its_model(tmp_path):
    for name, folder in EMBEDDED.items():
        assert frequency_file(ModelConfig(model=name)) == folder / "frequencies.npz"
    assert frequency_file(ModelConfig(model=str(tmp_path))) is None
    (tmp_path / "frequencies.npz").touch()
    assert frequency_file(ModelConfig(model=str(tmp_path))) == tmp_path / "frequencies.npz"
    assert str(frequency_file(ModelConfig(model="embedded", frequencies="given.npz"))) == "given.npz"
