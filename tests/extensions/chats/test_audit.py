"""Audits of fine-tuning data that people make: chats, of which the answers are learned, and pairs of answers."""

import json
from pathlib import Path

import pandas as pd
import pytest

from extensions.adapter_audit.command import prepare
from extensions.adapter_audit.preferences import read_pairs
from extensions.adapter_audit.settings import AuditConfig
from fsd.config import AdapterConfig, DetectorConfig, ModelConfig
from fsd.data.corpus import Corpus
from fsd.data.embedded import corpus
from fsd.data.readers import read_files, read_rows
from fsd.errors import UsageError
from fsd.models import language_model
from fsd.models.adapters import save_adapter
from fsd.models.finetuning import finetune
from tests.rows import write

PAIRS = 60
TEMPLATE = (
    "{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def turns(prompt, answer):
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Chats and pairs of one prompt."""
    out = tmp_path_factory.mktemp("chats")
    words = [document.text.split() for document in corpus() if not document.member][:PAIRS]
    chats, pairs = [], []
    for number, text in enumerate(words):
        prompt, chosen, rejected = (" ".join(text[begin : begin + 14]) for begin in (0, 14, 28))
        label = {"label": number % 2}
        chats.append({"messages": turns(prompt, chosen), **label})
        pairs.append(
            {"prompt": turns(prompt, "")[:1], "chosen": turns("", chosen)[1:], "rejected": turns("", rejected)[1:]}
        )
        pairs[-1] |= {} if number % 10 in (6, 7) else label
    write(out / "chats.jsonl", chats)
    alpaca = [
        {"instruction": pair["prompt"][0]["content"], "input": "", "output": pair["chosen"][0]["content"]}
        for pair in pairs
    ]
    for number, row in enumerate(alpaca):
        # What reading the wrong column would judge by.
        row |= {"label": number % 2, "input": "Be short." if number % 3 else ""}
    write(out / "alpaca.jsonl", alpaca)
    write(out / "pairs.jsonl", pairs)
    implicit = [
        {**row, "chosen": row["prompt"] + row["chosen"], "rejected": row["prompt"] + row["rejected"]} for row in pairs
    ]
    write(out / "implicit.jsonl", [{name: row[name] for name in row if name != "prompt"} for row in implicit])
    (out / "t.jinja").write_text(TEMPLATE)
    return out


@pytest.fixture(scope="module")
def folder(texts: Path) -> Path:
    """The same, with an adapter that was trained on the chosen answers of every other one."""
    out = texts
    model = language_model.load(ModelConfig(cache="none", device="cpu", chat_template=str(out / "t.jinja")))
    members = [d.prompt for d in Corpus(read_files([out / "chats.jsonl"], answers=True)) if d.member]
    finetune(model, members, AdapterConfig(epochs=6, learning_rate=1e-2, batch_size=4), seed=0, shown=False)
    save_adapter(model, out / "adapter")
    return out


def run(folder, tmp_path, monkeypatch, data, **changes):
    monkeypatch.chdir(tmp_path)
    model = ModelConfig(device="cpu", cache="none", chat_template=str(folder / "t.jinja"))
    config = AuditConfig(
        data=(str(folder / data),),
        model=model,
        adapter=str(folder / "adapter"),
        fpr=0.2,
        out="scores.csv",
        **{"detection": DetectorConfig(detectors="loss"), **changes},
    )
    prepare(config).work()
    return pd.read_csv("scores.csv")


def auc(table, column):
    test = table[table["label"].notna()]
    members, others = (test.loc[test["label"] == label, column].to_numpy() for label in (1, 0))
    return float((members[:, None] > others[None]).mean())


@pytest.mark.slow
def test_answers_of_chats_are_audited(folder, tmp_path, monkeypatch, capsys):
    table = run(folder, tmp_path, monkeypatch, "chats.jsonl")
    printed = capsys.readouterr().out
    assert f"the answers of {PAIRS} chats were scored; the prompts were given, not scored" in printed
    assert "fsd-adapter-audit" in printed
    assert auc(table, "loss.calibrated") > 0.9


@pytest.mark.slow
def test_alpaca_is_audited_by_its_outputs_after_their_instructions(folder, tmp_path, monkeypatch):
    table = run(folder, tmp_path, monkeypatch, "alpaca.jsonl")
    assert auc(table, "loss.calibrated") > 0.9
    config = AuditConfig(data=(str(folder / "alpaca.jsonl"),), adapter=str(folder / "adapter"))
    assert prepare(config).read == "prompt from instruction and input, completion from output (Alpaca)"


@pytest.mark.slow
def test_pairs_are_audited_by_their_ratios_and_the_difference(folder, tmp_path, monkeypatch, capsys):
    table = run(folder, tmp_path, monkeypatch, "pairs.jsonl", detection=DetectorConfig(), same_source=True)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{PAIRS} pairs: chosen and rejected are the log-ratios" in printed
    ratios = table["chosen.calibrated"] - table["rejected.calibrated"]
    assert table["preference.calibrated"].to_numpy() == pytest.approx(ratios.to_numpy())
    assert auc(table, "chosen.calibrated") > 0.9
    assert auc(table, "preference.calibrated") > 0.8
    judged = table[table["label"].isna()]
    assert len(judged) == 12
    assert judged["verdict"].notna().all()
    # detect reads no pairs, so that nothing is registered for it
    assert "models:/" not in printed


def test_pairs_without_a_prompt_share_the_turns_that_both_begin_with(texts):
    def read(name):
        documents, others = read_pairs(read_rows([texts / name]), {})
        return [(d.chat.turns, d.chat.given, others[d.text].chat.turns, d.text) for d in documents]

    assert read("pairs.jsonl") == read("implicit.jsonl")


UNLIKE = "must come with a column prompt, or be two lists of messages that begin with the same turns"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a?", "chosen": "b", "rejected": "b"}, "must be two different answers; got 'b' and 'b'"),
        ({"prompt": "a?", "chosen": "b", "rejected": None}, "must be two different answers; got 'b' and None"),
        ({"prompt": "a?", "chosen": "b", "rejected": " "}, "completion must be a string that is not blank"),
        ({"chosen": "a b", "rejected": "a c"}, UNLIKE),
        ({"chosen": turns("a?", "b"), "rejected": turns("b?", "b")}, UNLIKE),
        ({"chosen": turns("a?", "b"), "rejected": turns("a?", "b")[:1]}, UNLIKE),
    ],
)
def test_what_is_no_pair_is_refused(row, message, tmp_path):
    write(tmp_path / "a.jsonl", [row])
    config = AuditConfig(data=(str(tmp_path / "a.jsonl"),), adapter="a")
    with pytest.raises(UsageError, match=f"a.jsonl:1: .*{message}"):
        prepare(config)
    named = AuditConfig(data=config.data, adapter="a", detection=DetectorConfig(detectors="loss"))
    with pytest.raises(UsageError, match="detectors must not be named for preference data"):
        prepare(named)


def test_the_column_of_the_prompt_of_a_pair_may_be_named():
    row = {"question": "a?", "prompt": "another", "chosen": "b", "rejected": "c"}
    (pair,), _ = read_pairs([("a:1", row)], {"prompt": "question"})
    assert [turn.content for turn in pair.chat.turns] == ["a?", "b"]
    with pytest.raises(UsageError, match="a:1: prompt must be in column 'asked'; columns are question, prompt"):
        read_pairs([("a:1", row)], {"prompt": "asked"})
    with pytest.raises(UsageError, match=r"columns must not name completion for preference data, .*; got completion=b"):
        read_pairs([("a:1", row)], {"completion": "b"})


def test_a_csv_file_has_the_turns_of_pairs_as_json():
    row = {"chosen": json.dumps(turns("a?", "b")), "rejected": json.dumps(turns("a?", "c"))}
    _, others = read_pairs([("a:1", row)], {})
    (other,) = others.values()
    assert [turn.content for turn in other.chat.turns] == ["a?", "c"]
