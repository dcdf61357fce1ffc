"""Chats through a whole run and a later verdict: answers are learned and scored, and the template travels."""

import contextlib
import json
import shutil
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest

from fsd.data.fields import table_documents
from fsd.tracking import fetch_model_file, find_runs
from pipelines.detect.classifier import MembershipClassifier
from tests.rows import write

TEMPLATE = (
    "{% if messages[0].role != 'user' %}{{ raise_exception('the user must begin') }}{% endif %}"
    "{% for m in messages %}{{ m.role + ': ' + (m.content or '') }}{% for call in m.tool_calls %}"
    "{{ call.function.name + ' ' + call.function.arguments | tojson }}{% endfor %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
ADAPTER = "models:/fsd-arxiv/1"
MODEL = "--model {tiny} --device cpu"
RUN = (
    "run --data chats.jsonl --chat-template t.jinja --epochs 1 --placebo none --audit-repeats 1 --validation .4 "
    f"{MODEL}"
)


CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def as_chat(row):
    words = row["text"].split()
    turns = [{"role": "user", "content": " ".join(words[:5])}, {"role": "assistant", "content": " ".join(words[5:])}]
    return {"messages": turns, **{name: row[name] for name in row if name != "text"}}


@pytest.fixture
def there(tmp_path, monkeypatch, make_rows):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    write("chats.jsonl", map(as_chat, make_rows(120, 0)))
    return tmp_path


@pytest.fixture(scope="module")
def judged(tmp_path_factory, make_rows, tiny, run_command):
    """A working folder with a run on chats, what it printed, and verdicts on new chats of a file."""
    with contextlib.chdir(tmp_path_factory.mktemp("judged")):
        Path("t.jinja").write_text(TEMPLATE)
        write("chats.jsonl", map(as_chat, make_rows(120, 0)))
        printed = run_command(f"{RUN.format(tiny=tiny)} --json")
        Path("t.jinja").unlink()
        new = [as_chat(row) for row in make_rows(12, 7)]
        write("new.jsonl", ({"messages": row["messages"]} for row in new))
        run_command(f"detect new.jsonl --adapter {ADAPTER} --fpr .2 --device cpu --same-source --out v.parquet")
        yield json.loads(printed)


@pytest.fixture(scope="module")
def served(judged):
    """The model as MLflow serves it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path.cwd()}/mlruns/mlflow.db")
        return mlflow.pyfunc.load_model(ADAPTER)


def test_a_run_on_chats_is_judged_by_its_template_later(judged):
    said = json.dumps(judged)
    assert "chats were scored; the prompts were given, not scored" in said
    assert "recall left out: it puts other texts before a text, which is not defined for chats" in said
    run = find_runs("fsd-arxiv")[-1]
    assert {name: run.params[name] for name in run.params if name.endswith("chats")} == {"chats": "answers"}
    assert fetch_model_file(ADAPTER, "chat_template.jinja").read_text() == TEMPLATE
    unseen = fetch_model_file(ADAPTER, "unseen.jsonl").read_text().splitlines()
    assert all(json.loads(line)["messages"][1]["role"] == "assistant" for line in unseen)
    verdicts = pd.read_parquet("v.parquet")
    assert verdicts["p_value"].notna().any()
    first = read("new.jsonl")[0]["messages"]
    assert verdicts["text"][0] == "\n\n".join(turn["content"] for turn in first)


def read(name):
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def asked(served, body):
    """The rows of the reply of MLflow's scoring server to a request."""
    from mlflow.pyfunc import scoring_server

    sent = json.dumps(body | {"params": {"fpr": 0.2, "same_source": True}}).encode()
    reply = scoring_server.invocations(sent, "application/json", served, served.metadata.get_input_schema())
    assert reply.status == 200
    return pd.DataFrame(json.loads(reply.response)["predictions"])


def test_the_served_model_judges_chats_as_detect_does(judged, served):
    expected = pd.read_parquet("v.parquet")
    rows = read("new.jsonl")
    split = {"columns": ["messages"], "data": [[row["messages"]] for row in rows]}
    divided = [{"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in rows]
    mixed = [*rows[:6], *divided[6:]]
    written = [{"messages": json.dumps(row["messages"])} for row in rows]
    params = {"fpr": 0.2, "same_source": True}
    for reply in (
        *(asked(served, {"dataframe_records": records}) for records in (rows, divided, mixed, written)),
        asked(served, {"dataframe_split": split}),
        served.predict(pd.DataFrame(rows), params=params),
    ):
        np.testing.assert_allclose(reply["score"].astype(float), expected["score"], rtol=1e-5, atol=3e-7)
        assert list(reply["verdict"]) == list(expected["verdict"])
    names = served.metadata.get_input_schema().input_names()
    assert names == ["messages", "prompt", "completion", "tools", "chat_template_kwargs"]
    called = {"messages": [rows[0]["messages"][0], {"role": "assistant", "tool_calls": [CALL]}], "tools": TOOLS}
    other = {**called, "chat_template_kwargs": {"unused": 1}}
    split = {"columns": list(called), "data": [list(called.values())]}
    for body in ({"dataframe_records": [called, other, rows[0]]}, {"dataframe_split": split}):
        assert set(asked(served, body)["verdict"]) <= {"member", "not shown", "outside the calibrated domain"}
    classifier = served.unwrap_python_model().classifier
    by_city = []
    for city in ("Ulm", "Bonn"):
        call = {"function": {"name": "weather", "arguments": {"city": city}}}
        turns = [rows[0]["messages"][0], {"role": "assistant", "content": None, "tool_calls": [call]}]
        (document,) = table_documents("t", pd.DataFrame([{"messages": turns}]))
        by_city += classifier.scores([document.prompt]).columns[classifier.calibration.score].tolist()
    assert np.isfinite(by_city).all()
    assert by_city[0] != by_city[1]
    example = served.input_example
    assert list(example) == ["messages"]
    assert served.predict(example, params=params)["score"].notna().all()


def test_the_served_model_refuses_rows_that_are_read_otherwise(judged, served, monkeypatch):
    classifier = served.unwrap_python_model().classifier
    monkeypatch.setattr(classifier, "_excluded", lambda _: pytest.fail("a text was read before it was refused"))
    chat = read("new.jsonl")[0]["messages"]
    said = chat[1] | {"content": "a" * 600_000}
    called = {"role": "assistant", "tool_calls": [CALL]}
    for rows, message in (
        ([{"text": "a b"}], "a row must have messages or completion that is not blank; row 0 has none"),
        ([{"messages": chat}, {"prompt": "a"}], "messages or completion that is not blank; row 1 has none"),
        ([{"prompt": "a", "completion": "b"}], "request, row 0: a row must be a chat, .*; it is a completion of"),
        ([{"messages": chat[:1]}], "request, row 0: a chat must have an answer"),
        ([{"messages": chat}, {"messages": 5}], "request, row 1: messages must be a list of objects"),
        ([{"messages": [chat[0], said]}] * 9, "at most 5,000,000 characters together; they have 5,400,"),
        ([{"messages": chat}] * 10_001, "at most 10,000 texts"),
        ([{"messages": chat, "tools": [{"name": "a" * 5 * 10**6}]}], "characters together; they have 5,0"),
        ([{"messages": [*chat, called | {"weight": 0}]}], "row 0: messages must be .*2.weight: unexpected"),
    ):
        with pytest.raises(mlflow.MlflowException, match=message) as caught:
            asked(served, {"dataframe_records": rows})
        assert caught.value.error_code == "INVALID_PARAMETER_VALUE"


def test_rows_are_judged_as_they_were_calibrated_alone(judged, tiny, run_command, capsys, tmp_path, monkeypatch):
    from extensions.serve.mlflow_model import Model

    write("text.jsonl", [{"text": "a b c"}])
    with pytest.raises(SystemExit) as ended:
        run_command(f"detect text.jsonl --adapter {ADAPTER} --fpr .2 --device cpu")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "text.jsonl:1: a row must be a chat, as those that the adapter was calibrated on; it is a text\n" in said
    folder = shutil.copytree(fetch_model_file(ADAPTER, "calibration.json").parent, tmp_path / "copy")
    (folder / "adapter" / "SHA256SUMS").unlink()
    calibration = json.loads((folder / "calibration.json").read_text())
    assert calibration["reference"]["read_as"] == ["chat"]
    words = read("new.jsonl")[0]["messages"]
    asks, says = (turn["content"] for turn in words)
    rows = {
        "text after a context": {"text": says, "context": asks},
        "completion of a prompt": {"prompt": asks, "completion": says},
    }
    scores = {}
    for read_as, row in rows.items():
        calibration["reference"]["read_as"] = [read_as]
        (folder / "calibration.json").write_text(json.dumps(calibration))
        served = Model()
        served.classifier = MembershipClassifier(str(folder))
        assert [column.name for column in served.classifier.columns] == [*row]
        table = served.predict(None, pd.DataFrame([row]), {"fpr": 0.2, "same_source": True})
        scores[read_as] = table["score"][0]
        (other,) = (further for name, further in rows.items() if name != read_as)
        with pytest.raises(mlflow.MlflowException, match=r"a row must (be a|have) .*"):
            served.predict(None, pd.DataFrame([other]), {"fpr": 0.2})
    assert len(set(scores.values())) == 2


def test_a_shard_without_a_chat_that_can_be_read_has_no_rows(judged, tiny, run_command):
    chat = read("new.jsonl")[0]
    unanswered = {"messages": chat["messages"][:1]}
    write("two.jsonl", [chat, unanswered])
    judged_by = f"--adapter {ADAPTER} --fpr .2 --device cpu --same-source"
    run_command(f"detect two.jsonl {judged_by} --skip-invalid --out two --shard-rows 1")
    sizes = [len(pd.read_parquet(file)) for file in sorted(Path("two").glob("*.parquet"))]
    assert sizes == [1, 0]


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
