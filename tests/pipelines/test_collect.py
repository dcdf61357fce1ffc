import json
import os
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, date, datetime

import pytest

from fsd.data.periods import kinds_of
from fsd.data.readers import read_files
from fsd.errors import UsageError
from fsd.tracking import find_runs
from pipelines.collect import Collect
from pipelines.collect.job import prepare, specs


@pytest.fixture
def dump(prose):
    """Writes a file with a text for each day, the text of a number that grows; gives the option that names it."""

    def write(path, days, first=0):
        rows = [{"text": prose(first + n), "date": day, "group": f"g{first + n}"} for n, day in enumerate(days)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return f"path={path}"

    return write


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"


@pytest.fixture
def here(tmp_path, monkeypatch, store):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsd.text_audit.audit.REPEATS", 1)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    return tmp_path


def test_nonmembers_by_the_cutoff_of_a_model(here, capsys, dump):
    options = (dump(here / "dump.jsonl", ["2023-02-24", "2023-02-25", "2023-02-26"]),)
    prepare(Collect(domain="local", limit=9, model="huggyllama/llama-7b", options=options)).run()
    (row, _) = read_files(["local-after-2023-02-24.jsonl"], labelled=True)
    assert (row.member, row.date) == (False, date(2023, 2, 25))
    manifest = json.loads((here / "local-after-2023-02-24.manifest.json").read_text())
    assert manifest["order"]["because"].startswith("cutoff of huggyllama/llama-7b: release (Meta, 24 Feb 2023")
    said = capsys.readouterr().out
    assert "2 texts, 2023-02-25 to 2023-02-26: local-after-2023-02-24.jsonl" in said
    assert "the source has no more; the limit was 9" in said
    assert "1 dropped: outside the dates" in said
    assert "fsd run --model MODEL --data FILE --unseen local-after-2023-02-24.jsonl" in said
    run, *_ = find_runs("fsd-local")
    assert run.params["model"] == "huggyllama/llama-7b"
    assert run.params["after"] == "2023-02-24"
    assert run.metrics["collect/kept"] == 2


def test_an_order_that_cannot_be_met_opens_no_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for more in ({}, {"before": "2020-01-01", "out": tmp_path / "b.jsonl"}):
        with pytest.raises(UsageError, match="limit must be at least 1; got 0"):
            prepare(Collect(domain="arxiv", limit=0, after="2024-01-01", **more)).run()
    assert list(tmp_path.iterdir()) == []


def test_members_and_nonmembers_make_a_benchmark_that_survives_a_failure(here, capsys, dump):
    days = [f"2022-01-{n:02}" for n in range(1, 21)] + [f"2024-01-{n:02}" for n in range(1, 21)]
    options = (dump(here / "dump.jsonl", days),)
    config = Collect("local", 15, before="2023-01-01", after="2023-12-31", options=options, out=here / "b.jsonl")
    prepare(config).run()
    documents = read_files([here / "b.jsonl"], labelled=True)
    assert [sum(d.member is side for d in documents) for side in (True, False)] == [15, 15]
    assert {d.date.year for d in documents if d.member} == {2022}
    assert min(d.date for d in documents if d.member) == date(2022, 1, 6)
    card = json.loads((here / "b.card.json").read_text())
    assert card["members"]["dates"] == ["2022-01-06", "2022-01-13", "2022-01-20"]
    said = capsys.readouterr().out
    assert "blind classifier: AUC" in said
    assert f"fsd run --model MODEL --domain local --data {here / 'b.jsonl'}" in said
    with pytest.raises(UsageError, match="exists"):
        prepare(config).run()
    (here / "b.jsonl").unlink()
    (here / "dump.jsonl").write_text("")
    prepare(config).run()  # both sides are there already, so the source is not read again
    assert read_files([here / "b.jsonl"])[0].text == documents[0].text


def test_contemporaries_are_nonmembers_of_the_members_period(here, capsys, dump):
    days = [f"2022-01-{n:02}" for n in range(1, 11)] + [f"2024-01-{n:02}" for n in range(1, 11)]
    options = (dump(here / "dump.jsonl", days),)
    prepare(Collect("local", 4, before="2023-01-01", after="2022-01-02", contemporaries=True, options=options)).run()
    rows = read_files(["local-contemporaries-before-2023-01-01-after-2022-01-02.jsonl"], labelled=True)
    assert [(d.member, d.date.day, d.period) for d in rows] == [
        (False, 10, "up to the cutoff"),
        (False, 9, "up to the cutoff"),
        (False, 8, "up to the cutoff"),
        (False, 7, "up to the cutoff"),
    ]
    said = capsys.readouterr().out
    assert "contemporaries only if they are known not to be in the training data" in said
    assert "--unseen" not in said
    options = (dump(here / "more.jsonl", days, first=100),)
    prepare(Collect("local", 4, before="2023-01-01", options=options, out=here / "members.jsonl")).run()
    prepare(Collect("local", 4, after="2023-01-01", options=options, out=here / "later.jsonl")).run()
    files = [*here.glob("local-*.jsonl"), here / "members.jsonl", here / "later.jsonl"]
    assert Counter(kinds_of(read_files(files))) == {"contemporary": 4, "member": 4, "later": 4}
    assert "contemporaries only" not in capsys.readouterr().out


def test_language_options_and_dates_go_to_the_source():
    (order,) = specs(Collect("arxiv", 5, model="huggyllama/llama-7b", contemporaries=True))
    assert (order.window.after, order.window.before) == (None, date(2023, 2, 25))
    assert (order.member, order.window.newest_first) == (False, True)
    (order,) = specs(Collect("wikipedia", 5, after="2023-01-01", language="de", options=("kind=all", "words=64")))
    assert order.options == {"language": "de", "kind": "all", "words": 64}
    assert order.language == "de"
    (order,) = specs(Collect("arxiv", 5, after="2023-01-01", options=("categories=cs.CL,cs.LG",)))
    assert (order.language, order.options) == ("en", {"categories": ("cs.CL", "cs.LG")})
    assert specs(Collect("arxiv", 5, after="2023-01-01", language="any"))[0].language == ""
    assert [o.member for o in specs(Collect("arxiv", 5, after="2023-01-01", before="2022-01-01"))] == [True, False]


@pytest.mark.slow
def test_a_killed_process_resumes(here, root, service, prose):
    hanging, released = threading.Event(), threading.Event()
    days = [datetime(2023, 3, n, tzinfo=UTC) for n in range(1, 6)]

    def answer(path, query):
        if len(fake.requests) == 2:
            hanging.set()
            released.wait(60)
        items = [
            {
                "question_id": day.day, "title": "Why", "body": f"<p>{prose(day.day)}</p>",
                "link": f"https://x/{day.day}", "creation_date": int(day.timestamp()),
            }
            for day in days
            if day.timestamp() >= int(query["fromdate"])
        ]  # fmt: skip
        return json.dumps({"items": items[:3], "has_more": len(items) > 3}).encode()

    fake = service(answer)
    command = [sys.executable, "-m", "pipelines.collect", "--domain", "stackexchange", "--after", "2023-02-28"]
    command += ["--limit", "50", "--out", "q.jsonl"]
    environment = os.environ | {"PYTHONPATH": str(root), "FSD_STACKEXCHANGE_URL": fake.url}
    try:
        first = subprocess.Popen(command, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert hanging.wait(60)
        first.kill()
        first.communicate()
        released.set()
        assert not (here / "q.jsonl").exists()
        assert (here / "q.jsonl.partial").read_bytes().count(b'{"text"') == 3
        second = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=True)
        third = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
    finally:
        released.set()
    assert [d.date.day for d in read_files([here / "q.jsonl"])] == [1, 2, 3, 4, 5]
    assert "5 texts, 2023-03-01 to 2023-03-05: q.jsonl" in second.stdout
    starts = [query["fromdate"] for _, query in fake.requests]
    assert starts[1:3] == [starts[1]] * 2
    assert len(starts) == 3
    shown = [answer.stdout.partition("\nrun ")[0] for answer in (second, third)]
    assert (third.returncode, shown[1]) == (0, shown[0])  # it is finished: nothing is asked for again
