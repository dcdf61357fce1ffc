"""README and tutorial, followed to the end: every block as it stands, in a plain shell of a fresh clone."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import numpy as np
import pandas as pd
import pytest

from tests.rows import write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("default_signals")]
GOLDEN = Path(__file__).parent / "golden" / "embedded_scores.parquet"
PIP = "[global]\nno-index = true\ndisable-pip-version-check = true\n[install]\nno-build-isolation = false\n"


class Shell(NamedTuple):
    """A clone, and the home of somebody whose environment holds nothing."""

    clone: Path
    home: Path

    def run(self, code: str, **variables: str) -> str:
        """What a block prints; a server is ended by Ctrl-C once its page has been seen."""
        environment = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "COLUMNS": "80", **variables}
        setting = [f"{name}={value}" for name, value in environment.items()]
        printed = []
        with subprocess.Popen(
            ["env", "-i", *setting, "bash", "-e", "-c", code],
            cwd=self.clone,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout
            for line in process.stdout:
                printed.append(line)
                page = re.match(r"http://127\S+", printed[-2]) if line.startswith("Ctrl-C ends") else None
                if page:
                    assert b"<title>MLflow" in urlopen(page[0]).read()
                    os.killpg(process.pid, signal.SIGINT)
        assert process.returncode in (0, 130), "".join(printed)
        return "".join(printed)


@pytest.fixture(scope="module")
def shell(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A fresh clone, and a home in which pip asks no index: it finds what `make setup` wants through a .pth file."""
    if not (root / ".git").exists():
        pytest.skip("this is no checkout that can be cloned")
    folder = tmp_path_factory.mktemp("stranger")
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(root), str(clone)], check=True)
    (folder / ".config" / "pip").mkdir(parents=True)
    (folder / ".config" / "pip" / "pip.conf").write_text(PIP)
    venv.create(clone / ".venv", with_pip=True)
    (library,) = (clone / ".venv" / "lib").glob("python*/site-packages")
    for own in library.glob("setuptools*"):  # of the age of Python
        shutil.rmtree(own)
    (library / "linked.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return Shell(clone, folder)


def blocks(page: Path) -> list[str]:
    """The commands and programs of a page, in a shell that remembers `activate`."""
    found = re.findall(r"^```(bash|python)\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    activated = "source .venv/bin/activate\n"
    return [
        f"{activated * at}{code}" if language == "bash" else f"{activated}python - <<'END'\n{code}END\n"
        for at, (language, code) in ((min(at, 1), block) for at, block in enumerate(found))
    ]


@pytest.fixture
def hub(serve: Callable[..., tuple[str, list[str]]], tiny: Path, make_rows: Callable) -> dict[str, str]:
    """The environment in which a hub has the models and the benchmark of the pages, all of them tiny."""
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(["Example_A", "Label", "ID"])
    table.writerows([row["text"], row["label"], row["group"]] for row in make_rows(200, seed=8))
    weights = {file.name: file.read_bytes() for file in tiny.iterdir()}
    url, _ = serve(
        {
            **{f"EleutherAI/pythia-{size}": weights for size in ("160m", "1.4b")},
            "avduarte333/arXivTection": {"data.csv": out.getvalue().encode()},
        }
    )
    return {"HF_ENDPOINT": url}


def test_the_readme(shell, hub, tiny, make_rows) -> None:
    shutil.copytree(tiny, shell.clone / "my-model")
    write(shell.clone / "mine.jsonl", make_rows(200, seed=0))
    write(shell.clone / "new.jsonl", [{"text": row["text"]} for row in make_rows(20, seed=1)])
    readme = shell.clone / "README.md"
    start, own, library = blocks(readme)
    missing = subprocess.run(
        [sys.executable, "-S", "-m", "pipelines.fsd"], cwd=shell.clone, capture_output=True, text=True, check=False
    )
    assert missing.returncode == 2
    assert missing.stderr.startswith("error: the packages of fsd must be installed in ")
    assert missing.stderr.endswith("source .venv/bin/activate (after make setup), or pip install .\n")
    printed = shell.run(start).splitlines()
    shown = re.search(r"ends with an answer.*?```\n(.*?)```", readme.read_text(encoding="utf-8"), re.S)
    assert shown
    assert not [line for line in shown[1].splitlines() if line.rstrip() not in map(str.rstrip, printed)]
    (file,) = shell.clone.glob("mlruns/*/*/artifacts/scores.parquet")
    compare(pd.read_parquet(file), pd.read_parquet(GOLDEN))
    printed = shell.run(own, **hub).splitlines()
    assert sum(line.startswith("version ") for line in printed) == 2
    assert any("verdict" in line for line in printed)
    assert "base AUC" in shell.run(library)


def compare(scores: pd.DataFrame, golden: pd.DataFrame) -> None:
    """The scores of the main job are those that were recorded."""
    assert set(golden) <= set(scores)  # detectors that are newer than the recording come on top
    pd.testing.assert_frame_equal(scores[["id", "label", "group", "split"]], golden[["id", "label", "group", "split"]])
    for column in [column for column in golden if "." in column]:
        detector = column.rpartition(".")[0]
        scale = max(1, golden.filter(regex=rf"^{detector}\.").abs().max().max())  # perplexities run to 300
        # On the machine of the recording all are equal bitwise; another one may round the training differently.
        limit = 1e-6 if column.endswith(".base") else 1e-5
        np.testing.assert_allclose(scores[column], golden[column], rtol=0, atol=limit * scale, err_msg=column)


def test_the_tutorial(shell, hub, root, make_rows, prose, service) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location(
        "arxiv", root / "tests" / "fsd" / "collection" / "domains" / "test_arxiv.py"
    )
    assert spec
    assert spec.loader
    spec.loader.exec_module(papers := importlib.util.module_from_spec(spec))
    (mirror,) = papers.publish([(date(2021, 1, day), prose(day, 60)) for day in range(1, 29)], service, shell.home)
    page = shell.clone / "docs" / "tutorial.md"
    (example,) = re.findall(r"^```\n(\{.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    columns = [set(json.loads(line)) for line in example.splitlines()]
    rows = make_rows(200, seed=2)
    assert columns == [set(row) for row in rows[:2]]
    days = {0: "2023-03-09", 1: "2018-05-02"}
    write(shell.clone / "mine.jsonl", [{**row, "date": days[row["label"]]} for row in rows])
    write(shell.clone / "new.jsonl", [{"text": row["text"]} for row in make_rows(20, seed=3)])
    printed = "".join(shell.run(block, FSD_ARXIV_URL=mirror.removeprefix("mirror="), **hub) for block in blocks(page))
    assert "dry run: nothing was trained" in printed
    assert (shell.clone / "later.jsonl").read_text().count("\n") == 28
    assert len(pd.read_csv(shell.clone / "verdicts.csv")) == 20
