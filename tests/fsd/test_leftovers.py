"""What a killed process left is removed by a later one."""

import os
import platform
import subprocess
import sys
import tempfile

from fsd.leftovers import own_temporary_files, temporary_folder


def test_folders_of_ended_processes_are_removed_and_no_others(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = platform.node()
    names = ("fsd-of-somebody", f".fsd-{here}.{os.getpid()}-a", f".fsd-elsewhere.{ended.pid}-a", f".fsd-{here}.a-b")
    kept = [tmp_path / name for name in names]
    left = tmp_path / f".fsd-{here}.{ended.pid}-a"
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
        assert folder.name.startswith(f"fsd-{platform.node()}.{os.getpid()}-")
        assert list(folder.iterdir())
    assert list(tmp_path.iterdir()) == []
    assert tempfile.gettempdir() == str(tmp_path)
