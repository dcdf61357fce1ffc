"""Folders of shards: each computed once, by whom and however often it is begun, with the same bytes."""

import errno
import json
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from extensions.shards import shards
from fsd.scoring.token_frequencies import FrequencyTable
from pipelines.command.workers import Worker
from pipelines.score import job as score

DETECTORS = "loss,min_k,lowercase"


@pytest.fixture(scope="module")
def line(tiny, make_rows, tmp_path_factory) -> str:
    """The command without its output: 30 texts in three files, one empty, one with a context, one without labels."""
    folder = tmp_path_factory.mktemp("texts")
    rows = make_rows(30, seed=0)
    parts = {"a": rows[:20], "b": [{"text": "在的是了" * 4, "context": "Once."} for _ in rows[20:]], "c": []}
    for name, part in parts.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    (folder / "d.jsonl").write_text("\n\n")
    return f"score --data {folder} --model {tiny} --device cpu --detectors {DETECTORS} --shard-rows 8"


@pytest.fixture(scope="module")
def whole(line, run_command, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "out"
    run_command(f"{line} --out {folder}")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.name != shards.MANIFEST}


def exit_of(run: Callable[[str], str], line: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(line)
    return int(ended.value.code or 0)


def test_a_folder_reads_as_one_table_whatever_columns_its_files_have(whole, line) -> None:
    table = pd.read_parquet(whole)
    names = [f"{name}.base" for name in DETECTORS.split(",")]
    assert list(table) == ["source", "text", "context", "label", "group", *names]
    assert len(list(whole.glob("*.parquet"))) == 6
    assert table["source"].str.endswith((".jsonl:1", ".jsonl:20")).sum() == 3
    assert len(table) == 30
    assert table["label"].isna().sum() == 10
    assert np.isfinite(table[["loss.base", "min_k.base"]]).all(axis=None)
    assert table["lowercase.base"].isna().sum() == 10  # these texts have no case


def test_shares_and_what_was_lost_give_the_same_bytes(whole, line, run_command, tmp_path, monkeypatch) -> None:
    out = tmp_path / "out"
    run_command(f"{line} --out {out} --shard 2/3")
    assert sorted(content(out)) == ["000001.parquet", "000004.parquet"]
    (out / "000004.parquet").write_bytes(content(out)["000004.parquet"][:-9])  # as after a power cut
    (out / ".part-of-another").mkdir()
    computed: list[int] = []
    compute = shards.computed
    monkeypatch.setattr(
        shards, "computed", lambda worker, shard, key: computed.append(shard.number) or compute(worker, shard, key)
    )
    printed = run_command(f"{line} --out {out}")
    assert computed == [0, 2, 3, 4, 5]
    assert "1 shards were there" in printed
    (out / ".part-of-another").rmdir()
    assert content(out) == content(whole)
    monkeypatch.setattr(score, "open_worker", lambda _: pytest.fail("a model was loaded"))
    run_command(f"{line} --out {out}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("--detectors loss", 'has detectors "loss,min_k,lowercase", not "loss"'),
        ("--shard-rows 9", "has shard_rows 8, not 9"),
        ("--model embedded", 'has model "'),
    ],
)
def test_a_folder_of_another_job_is_refused(whole, line, change, message, run_command, capsys) -> None:
    before = content(whole)
    flag = change.split()[0]
    words = line.split()
    words[words.index(flag) : words.index(flag) + 2] = change.split()
    assert exit_of(run_command, f"{' '.join(words)} --out {whole}") == 2
    assert message in capsys.readouterr().err
    assert content(whole) == before


def test_other_texts_weights_and_versions_are_refused(
    whole, line, other, run_command, tmp_path, capsys, monkeypatch
) -> None:
    data, model = line.split()[2], line.split()[4]
    mine, out = tmp_path / "mine", tmp_path / "out"
    shutil.copytree(data, mine / "data")
    shutil.copytree(model, mine / "model")
    own = line.replace(data, str(mine / "data")).replace(model, str(mine / "model"))
    run_command(f"{own} --out {out} --shard 1/6")
    for change, message in (
        (lambda: (mine / "data" / "c.jsonl").write_text('{"text": "new"}\n'), "has inputs"),
        (lambda: (mine / "data" / "c.jsonl").write_text(""), ""),
        (lambda: shutil.copytree(other, mine / "model", dirs_exist_ok=True), "has model_weights"),
        (lambda: monkeypatch.setattr(shards, "version", lambda _: "9"), f'has fsd "{version("fsd")}", not "9"'),
    ):
        change()
        if not message:
            run_command(f"{own} --out {out} --shard 1/6")
        else:
            assert exit_of(run_command, f"{own} --out {out} --shard 2/6") == 2
            assert message in capsys.readouterr().err


def test_chats_by_another_template_are_refused(tiny, run_command, tmp_path, capsys) -> None:
    turns = [{"role": "user", "content": "the score"}, {"role": "assistant", "content": "of a text"}]
    file = tmp_path / "chats.jsonl"
    file.write_text((json.dumps({"messages": turns}) + "\n") * 4)
    template = tmp_path / "t.jinja"
    out = tmp_path / "out"
    line = f"score --data {file} --model {tiny} --device cpu --detectors loss --chat-template {template} --out {out}"
    opening = "{% if add_generation_prompt %}assistant{% endif %}"
    template.write_text("{% for m in messages %}{{ m.role + m.content }}{% endfor %}" + opening)
    run_command(f"{line} --shard-rows 2 --shard 1/2")
    template.write_text("{% for m in messages %}{{ m.role + '!' + m.content }}{% endfor %}" + opening)
    assert exit_of(run_command, f"{line} --shard-rows 2 --shard 2/2") == 2
    assert "has model_template" in capsys.readouterr().err


def faulty(worker: Worker, fails: Callable[[list], bool]) -> Worker:
    def table(rows):
        if fails(rows):
            raise RuntimeError("the scorer broke")
        return worker.table(rows)

    return worker._replace(table=table)


def test_a_shard_that_fails_is_named(whole, line, run_command, tmp_path, capsys, monkeypatch) -> None:
    opened = score.open_worker
    broken = lambda rows: rows and rows[0][0].endswith("a.jsonl:9")  # noqa: E731
    monkeypatch.setattr(score, "open_worker", lambda config: faulty(opened(config), broken))
    assert exit_of(run_command, f"{line} --out {tmp_path / 'always'}") == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("error: 1 of 6 shards could not be computed: 000001.parquet (")
    assert "a.jsonl:9-16): the scorer broke; to continue: fsd score" in message
    expected = {name: file for name, file in content(whole).items() if name != "000001.parquet"}
    assert content(tmp_path / "always") == expected


def test_a_bad_row_is_named_and_the_other_shards_are_computed(tiny, run_command, tmp_path, capsys) -> None:
    texts = ['{"text": "one"}', '{"text": "two"}', '{"text": 3}', '{"text": "four"}']
    (tmp_path / "x.jsonl").write_text("\n".join(texts))
    line = f"score --data {tmp_path}/*.jsonl --model {tiny} --device cpu --detectors loss --out {tmp_path / 'out'}"
    assert exit_of(run_command, f"{line} --shard-rows 2") == 1
    assert "x.jsonl:3: text must be a string that is not blank; got 3" in capsys.readouterr().err
    assert len(pd.read_parquet(tmp_path / "out")) == 2
    assert exit_of(run_command, f"{line}2 --shard-rows 4") == 2  # nothing could be computed


def test_a_full_disk_is_one_line_and_leaves_whole_files_alone(line, run_command, tmp_path, capsys, monkeypatch) -> None:
    replace = Path.replace

    def full(draft: Path, target: Path) -> Path:
        if len(list((tmp_path / "out").glob("*.parquet"))) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", full)
    assert exit_of(run_command, f"{line} --out {tmp_path / 'out'}") == 1
    assert "000002.parquet cannot be written: No space left on device; to continue" in capsys.readouterr().err
    assert sorted(content(tmp_path / "out")) == ["000000.parquet", "000001.parquet"]


def test_frequencies_of_shards_are_those_of_the_files(line, tiny, run_command, tmp_path) -> None:
    data = Path(line.split()[2])
    run_command(f"frequencies --corpus {data} --out {tmp_path / 'out'} --model {tiny} --shard-rows 7")
    files = [str(data / name) for name in ("a.jsonl", "b.jsonl", "d.jsonl")]
    run_command(f"frequencies --corpus {' '.join(files)} --out {tmp_path / 'f.npz'} --model {tiny}")
    ours, theirs = (FrequencyTable.load(file) for file in (tmp_path / "out" / "_frequencies.npz", tmp_path / "f.npz"))
    np.testing.assert_array_equal(ours.counts, theirs.counts)
    assert (ours.documents, ours.fingerprint) == (theirs.documents, theirs.fingerprint) == (30, ours.fingerprint)
