"""English prose that is available offline: paragraphs from the docstrings of installed packages."""

import ast
import importlib.util
import json
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

from fsd.api import StorageError, UsageError, content_hash, default_folder
from pipelines.api import write_file

PACKAGES = ("matplotlib", "numpy", "pandas", "scipy", "sklearn", "torch")
MIN_WORDS = 20
MAX_WORDS = 160
_CODE = re.compile(r">>>|::|\.\. |---|===|[{}\[\]|<>]|``[^`]{30,}")


def docstring_paragraphs(packages: Sequence[str] = PACKAGES, *, limit: int, seed: int) -> list[str]:
    """A random sample of `limit` distinct paragraphs of prose from the docstrings of installed packages."""
    # docstrings that are inherited or copied count once
    paragraphs = set(chain.from_iterable(map(_prose, packages)))
    if len(paragraphs) < limit:
        names = ", ".join(packages)
        raise UsageError(f"background must have {limit} paragraphs; the docstrings of {names} have {len(paragraphs)}")
    # sorted: the order of a set differs from one process to the next
    return random.Random(seed).sample(sorted(paragraphs), limit)


def _prose(package: str) -> list[str]:
    """The paragraphs of a package, which the cache keeps until its files change: torch alone takes 14 s."""
    files = _files(package)
    # this file too: what counts as prose is decided here
    states = [(str(file), file.stat().st_mtime_ns) for file in chain(files, [Path(__file__)])]
    kept = default_folder() / "docstrings" / f"{content_hash(repr(states))}.json"
    with suppress(OSError, ValueError):
        return list(json.loads(kept.read_bytes()))
    paragraphs = list(chain.from_iterable(map(_paragraphs, modules(package))))
    # a cache that cannot be written costs time alone
    with suppress(OSError, StorageError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_file(kept, partial(Path.write_text, data=json.dumps(paragraphs)))
    return paragraphs


def _files(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"packages of texts must be installed; {package!r} is not")
    root = Path(spec.submodule_search_locations[0])
    return sorted(file for file in root.rglob("*.py") if "tests" not in file.parts)


def modules(package: str) -> Iterator[ast.Module]:
    """The modules of an installed package but its tests, as trees."""
    for file in _files(package):
        # templates and test data among the sources
        with suppress(SyntaxError, UnicodeDecodeError):
            yield ast.parse(file.read_text(encoding="utf-8"))


def _paragraphs(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        for block in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
            words = block.replace("`", "").split()
            text = " ".join(words)
            letters = sum(map(str.isalpha, text)) + text.count(" ")
            if not MIN_WORDS <= len(words) <= MAX_WORDS or _CODE.search(block):
                continue
            if text[0].isupper() and text.endswith(".") and letters > 0.9 * len(text):
                yield text
