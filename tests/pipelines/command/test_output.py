"""Output paths are checked before any work, never replace an input, and are written completely or not at all."""

import errno
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pandas as pd
import pytest

from fsd.data.readers import read_files
from fsd.errors import StorageError, UsageError
from pipelines.command.job import Job, check_space
from pipelines.command.output import ROWS, check_path, check_table_path, write_rows, write_table


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_text("{}\n")
    Path("link.jsonl").symlink_to("data.jsonl")
    Path("hard.jsonl").hardlink_to("data.jsonl")
    Path("folder.jsonl").mkdir()


def test_an_output_never_replaces_an_input() -> None:
    for out in ("data.jsonl", "./data.jsonl", "folder.jsonl/../data.jsonl", "link.jsonl", "hard.jsonl"):
        with pytest.raises(UsageError, match="must not replace an input"):
            check_table_path(Path(out), ["wikimia:64", "no such file", "data.jsonl"])


def test_an_output_does_not_become_an_input_of_its_folder() -> None:
    for out in ("folder.jsonl/old.jsonl", "folder.jsonl/new/out.csv", "folder.jsonl/new.parquet"):
        Path(out).parent.mkdir(exist_ok=True)
        with pytest.raises(UsageError, match=rf"must not be in a folder of inputs, .*; {out} is in folder.jsonl$"):
            check_table_path(out, ["folder.jsonl"])
    check_path(Path("folder.jsonl/report.html"), ["folder.jsonl"])
    check_table_path("folder.csv", ["folder.jsonl", "x" * 300])


def test_the_first_rows_of_a_large_table_may_have_no_values() -> None:
    rows = [{"text": "a", "share": None, "answered": None}] * ROWS + [{"text": "b", "share": 0.5, "answered": True}]
    write_rows(rows, Path("out.parquet"), rows[-1])
    assert pd.read_parquet("out.parquet")["share"].tolist()[-1] == 0.5


def test_a_path_that_cannot_be_written_is_refused_and_a_check_changes_nothing(tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    for out, message in (
        ("folder.jsonl", "not be a folder"),
        ("nowhere/out.csv", "a folder that exists"),
        ("/dev/null", "folder or device"),
        (f"{'x' * 300}.csv", "File name too long"),
        ("/proc/out.csv", "cannot be: "),
    ):
        with pytest.raises(UsageError, match=message):
            check_path(Path(out))
    check_path(Path("new.csv"))
    check_path(Path("data.jsonl"))
    assert sorted(tmp_path.iterdir()) == before
    assert Path("data.jsonl").read_text() == "{}\n"


def test_a_text_with_any_line_break_stays_one_row_of_a_csv_file() -> None:
    texts = ["a\rb", "c\nd", 'e\r\nf "g", h', "i"]
    table = pd.DataFrame({"text": texts, "label": pd.array([1, 0, None, 1], dtype="Int64"), "loss": [0.5, 1e-9, 2, 3]})
    write_table(table, Path("out.csv"))
    assert [document.text for document in read_files(["out.csv"])] == texts
    pd.testing.assert_frame_equal(pd.read_csv("out.csv", dtype={"label": "Int64"}), table)
    write_table(table.iloc[1:2], Path("plain.csv"))
    assert Path("plain.csv").read_bytes() == b'text,label,loss\n"c\nd",0,1e-09\n'


def test_a_full_disk_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: pd.DataFrame, path: Path, **_: object) -> None:
        path.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(pd.DataFrame, "to_json", full)
    with pytest.raises(StorageError, match=r"data\.jsonl cannot be written: No space left on device"):
        write_table(pd.DataFrame({"a": [1]}), Path("data.jsonl"))
    assert Path("data.jsonl").read_text() == "{}\n"
    assert sorted(tmp_path.iterdir()) == before


def test_the_space_needed_is_that_of_figures_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 MiB for the figures and the page, and at least a byte for eight characters, however well texts compress."""
    texts, needed = ["x" * 2**20] * 8, 2 * 2**20
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(needed))
    check_space(texts)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(needed - 1))
    with pytest.raises(UsageError, match=r"must have at least 2\.0 MiB of free space"):
        check_space(texts)


def test_a_job_looks_for_space_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: namedtuple("Usage", "free")(500_000))
    with pytest.raises(UsageError, match=r"must have at least 1\.0 MiB of free space"):
        Job(lambda: pytest.fail("the work was begun"), {}, experiment="fsd-x").run()
    assert not Path("mlruns").exists()
