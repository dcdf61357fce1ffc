"""The documentation site: it builds without a warning, every page has a place in it, and the notebook runs."""

import copy
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.command.commands import commands

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    if not all(importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings")):
        pytest.skip("the site needs mkdocs-material and mkdocstrings: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "site" / "api" / "library" / "index.html").read_text(encoding="utf-8")
    assert "Score texts before and after fine-tuning the model on unseen texts" in reference
    assert 'id="detectors.min_k.min_k"' in (tmp_path / "site" / "api" / "detectors" / "index.html").read_text("utf-8")
    entries = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    weights = {entry["location"].startswith("api/"): entry.get("boost", 1) for entry in entries}
    assert weights[True] < 0.01 < weights[False]  # or names of the library would hide the pages
    flags = (tmp_path / "site" / "commands" / "index.html").read_text("utf-8")
    assert all(f'id="fsd-{name.replace(" ", "-")}"' in flags for name in commands())
    assert "--target-modules" in flags
    page = (tmp_path / "site" / "notebooks" / "first_steps" / "index.html").read_text("utf-8")
    assert ">deviation</span>" in page
    assert "data:image/png" in page


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f": {page}\n" not in navigation] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_gives_what_it_keeps(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("nbclient", reason="nbclient, which runs notebooks, is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel, which notebooks run in, is not installed")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    kept = nbformat.read(path, as_version=4)
    assert path.stat().st_size < 100_000
    run = client.NotebookClient(copy.deepcopy(kept), timeout=250, resources={"metadata": {"path": str(tmp_path)}})
    run.execute()
    assert [said(cell) for cell in run.nb.cells] == [said(cell) for cell in kept.cells]
    assert all(cell.outputs for cell in kept.cells if cell.cell_type == "code")


def said(cell: Any) -> list[tuple[str, str]]:
    """What a cell gave, as text; of a bar nothing is left."""
    texts = [(one.output_type, one.get("data", one).get("text/plain", "")) for one in cell.get("outputs", [])]
    return [one for one in texts if one != ("display_data", "")]
