"""The documentation site: it builds without a warning, every page has a place in it, and the notebook runs."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

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
    assert ">deviation</span>" in (tmp_path / "site" / "notebooks" / "first_steps" / "index.html").read_text("utf-8")


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]

    assert [page for page in pages if f": {page}\n" not in navigation] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells as plain Python, which needs no kernel."""
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {}
    for cell in cells:
        assert cell["outputs"] == []  # they would be of some earlier version
        exec(compile("".join(cell["source"]), path.name, "exec"), names)
    plt.close("all")

    scores, results = names["scores"], names["results"]
    assert list(scores.columns) == [
        f"{name}.{state}" for name in ("loss", "min_k") for state in ("base", "tuned", "fsd")
    ]
    assert scores.notna().all(axis=None)
    assert (scores["loss.base"] == names["base"]["loss.base"]).all()
    assert {"auc", "auc_gain"} <= set(results.metric)
