"""Base scores of texts that follow a context: the perplexity of an answer, given its prompt."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

QUESTION, OTHER, ANSWER = "What do cats eat?", "What swims in the sea?", " Fish, mostly."


def perplexity(folder: Path, context: str, answer: str) -> float:
    """Of the answer after its context, by transformers alone: exp of the model's own loss on the answer's tokens."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    before, after = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (context, answer))
    ids = torch.tensor([[tokenizer.bos_token_id, *before, *after]])
    labels = ids.clone()
    labels[0, : 1 + len(before)] = -100
    return float(torch.exp(model(ids, labels=labels).loss.detach()))


def test_an_answer_is_scored_given_its_prompt(tiny, tmp_path, monkeypatch, run_command):
    monkeypatch.chdir(tmp_path)
    rows = [(QUESTION, ANSWER), (OTHER, ANSWER), ("", ANSWER)]
    pd.DataFrame(rows, columns=["prompt", "answer"]).to_csv("answers.csv", index=False)
    Path("unseen.jsonl").write_text('{"text": "Dogs eat."}\n')
    columns = f"--columns text=answer,context=prompt --model {tiny} --device cpu --cache none"
    printed = run_command(f"score --data answers.csv {columns} --unseen unseen.jsonl --out scores.csv --json")
    scores = pd.read_csv("scores.csv", keep_default_na=False)

    assert scores["context"].tolist() == [QUESTION, OTHER, ""]
    assert (-scores["perplexity.base"]).tolist() == pytest.approx([perplexity(tiny, *row) for row in rows], rel=1e-5)
    assert np.ptp(scores["zlib.base"]) > 0
    remark = "recall left out: its prefix would take the place of the texts' own contexts"
    notes = json.loads(printed)["notes"]
    assert remark in notes
    assert notes[0].startswith(
        "no AUC: it needs two independent texts of each label; higher means more likely a member"
    )


def test_equal_answers_to_different_prompts_do_not_contradict_each_other(tiny, tmp_path, monkeypatch, run_command):
    monkeypatch.chdir(tmp_path)
    rows: list[dict[str, Any]] = [
        {"context": QUESTION, "text": "Yes.", "label": 1},
        {"context": OTHER, "text": "Yes.", "label": 0},
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    given = f"--data rows.jsonl --model {tiny} --device cpu --cache none --detectors loss"
    run_command(f"score {given} --out scores.jsonl")
    assert pd.read_json("scores.jsonl", lines=True)["context"].tolist() == [QUESTION, OTHER]
    with pytest.raises(SystemExit):  # other commands look at the text alone
        run_command(f"run {given}")
