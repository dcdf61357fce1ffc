"""An extension of somebody else's package: its command runs, its rows are read, and nothing of this tree names it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = '''
"""Poems as texts, and a command that counts their verses."""

from dataclasses import dataclass
from functools import partial

from fsd.plugs import Command, Plug
from fsd.token_stats import Chat, Turn

PLUG = Plug(commands={"verses": Command("poetry", "poems", "count the verses of poems")}, row="poems:poem_in")


def poem_in(row, value, origin_url, columns):
    if "verses" not in row:
        return None
    return Chat((Turn("", row["title"]), Turn("", " ".join(row["verses"]))), 1, origin_url)


@dataclass(frozen=True)
class VersesConfig:
    """A file of poems."""

    data: tuple[str, ...]
    """Files of poems."""


def prepare(config):
    from fsd.data.readers import read_files
    from pipelines.command.job import Job

    poems = read_files(config.data, answers=True)
    return Job(partial(print, *[poem.chat.turns[1].content for poem in poems]), {}, experiment="fsd-verses")


if __name__ == "__main__":
    from pipelines.command.cli import command

    command(VersesConfig, prepare, __doc__)
'''


@pytest.fixture
def fsd(root: Path, tmp_path: Path):
    """Run `fsd` where the package is installed."""
    (tmp_path / "poems.py").write_text(PACKAGE, encoding="utf-8")
    metadata = tmp_path / "poems-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: poems\nVersion: 1\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[fsd.extensions]\npoems = poems:PLUG\n", encoding="utf-8")
    poem = {"title": "Two lines", "verses": ["The first is short.", "The second one is longer."]}
    (tmp_path / "poems.jsonl").write_text(json.dumps(poem) + "\n", encoding="utf-8")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pipelines", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"},
            check=False,
        )

    return run


def test_a_package_outside_the_tree_adds_a_command_and_a_layout_of_rows(fsd) -> None:
    assert "poetry:\n  verses         count the verses of poems\n" in fsd("--help").stdout
    done = fsd("verses", "--data", "poems.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The first is short. The second one is longer.\n"
