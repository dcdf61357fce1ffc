"""docs/supported.md says what the matrices of tests/data try; `pytest --regenerate` writes its tables."""

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WAYS = {
    "switched": "yes: switched on and off in one network",
    "apart": "yes: base and fine-tuned model are loaded apart",
    "refused": "no: refused, give the whole fine-tuned model by `--tuned`",
}
"""How an adapter is used → what the page says."""


def matrix(name: str) -> dict[str, Any]:
    """What is tried, by the file's name."""
    content: dict[str, Any] = yaml.safe_load((ROOT / "tests" / "data" / f"{name}.yaml").read_text(encoding="utf-8"))
    return content


def table(*rows: tuple[object, ...]) -> str:
    """A table of Markdown; the first row is its head."""
    head, *others = rows
    lines = [head, ("---",) * len(head), *others]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def by_kind(kinds: dict[str, str]) -> list[tuple[str, int, str]]:
    """Kind, number and names, of names with their kinds."""
    names: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        names.setdefault(kind, []).append(f"`{name}`")
    return [(kind, len(of_kind), ", ".join(of_kind)) for kind, of_kind in names.items()]


def architectures() -> str:
    kinds = {name: about["kind"] for name, about in matrix("architectures")["architectures"].items()}
    return table(("kind", "number", "architectures"), *by_kind(kinds))


def adapters() -> str:
    ways = {name: WAYS[about["how"]] for name, about in matrix("adapters").items()}
    return table(("read", "number", "kinds, as saved by PEFT"), *by_kind(ways))


def tokenizers() -> str:
    tried = matrix("tokenizers")
    classes = ", ".join(f"`{name}`" for name in tried["classes"] if name)
    models = ", ".join(f"`{name}`" for name in tried["models"])
    rows = [("`tokenizer.json`", "classes", "models"), *((about, "", "") for about in tried["files"].values())]
    rows[1] = (rows[1][0], f"{classes}, or none", models)
    return table(*rows)


def services() -> str:
    rows = [("what a service answers", "here")]
    for about in matrix("tokenizers")["services"]:
        reason = about.get("refused")
        rows.append((about["name"], f"refused: {reason}" if reason else "read"))
    return table(*rows)


@pytest.mark.parametrize("made", [architectures, adapters, tokenizers, services])
def test_the_page_says_what_is_tried(made: Any, request: pytest.FixtureRequest) -> None:
    page = ROOT / "docs" / "supported.md"
    before, start, rest = page.read_text(encoding="utf-8").partition(f"<!-- {made.__name__} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if request.config.getoption("--regenerate"):
        page.write_text(before + start + made() + end + after, encoding="utf-8")
    assert f"{start}{made()}{end}" in page.read_text(encoding="utf-8")
