"""What a killed process left is removed by a later one."""

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from fsd.leftovers import own_temporary_files, temporary_folder, write_whole

HERE = f"{platform.node()}.{Path('/proc/self/ns/pid').stat().st_ino}"


def test_folders_of_ended_processes_are_removed_and_no_others(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = ("fsd-of-somebody", f".fsd-{HERE}.{os.getpid()}-a", f".fsd-elsewhere.1.{ended.pid}-a", f".fsd-{HERE}.a-b")
    kept = [tmp_path / name for name in names]
    left = tmp_path / f".fsd-{HERE}.{ended.pid}-a"
    for folder in (*kept, left):
        folder.mkdir()
        (folder / "file").touch()
    with temporary_folder(tmp_path) as own:
        assert own.is_dir()
        assert not left.exists()
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_a_container_of_the_same_host_name_loses_no_folder_that_it_uses(tmp_path, monkeypatch):
    """Its process ids are of another namespace: here they look like those of ended processes."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with monkeypatch.context() as container:
        container.setattr(os, "getpid", lambda: ended.pid)
        container.setattr(Path, "resolve", lambda _: Path("pid:[1]"))
        theirs = temporary_folder(tmp_path)
        used = theirs.__enter__()
    with temporary_folder(tmp_path):
        assert used.is_dir()
    theirs.__exit__(None, None, None)


def test_temporary_files_of_libraries_are_in_the_folder_of_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with own_temporary_files():
        tempfile.mkdtemp()
        (folder,) = tmp_path.iterdir()
        assert folder.name.startswith(f"fsd-{HERE}.{os.getpid()}-")
        assert list(folder.iterdir())
    assert list(tmp_path.iterdir()) == []
    assert tempfile.gettempdir() == str(tmp_path)


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """A power cut leaves the old file or the new one, with its mode."""
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    sync = os.fsync
    stored = []

    def noted(file):
        stored.append((os.fstat(file.fileno()).st_size, path.read_text()))
        sync(file)

    monkeypatch.setattr(os, "fsync", noted)
    write_whole(path, b"newer")
    assert stored == [(5, "old")]
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("newer", 0o640)
