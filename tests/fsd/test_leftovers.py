"""Processes are recognised after their end, and what they left is removed by a later one."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fsd.leftovers import has_ended, own_temporary_files, temporary_folder, this_process


@pytest.fixture(scope="module")
def ended():
    """Identity of a process that has ended."""
    code = "from fsd.leftovers import this_process; print(this_process())"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment).stdout.strip()


def test_a_process_that_runs_has_not_ended_and_a_child_that_did_has(ended):
    assert not has_ended(this_process())
    assert has_ended(ended)
    host_and_pid, _, started = this_process().rpartition("-")
    assert has_ended(f"{host_and_pid}-{int(started) - 1}")  # a process id that is used again
    for elsewhere in ("", "elsewhere-4026531836-1-1", "no process at all"):
        assert not has_ended(elsewhere)


def test_folders_of_ended_processes_are_removed_and_no_others(ended, tmp_path):
    kept = [tmp_path / "fsd-of-somebody", tmp_path / f"fsd-{this_process()}-a", tmp_path / "fsd-elsewhere-0-1-1-a"]
    left = tmp_path / f"fsd-{ended}-a"
    for folder in (*kept, left):
        folder.mkdir()
        (folder / "file").touch()
    with temporary_folder(tmp_path) as own:
        assert own.is_dir()
        assert not left.exists()
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_temporary_files_of_libraries_are_in_the_folder_of_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with own_temporary_files():
        tempfile.mkdtemp()
        (folder,) = tmp_path.iterdir()
        assert folder.name.startswith(f"fsd-{this_process()}-")
        assert list(folder.iterdir())
    assert list(tmp_path.iterdir()) == []
    assert tempfile.gettempdir() == str(tmp_path)
