"""The tokens of a model are those of its tokenizer.json, whatever class and type of model stand beside it."""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest
import yaml
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from fsd.config import AdapterConfig
from fsd.errors import UsageError
from fsd.models.finetuning import finetune
from fsd.models.language_model import load, load_tokenizer, read_tokenizer, token_ids, wrap
from fsd.scoring.model_scorer import ModelScorer
from fsd.token_stats import Prompt

MATRIX = yaml.safe_load((Path(__file__).parents[2] / "data" / "tokenizers.yaml").read_text(encoding="utf-8"))
TEXTS = [
    "the score of an unseen text moves 12345 more than the score of a member.",
    "Déjà vu: don't  keep two\tspaces\n\n  — 3.14, 東京, नमस्ते",
    " 2023 lead",
    "<|endoftext|> is characters, </s> too",
]
BYTES = pre_tokenizers.ByteLevel.alphabet()
END = "<|endoftext|>"


def trained(model, trainer, *, pre_tokenizer=None, normalizer=None, decoder=None):
    made = Tokenizer(model)
    if normalizer:
        made.normalizer = normalizer
    if pre_tokenizer:
        made.pre_tokenizer = pre_tokenizer
    if decoder:
        made.decoder = decoder
    made.train_from_iterator(TEXTS * 4, trainer)
    return made


def byte_level(*before, space=False):
    steps = [*before, pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=not before)]
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=[END], initial_alphabet=BYTES, show_progress=False)
    return trained(models.BPE(), trainer, pre_tokenizer=pre_tokenizers.Sequence(steps), decoder=decoders.ByteLevel())


def metaspace():
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{number:02X}>" for number in range(256))]
    return trained(
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
        trainers.BpeTrainer(vocab_size=340, special_tokens=pieces, show_progress=False),
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
    )


def unigram():
    special = ["<pad>", "</s>", "<unk>"]
    return trained(
        models.Unigram(),
        trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False),
        normalizer=normalizers.NFKC(),
        pre_tokenizer=pre_tokenizers.Metaspace(),
        decoder=decoders.Metaspace(),
    )


def word_piece():
    return trained(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False),
        normalizer=normalizers.BertNormalizer(lowercase=False, strip_accents=False),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    )


DIGITS = pre_tokenizers.Split(Regex(r"\p{N}{1,3}|\s+(?!\S)|\s?[^\s\p{N}]+|\s+"), "isolated")
MAKERS = {
    "bytes": byte_level,
    "digits": lambda: byte_level(DIGITS),
    "space": lambda: byte_level(space=True),
    "metaspace": metaspace,
    "unigram": unigram,
    "words": word_piece,
}
made = cache(lambda kind: MAKERS[kind]())
ENDS = {"metaspace": "</s>", "unigram": "</s>", "words": "[SEP]"}


def written(folder, kind, name, model):
    folder.mkdir(exist_ok=True)
    made(kind).save(str(folder / "tokenizer.json"))
    settings = {"eos_token": ENDS.get(kind, END)}
    if name:
        settings["tokenizer_class"] = name
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": model}))
    return folder


def check(folder, kind):
    exact = Tokenizer.from_file(str(folder / "tokenizer.json"))
    exact.encode_special_tokens = True
    expected = [exact.encode(text, add_special_tokens=False).ids for text in TEXTS]
    tokenizer = read_tokenizer(folder)
    assert token_ids(tokenizer, TEXTS) == expected
    assert tokenizer.eos_token == ENDS.get(kind, END)


@pytest.mark.parametrize(("kind", "name", "model"), MATRIX["small"])
def test_ids_are_those_of_the_file(tmp_path, kind, name, model):
    check(written(tmp_path / "model", kind, name, model), kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MATRIX["files"])
@pytest.mark.parametrize("name", MATRIX["classes"])
def test_ids_are_those_of_the_file_for_every_pair_of_class_and_type_of_model(tmp_path, kind, name):
    for model in MATRIX["models"]:
        check(written(tmp_path / "model", kind, name, model), kind)


def test_transformers_still_builds_other_pre_tokenizers(tmp_path):
    """Where this fails, the detour of `read_tokenizer` can go."""
    folder = written(tmp_path / "model", "digits", "GPTNeoXTokenizerFast", "gpt_neox")
    assert token_ids(AutoTokenizer.from_pretrained(folder), TEXTS) != token_ids(read_tokenizer(folder), TEXTS)


def test_a_tokenizer_that_transformers_built_otherwise_is_refused_beside_a_loaded_model(tmp_path, make_model):
    folder = written(tmp_path / "model", "digits", "GPTNeoXTokenizerFast", "gpt_neox")
    network = load(str(make_model("gpt_neox", vocab_size=340)), device="cpu").base
    with pytest.raises(
        UsageError, match=r"must make the tokens of tokenizer\.json in .*; GPTNeoXTokenizer of"
    ) as caught:
        wrap(network, AutoTokenizer.from_pretrained(folder))
    assert f"take PreTrainedTokenizerFast.from_pretrained({str(folder)!r})" in str(caught.value)
    assert wrap(network, PreTrainedTokenizerFast.from_pretrained(folder)).tokens(TEXTS)
    # One that was made here comes from nowhere, and is as its user wants it.
    assert wrap(network, PreTrainedTokenizerFast(tokenizer_object=made("bytes"), eos_token=END)).tokens(TEXTS)


def test_special_tokens_that_a_class_names_by_default_are_kept(tmp_path):
    folder = written(tmp_path / "model", "bytes", None, "gpt2")
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 1024}')  # as of GPT-2 on the hub
    tokenizer = read_tokenizer(folder)
    assert (tokenizer.bos_token, tokenizer.eos_token_id) == (END, made("bytes").token_to_id(END))
    folder = written(tmp_path / "model", "digits", None, "llama")
    (folder / "tokenizer_config.json").write_text("{}")  # its class names <s>, which this file does not have
    assert read_tokenizer(folder).bos_token is None


@pytest.mark.parametrize("row", MATRIX["without_file"], ids=lambda row: f"{row['file']}-{row['packages']}")
def test_a_folder_without_the_file_names_the_packages_that_read_the_other_one(tmp_path, tiny, monkeypatch, row):
    monkeypatch.setattr("fsd.models.language_model.Distribution.discover", lambda **_: ())
    folder = Path(shutil.copytree(tiny, tmp_path / "copy"))
    (folder / "tokenizer.json").unlink()
    (folder / row["file"]).write_text(row["begins"])
    with pytest.raises(UsageError, match=f"with the packages that read it: pip install {row['packages']}$"):
        load_tokenizer(str(folder))


# Tokens that were added to a tokenizer, and not to the embeddings


def with_token(source, folder, token, **changes):
    """A copy of a model whose tokenizer has one token more, which the embeddings lack."""
    shutil.copytree(source, folder)
    tokenizer = read_tokenizer(source)
    # As many as fill the embeddings up.
    tokenizer.add_tokens([AddedToken(f"<{number}>", special=True) for number in range(300 - len(tokenizer))])
    tokenizer.add_tokens([token])
    for name, value in changes.items():
        setattr(tokenizer, name, value)
    tokenizer.save_pretrained(folder)
    return folder


def test_an_added_token_without_an_embedding_is_named_with_its_text_before_any_pass(tmp_path, tiny, monkeypatch):
    folder = with_token(tiny, tmp_path / "model", AddedToken("zebra", special=False))
    model = load(str(folder), device="cpu")
    passes = []
    monkeypatch.setattr(type(model.base), "forward", lambda *_, **__: passes.append(1))
    message = (
        "each token must be one of the model's 300; 'zebra' in 'a zebra' was added to the tokenizer as number 300:"
    )
    uses = {
        "tokens": lambda: model.tokens(["a member", "a zebra"]),
        "scores": lambda: list(ModelScorer(model)([Prompt("a member"), Prompt("a zebra")])),
        "training": lambda: finetune(model, ["a zebra"], AdapterConfig(), seed=0, shown=False),
    }
    for use in uses.values():
        with pytest.raises(UsageError, match=message):
            use()
    assert not passes


def losses(folder):
    """The losses of a short training on texts of different lengths, of which one is padded."""
    seen = []
    finetune(
        load(str(folder), device="cpu"),
        ["a member", "the score of an unseen text moves more"],
        AdapterConfig(epochs=1),
        seed=0,
        shown=False,
        log=lambda steps: seen.extend(step["lm_loss"] for step in steps.values()),
    )
    return seen


def test_a_padding_token_without_an_embedding_pads_nothing(tmp_path, tiny):
    folder = with_token(tiny, tmp_path / "model", AddedToken("[PAD]", special=True), pad_token="[PAD]")
    assert read_tokenizer(folder).pad_token_id == 300
    assert losses(folder) == losses(tiny)


def test_a_model_without_start_and_end_token_is_scored_where_none_is_put_before_a_text(tmp_path, tiny):
    folder = Path(shutil.copytree(tiny, tmp_path / "model"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({name: value for name, value in settings.items() if not name.endswith("_token")})
    )
    with pytest.raises(UsageError, match=r"must have a BOS or EOS token .*: --first-token given scores without one"):
        load(str(folder), device="cpu")
    prompts = [Prompt("a member of the text"), Prompt("the score")]
    ours, expected = (load(str(source), device="cpu", first_token="given") for source in (folder, tiny))
    for got, other in zip(ModelScorer(ours)(prompts), ModelScorer(expected)(prompts), strict=True):
        assert got.logp.tolist() == other.logp.tolist()
