"""Corpora of the laboratory: older texts, half of which a target will be trained on, and later ones."""

import ast
import importlib.util
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fsd.data import embedded
from fsd.data.documents import Document
from fsd.data.near_duplicates import contradictions, families
from fsd.data.readers import parse_columns, read_files
from fsd.data.splitting import CONTEMPORARY, LATER, MEMBER, NONMEMBER, hold_out, kinds_of, with_periods
from fsd.errors import UsageError

OLDER_CODE = ("numpy", "scipy", "pandas")
NEWER_CODE = ("transformers", "peft", "trl", "accelerate")
SHORTEST, LONGEST = 250, 500
"""Characters of a function."""
OLDER_FUNCTIONS, NEWER_FUNCTIONS = 280, 260
SEED = 1
FEWEST = 8
"""Fewest texts on a side of a cell."""


class Corpus(NamedTuple):
    """The texts of a corpus: of the period that targets are trained on texts of, and later ones, if there are any."""

    name: str
    older: tuple[Document, ...]
    later: tuple[Document, ...]


def load(name: str, columns: str = "") -> Corpus:
    """A corpus by its name, or from a file of labelled texts.

    Older are all texts of the period of its members, whatever their label, since no model but those of the laboratory
    is asked; without periods the members are.
    """
    if name == "code":
        return Corpus(name, functions(OLDER_CODE, OLDER_FUNCTIONS), functions(NEWER_CODE, NEWER_FUNCTIONS))
    if name in embedded.CORPORA:
        documents = list(embedded.corpus(name))
    elif Path(name).suffix:
        documents = with_periods(read_files([name], parse_columns(columns)), None)
    else:
        known = ", ".join(embedded.CORPORA)
        raise UsageError(f"corpora must be {known}, code, or files of labelled texts; got {name!r}")
    kinds = kinds_of(documents)
    later = kinds == (NONMEMBER if NONMEMBER in kinds else LATER)
    if MEMBER not in kinds:
        raise UsageError(
            f"a corpus must have texts labelled 1, of the period that targets are trained on; {name} has none"
        )
    sides = [tuple(d for d, newer in zip(documents, later, strict=True) if newer == side) for side in (False, True)]
    return Corpus(Path(name).stem, sides[0], sides[1])


def functions(packages: Sequence[str], limit: int) -> tuple[Document, ...]:
    """A random sample of functions of installed packages, without docstrings and comments, one of each family."""
    each = [random.Random(SEED).sample(found, min(limit, len(found))) for found in map(_functions, packages)]
    drawn = [text for texts in zip(*each, strict=False) for text in texts][: 2 * limit]
    documents = [Document(text) for text in drawn]
    first = dict(zip(reversed(families(documents)), reversed(documents), strict=True))
    chosen = [document for document in documents if document in first.values()][:limit]
    if len(chosen) < limit:
        raise UsageError(f"{', '.join(packages)} must have {limit} functions of different families; got {len(chosen)}")
    return tuple(chosen)


def _functions(package: str) -> list[str]:
    """The distinct functions of a package of a suitable length, in alphabetical order."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"packages of the corpus `code` must be installed; {package!r} is not")
    root = Path(next(iter(spec.submodule_search_locations)))
    found = set()
    for file in sorted(root.rglob("*.py")):
        if {"test", "tests"} & set(file.parts):
            continue
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):  # templates and test data among the sources
            continue
        found |= {_source(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return sorted(text for text in found if SHORTEST <= len(text) <= LONGEST)


def _source(function: ast.FunctionDef) -> str:
    """The code of a function, normalised; the docstring, which may be part of the background, is left out."""
    if function.end_lineno is None or function.end_lineno - function.lineno > LONGEST:
        return ""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    bare = ast.FunctionDef(function.name, function.args, body or [ast.Pass()], [], function.returns)
    return ast.unparse(ast.fix_missing_locations(bare))


class Sides(NamedTuple):
    """The texts of a cell; an adapter is trained on the unseen ones, and the others are scored."""

    members: tuple[Document, ...]
    contemporaries: tuple[Document, ...]
    later: tuple[Document, ...]
    unseen: tuple[Document, ...]
    family: tuple[int, ...]
    """Number of the family in the corpus of each scored text."""

    @property
    def scored(self) -> tuple[Document, ...]:
        """Members, contemporaries and later texts."""
        return (*self.members, *self.contemporaries, *self.later)

    @property
    def kinds(self) -> list[str]:
        """Kind of each scored text."""
        return [MEMBER] * len(self.members) + [CONTEMPORARY] * len(self.contemporaries) + [LATER] * len(self.later)


def draw(corpus: Corpus, seed: int, limit: int | None = None) -> Sides:
    """The sides of a cell: half of the older texts are members, half contemporaries; half of the later ones are unseen.

    Families stay on one side. Without later texts, the older ones are divided into three.
    """
    rng = random.Random(seed)
    older, later = (rng.sample(side, min(limit or len(side), len(side))) for side in (corpus.older, corpus.later))
    share = 0.5 if later else 1 / 3
    members, others = hold_out(older, 1 - share, seed=seed)
    if later:
        contemporaries, (tested, unseen) = others, hold_out(later, 0.5, seed=seed)
    else:
        contemporaries, unseen = hold_out(others, 0.5, seed=seed)
        tested = []
    unseen = _unrelated(unseen, [*members, *contemporaries, *tested])
    sides = Sides(tuple(members), tuple(contemporaries), tuple(tested), tuple(unseen), ())
    if min(map(len, (members, contemporaries, unseen))) < FEWEST:
        sizes = ", ".join(f"{len(side)} {name}" for name, side in zip(Sides._fields[:4], sides, strict=False))
        raise UsageError(f"corpus {corpus.name} must give at least {FEWEST} texts on each side; got {sizes}")
    every = [*corpus.older, *corpus.later]
    number = dict(zip((document.text for document in every), families(every), strict=True))
    return sides._replace(family=tuple(number[document.text] for document in sides.scored))


def _unrelated(unseen: Sequence[Document], tested: Sequence[Document]) -> list[Document]:
    """The unseen texts that are in no family with a tested text."""
    family = families([*unseen, *tested])
    others = set(family[len(unseen) :])
    return [document for document, number in zip(unseen, family, strict=False) if number not in others]


def check_background(corpus: Corpus, background: Sequence[str]) -> None:
    """Check that the background, which every target is trained on, holds no near-duplicate of a text of the corpus."""
    texts = [Document(d.text, True, source=d.source) for d in (*corpus.older, *corpus.later)]
    copies = contradictions([*texts, *(Document(text, False) for text in background)])
    if copies:
        one, other = copies[0]
        raise UsageError(
            f"background must hold no text of the corpus {corpus.name}; {len(copies)} are in it, the first: "
            f"{[*texts, *map(Document, background)][max(one, other)].origin}"
        )
