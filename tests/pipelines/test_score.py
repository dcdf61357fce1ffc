"""Base scores of texts that follow a context: the perplexity of an answer, given its prompt."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTION, OTHER, ANSWER = "What do cats eat?", "What swims in the sea?", " Fish, mostly."


def perplexity(folder: Path, context: str, answer: str) -> float:
    """Of the answer after its context, by transformers alone: exp of the model's own loss on the answer's tokens."""
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
    assert "no AUC: it needs two independent texts of each label; higher means more likely a member" in str(notes)


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


def test_texts_that_cannot_be_continued_are_left_out_and_counted(tiny, tmp_path, monkeypatch, run_command, make_rows):
    monkeypatch.chdir(tmp_path)
    rows = [*make_rows(3, 0), {"text": "One", "label": 0}, {"text": "...", "label": 1}]
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = f"score --data data.jsonl --model {tiny} --device cpu --out scores.csv --samples 2 --json"
    notes = json.loads(run_command(f"{common} --detectors samia,loss"))["notes"]
    table = pd.read_csv("scores.csv")
    assert len(table) == 3
    assert table["samia.base"].notna().all()
    assert "texts: 2 left out: fewer than two words, of which samia can continue nothing" in notes
    # What continues nothing reads them all, and says where two words could not change places.
    notes = json.loads(run_command(f"{common} --detectors pac"))["notes"]
    assert pd.read_csv("scores.csv")["pac.base"].tolist()[3:] == [0, 0]
    assert "pac: no two words of the text can change places in 2 of 5 texts; its score is 0" in notes
