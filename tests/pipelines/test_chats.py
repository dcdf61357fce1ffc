"""Chats through a whole run and a later verdict: answers are learned and scored, and the template travels."""

import json
from pathlib import Path

import pandas as pd
import pytest

from fsd.tracking import fetch_model_file, find_runs

TEMPLATE = (
    "{% if messages[0].role != 'user' %}{{ raise_exception('the user must begin') }}{% endif %}"
    "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
MODEL = "--model {tiny} --device cpu"
RUN = (
    "run --data chats.jsonl --chat-template t.jinja --epochs 1 --placebo none --audit-repeats 1 --validation .4 "
    f"{MODEL}"
)


def as_chat(row):
    words = row["text"].split()
    turns = [{"role": "user", "content": " ".join(words[:5])}, {"role": "assistant", "content": " ".join(words[5:])}]
    return {"messages": turns, **{name: row[name] for name in row if name != "text"}}


def write(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def there(tmp_path, monkeypatch, make_rows):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    write("chats.jsonl", map(as_chat, make_rows(120, 0)))
    return tmp_path


def test_a_run_on_chats_is_judged_by_its_template_later(there, tiny, run_command, make_rows):
    printed = json.loads(run_command(f"{RUN.format(tiny=tiny)} --json"))
    said = json.dumps(printed)
    assert "chats were scored; the prompts were given, not scored" in said
    assert "recall left out: it puts other texts before a text, which is not defined for chats" in said
    (run,) = find_runs("fsd-arxiv")
    assert {name: run.params[name] for name in run.params if name.endswith("chats")} == {"chats": "answers"}
    adapter = "models:/fsd-arxiv/1"
    assert fetch_model_file(adapter, "chat_template.jinja").read_text() == TEMPLATE
    unseen = fetch_model_file(adapter, "unseen.jsonl").read_text().splitlines()
    assert all(json.loads(line)["messages"][1]["role"] == "assistant" for line in unseen)
    (there / "t.jinja").unlink()
    new = [as_chat(row) for row in make_rows(12, 7)]
    write("new.jsonl", ({"messages": row["messages"]} for row in new))
    run_command(f"detect new.jsonl --adapter {adapter} --fpr .2 --device cpu --same-source --out v.parquet")
    verdicts = pd.read_parquet("v.parquet")
    assert verdicts["p_value"].notna().any()
    assert verdicts["text"][0] == "\n\n".join(turn["content"] for turn in new[0]["messages"])


def test_rows_that_the_template_refuses_are_named_before_the_model_is_loaded(
    there, tiny, run_command, monkeypatch, capsys
):
    from fsd.models import language_model

    lines = (there / "chats.jsonl").read_text().splitlines()
    (there / "chats.jsonl").write_text("\n".join([*lines[:4], lines[4].replace('"user"', '"system"'), *lines[5:]]))
    monkeypatch.setattr(language_model, "load", None)
    for command in (RUN, f"score --data chats.jsonl --chat-template t.jinja --out s.csv {MODEL}"):
        with pytest.raises(SystemExit) as ended:
            run_command(command.format(tiny=tiny))
        assert ended.value.code == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "chats.jsonl:5" in line]
        assert line.endswith("; the user must begin")
