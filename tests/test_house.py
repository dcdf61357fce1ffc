"""Who leans on whom: the core, and the extensions that stand on it; the figures of `MOST` may only fall.

    python tests/test_house.py

prints a row a wing. An extension is a folder of `extensions/`. A name is counted once, however many files take it.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ("fsd", "detectors", "pipelines")
MOST = {
    "nodes": 304_990,
    "nodes of the core": 210_090,
    "nodes of extensions": 94_900,
    "nodes that fsd run reaches": 145_890,
    "nodes that import fsd reaches": 71_520,
    "names from the core": 333,
    "files of the core that they come from": 2,
    "names back": 0,
    "names among extensions": 0,
}
STARTS = {"fsd run": ("pipelines/fsd.py",), "import fsd": ("fsd/__init__.py", "fsd/estimator.py")}
Name = tuple[str, str]
"""File, and what is taken from it."""


@dataclass
class Source:
    """A file: its nodes, the files that it imports, and the names that it takes from them."""

    nodes: int = 0
    imports: set[str] = field(default_factory=set)
    names: set[Name] = field(default_factory=set)


class House:
    """The files below a folder, and what they take from each other."""

    def __init__(self, root: Path) -> None:
        self.sources = {}
        for top in (*CORE, "extensions"):
            for file in sorted((root / top).rglob("*.py")):
                self.sources[file.relative_to(root).as_posix()] = Source()
        for path, source in self.sources.items():
            self._read(source, ast.parse((root / path).read_text(encoding="utf-8")))

    def _read(self, source: Source, tree: ast.Module) -> None:
        modules: dict[str, str] = {}
        every = list(ast.walk(tree))
        source.nodes = len(every)
        for node in every:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self._take(source, node.module, alias, modules)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    file = self._file(alias.name)
                    if file:
                        source.imports.add(file)
                        modules[alias.asname or alias.name.split(".")[0]] = file
        for node in every:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                source.names.add((modules[node.value.id], node.attr))

    def _take(self, source: Source, module: str, alias: ast.alias, modules: dict[str, str]) -> None:
        """Note a name of a module, or a module of a package, whose attributes are the names that are taken."""
        below = self._file(f"{module}.{alias.name}")
        file = below or self._file(module)
        if file is None:
            return
        source.imports.add(file)
        if below:
            modules[alias.asname or alias.name] = below
        else:
            source.names.add((file, alias.name))

    def _file(self, module: str) -> str | None:
        base = module.replace(".", "/")
        for path in (f"{base}.py", f"{base}/__init__.py"):
            if path in self.sources:
                return path
        return None

    @cached_property
    def nodes(self) -> Counter[str]:
        """Wing → its nodes."""
        counts: Counter[str] = Counter()
        for path, source in self.sources.items():
            counts[wing(path)] += source.nodes
        return counts

    @cached_property
    def across(self) -> set[tuple[str, str, Name]]:
        """Every wing that takes a name of another: taker, giver, name."""
        taken = set()
        for path, source in self.sources.items():
            for name in source.names:
                taken.add((wing(path), wing(name[0]), name))
        return {crossing for crossing in taken if crossing[0] != crossing[1]}

    def reached(self, starts: tuple[str, ...]) -> set[str]:
        """The files that some files import, also within functions, and what these import."""
        seen: set[str] = set()
        waiting = list(starts)
        while waiting:
            path = waiting.pop()
            if path not in seen:
                seen.add(path)
                waiting += self.sources[path].imports
        return seen

    def figures(self) -> dict[str, int]:
        """The figures under the names of `MOST`."""
        from_core = {name for taker, giver, name in self.across if giver == "core"}
        back = {(giver, name) for taker, giver, name in self.across if taker == "core"}
        among = {crossing for crossing in self.across if "core" not in crossing}
        reached = {start: self._size(self.reached(files)) for start, files in STARTS.items()}
        total = self.nodes.total()
        return {
            "nodes": total,
            "nodes of the core": self.nodes["core"],
            "nodes of extensions": total - self.nodes["core"],
            "nodes that fsd run reaches": reached["fsd run"],
            "nodes that import fsd reaches": reached["import fsd"],
            "names from the core": len(from_core),
            "files of the core that they come from": len({file for file, _ in from_core}),
            "names back": len(back),
            "names among extensions": len(among),
        }

    def _size(self, files: set[str]) -> int:
        return sum(self.sources[file].nodes for file in files)

    def rows(self) -> Iterator[str]:
        """A row a wing: nodes, names of the core, names of other extensions, names that the core takes of it."""
        for name, nodes in self.nodes.most_common():
            takes = Counter("core" if giver == "core" else "others" for taker, giver, _ in self.across if taker == name)
            back = sum(taker == "core" and giver == name for taker, giver, _ in self.across)
            yield f"{name:14} {nodes:8,} {takes['core']:5} {takes['others']:5} {back:5}"


def wing(path: str) -> str:
    """The extension that a file belongs to, or the core."""
    if path.startswith("extensions/"):
        return path.split("/")[1].removesuffix(".py")
    return "core"


@cache
def house() -> House:
    """Of this checkout."""
    return House(ROOT)


def test_no_wing_grows_and_no_border_is_crossed_more_often() -> None:
    grown = {name: value for name, value in house().figures().items() if value > MOST[name]}
    assert not grown, f"more than {MOST}"


@pytest.mark.parametrize("face", ["fsd.api", "pipelines.api"])
def test_a_face_has_each_name_that_an_extension_takes_and_no_other(face: str) -> None:
    file = face.replace(".", "/") + ".py"
    taken = {name for source in house().sources.values() for path, name in source.names if path == file}
    listed = set()
    for node in ast.parse((ROOT / file).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        assert isinstance(node, ast.ImportFrom | ast.Assign)
        listed |= {alias.asname for alias in node.names} if isinstance(node, ast.ImportFrom) else {node.targets[0].id}
    assert {name for name in listed if name[0] != "_"} == taken - {"looked_up"}
    assert all(hasattr(import_module(face), name) for name in taken)


def test_the_measures_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "fsd/__init__.py": "from fsd.a import first\n",
        "fsd/estimator.py": "",
        "fsd/a.py": "first = second = 1\n",
        "pipelines/fsd.py": "import fsd.a as a\na.first\ndef work():\n    from extensions.x import b\n    b.third()\n",
        "extensions/x/b.py": "from fsd.a import first, second\nfrom extensions.y import c\nc.fourth\n",
        "extensions/y/c.py": "from fsd import a\na.first\n",
    }
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    house = House(tmp_path)
    figures = house.figures()
    assert figures["names from the core"] == 2
    assert figures["files of the core that they come from"] == 1
    assert (figures["names back"], figures["names among extensions"]) == (1, 1)
    assert house.reached(STARTS["import fsd"]) == {"fsd/__init__.py", "fsd/estimator.py", "fsd/a.py"}
    assert house.reached(STARTS["fsd run"]) == {
        "pipelines/fsd.py",
        "fsd/a.py",
        "extensions/x/b.py",
        "extensions/y/c.py",
    }
    assert figures["nodes"] == figures["nodes of the core"] + figures["nodes of extensions"]


if __name__ == "__main__":
    measured = House(ROOT)
    for row in measured.rows():
        print(row)
    for title, value in measured.figures().items():
        print(f"{value:>10,} {title}")
