"""Pages that are kept elsewhere: README, CONTRIBUTING, CHANGELOG, the notebooks, and the help of every command."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


BOOST = {"api/": 0.001, "changelog.md": 0.01, "bad_input.md": 0.01, "contributing.md": 0.01}
"""Start of a page's path → its weight in the search, where it would otherwise hide pages that answer a question.

A word in a title counts a thousand times as much as one in a text, and every name of the API is a title.
"""


def on_config(config: MkDocsConfig) -> None:
    """State the version at the foot of every page."""
    config.copyright = f"fsd {version('fsd')}, Apache-2.0"


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages."""
    docs = Path(config.docs_dir)
    texts = {page: (docs.parent / source).read_text(encoding="utf-8") for source, page in PAGES.items()}
    texts |= {f"notebooks/{path.stem}.md": notebook(path) for path in docs.glob("notebooks/*.ipynb")}
    texts["commands.md"] = "\n\n".join(["# Commands and flags", *helps(docs.parent)])
    for page, text in texts.items():
        files.append(File.generated(config, page, content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site, as they are written for the repository; rank the page, and lay it out."""
    page.meta["search"] = {
        "boost": min((BOOST[path] for path in BOOST if page.file.src_uri.startswith(path)), default=1)
    }
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]  # it would be empty
    up = "../" * page.file.src_uri.count("/")
    markdown = re.sub(r"\]\(\.\./detectors/(\w+)\.py\)", r"](api/detectors.md#detectors.\1)", markdown)
    for source, target in PAGES.items():
        markdown = re.sub(rf"\]\((?:\.\./)*{re.escape(source)}(?=[)#])", f"]({up}{target}", markdown)
    if page.file.src_uri in PAGES.values():
        markdown = markdown.replace("](docs/", "](")
        markdown = re.sub(
            r"^(?= {3}\S| {4,}\S)", " ", markdown, flags=re.M
        )  # Markdown of the site indents lists by four
    return markdown


def helps(root: Path) -> Iterator[str]:
    """The help of every command under its name, as a terminal of 80 columns shows it."""
    from pipelines.command.commands import by_question, commands

    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "80"}
    for group in by_question(commands()).values():
        for name, about in group.items():
            line = [sys.executable, "-m", "pipelines", *name.split(), "--help"]
            done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
            yield f"## fsd {name}\n\n{about}\n\n```text\n{done.stdout.strip()}\n```"


def notebook(path: Path) -> str:
    """The cells of a notebook as Markdown: code in blocks, and what it gave."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
        parts += filter(None, map(given, cell.get("outputs", [])))
    return "\n\n".join([*parts, f"[Download this page as a notebook]({path.name})"])


def given(output: dict[str, Any]) -> str:
    """An output of a cell: a picture, a table, or text in a block."""
    data = {kind: "".join(content) for kind, content in output.get("data", {}).items()}
    if "image/png" in data:
        return f"![figure](data:image/png;base64,{data['image/png'].strip()})"
    text = data.get("text/plain", "".join(output.get("text", [])))
    table = data.get("text/html", "").replace(' border="1" class="dataframe"', "")  # the site's own look
    return table or (text and f"```text\n{text}\n```")
