"""The line that stands on the terminal while the libraries of a command are imported."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

SLOW = "import sys\nsys.stderr.write('the libraries')\nsys.stderr.flush()\nsys.exit(3)\n"


def printed(arguments: list[str], root: Path, folder: Path, **variables: str) -> str:
    """What a command prints on a terminal, with libraries that end it as soon as the first one is imported."""
    (folder / "numpy.py").write_text(SLOW, encoding="utf-8")
    (folder / "tyro.py").write_text(SLOW, encoding="utf-8")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{root}", "TERM": "xterm", **variables}
    with subprocess.Popen([sys.executable, *arguments], env=environment, stderr=theirs, stdout=theirs) as process:
        process.wait(60)
        os.close(theirs)
        text = os.read(ours, 2**16).decode()
    os.close(ours)
    return text


def test_a_command_is_seen_before_its_libraries_are_imported(root: Path, tmp_path: Path) -> None:
    for module in ("pipelines", "pipelines.ui"):
        assert printed(["-m", module, "run"], root, tmp_path) == "loading …\rthe libraries\x1b[K"


@pytest.mark.parametrize(
    ("arguments", "variables"), [(["--json"], {}), ([], {"TERM": "dumb"}), ([], {"RANK": "1", "WORLD_SIZE": "2"})]
)
def test_programs_logs_and_further_processes_do_not_get_the_line(
    arguments: list[str], variables: dict[str, str], root: Path, tmp_path: Path
) -> None:
    assert printed(["-m", "pipelines.ui", *arguments], root, tmp_path, **variables) == "the libraries"


def test_the_library_does_not_print_it(root: Path, tmp_path: Path) -> None:
    assert printed(["-c", "import pipelines"], root, tmp_path) == "the libraries"
