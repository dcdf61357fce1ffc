"""What a reader has to hold at once, measured; the figures of `MOST` may only fall, that of comments only rise.

    python tests/test_legibility.py

prints the figures and the places that are hardest to read.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("fsd", "detectors", "pipelines", "extensions")
MOST = {
    "nodes": 304_990,
    "nodes a line of code": 9.8,
    "functions of folded complexity above 15": 0,
    "statements of more than 40 nodes": 57,
    "assignments of several unrelated values": 0,
    "comprehensions per 1,000 lines": 29.6,
    "conditional expressions per 1,000 lines": 13.2,
    "starred items per 1,000 lines": 8.1,
    "names that are grammar words, percent": 0.2,
}
FEWEST_COMMENTS = 6.0
"""Comments per 1,000 nodes. One that repeats the code is worse than none: a reader sees to that, not this test."""
COMPLEX, LONG = 15, 40
GRAMMAR = frozenset(
    (
        *("after", "at", "before", "beside", "each", "first", "found", "given", "here", "how", "known", "last", "made"),
        *("of", "one", "other", "others", "own", "said", "shown", "there"),
    )
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.comprehension, ast.match_case)
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass
class Figures:
    """Counts over files, and the place of each function and statement with its size."""

    nodes: int = 0
    lines: int = 0
    comments: int = 0
    comprehensions: int = 0
    conditional: int = 0
    starred: int = 0
    unrelated: int = 0
    names: int = 0
    grammar: int = 0
    functions: list[tuple[int, str]] = field(default_factory=list)
    statements: list[tuple[int, str]] = field(default_factory=list)

    def table(self) -> dict[str, float]:
        """The figures under the names of `MOST`."""
        per_thousand = 1000 / self.lines
        return {
            "nodes": self.nodes,
            "nodes a line of code": round(self.nodes / self.lines, 1),
            "functions of folded complexity above 15": sum(size > COMPLEX for size, _ in self.functions),
            "statements of more than 40 nodes": sum(size > LONG for size, _ in self.statements),
            "assignments of several unrelated values": self.unrelated,
            "comprehensions per 1,000 lines": round(self.comprehensions * per_thousand, 1),
            "conditional expressions per 1,000 lines": round(self.conditional * per_thousand, 1),
            "starred items per 1,000 lines": round(self.starred * per_thousand, 1),
            "names that are grammar words, percent": round(100 * self.grammar / self.names, 1),
        }

    @property
    def comments_per_thousand(self) -> float:
        """Comments per 1,000 nodes."""
        return round(1000 * self.comments / self.nodes, 1)


def read(root: Path) -> Figures:
    """The figures of all packages."""
    figures = Figures()
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            add(figures, file.read_text(encoding="utf-8"), str(file.relative_to(root)))
    return figures


def add(figures: Figures, source: str, place: str) -> None:
    """Count one file."""
    tree = ast.parse(source)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        figures.nodes += 1
        figures.comprehensions += isinstance(node, COMPREHENSIONS)
        figures.conditional += isinstance(node, ast.IfExp)
        figures.starred += isinstance(node, ast.Starred)
        figures.unrelated += several_values(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, node.end_lineno + 1))
        name = bound_name(node)
        figures.names += name is not None
        figures.grammar += name in GRAMMAR
        if isinstance(node, FUNCTIONS):
            figures.functions.append((folded_complexity(node), f"{place}:{node.lineno} {node.name}"))
        if isinstance(node, ast.stmt) and not isinstance(node, SCOPES):
            figures.statements.append((statement_size(node), f"{place}:{node.lineno}"))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            figures.comments += not token.string.startswith(("# noqa", "# type:", "#!"))
        elif token.string.strip() and token.type != tokenize.ENDMARKER:
            code.update(range(token.start[0], token.end[0] + 1))
    figures.lines += len(code - docstrings)


def several_values(node: ast.AST) -> bool:
    """Whether the node is an assignment such as `a, b = x, y`."""
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple)


def bound_name(node: ast.AST) -> str | None:
    """The name that a node gives a value, if it is an assignment's, a loop's or a parameter's."""
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return None


def folded_complexity(function: ast.AST) -> int:
    """McCabe's, and one for each comprehension, condition in it, conditional expression, further `and` and `or`."""
    complexity = 1
    for node in inside(function):
        complexity += isinstance(node, BRANCHES)
        if isinstance(node, ast.comprehension):
            complexity += len(node.ifs)
        if isinstance(node, ast.BoolOp):
            complexity += len(node.values) - 1
    return complexity


def inside(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions and classes in it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, SCOPES):
            yield child
            yield from inside(child)


def statement_size(statement: ast.stmt) -> int:
    """Nodes of a statement, of a compound one without its blocks."""
    blocks = {id(child) for name in BLOCKS for child in getattr(statement, name, None) or []}
    size = 0
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        size += 1
        waiting += [child for child in ast.iter_child_nodes(node) if id(child) not in blocks]
    return size


def test_what_a_reader_has_to_hold_does_not_grow() -> None:
    figures = read(ROOT)
    grown = {name: value for name, value in figures.table().items() if value > MOST[name]}
    assert not grown, f"harder to read than {MOST}"
    assert figures.comments_per_thousand >= FEWEST_COMMENTS


def test_the_measures_by_hand() -> None:
    figures = Figures()
    source = '''def area(at, height):
    """Two lines,
    not counted."""
    width, depth = at, 2
    # the roof is not measured
    if width and depth or height:
        return [w if w else 0 for w in (*width, depth) if w]
    return 0
'''
    add(figures, source, "area.py")
    assert (figures.lines, figures.comments, figures.unrelated) == (5, 1, 1)
    assert (figures.comprehensions, figures.conditional, figures.starred) == (1, 1, 1)
    assert (figures.names, figures.grammar) == (5, 1)  # at, height, width, depth, w
    # 1, if, or, and, comprehension, its condition, conditional expression
    assert figures.functions == [(7, "area.py:1 area")]
    sizes = {place: size for size, place in figures.statements}
    assert sizes["area.py:8"] == 2  # return, 0


if __name__ == "__main__":
    measured = read(ROOT)
    for title, value in (measured.table() | {"comments per 1,000 nodes": measured.comments_per_thousand}).items():
        print(f"{value:>10} {title}")
    for title, places in (("complexity", measured.functions), ("nodes", measured.statements)):
        for size, place in sorted(places, reverse=True)[:15]:
            print(f"{size:>10} {title}: {place}")
