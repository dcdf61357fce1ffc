"""Corpora of the laboratory: older texts, half of which a target will be trained on, and later ones."""

import ast
import functools
import importlib.util
import random
from collections.abc import Mapping, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import NamedTuple

from fsd.data import embedded
from fsd.data.documents import Document
from fsd.data.near_duplicates import families
from fsd.data.readers import parse_columns, read_files
from fsd.data.splitting import CONTEMPORARY, LATER, MEMBER, NONMEMBER, hold_out, kinds_of, with_periods
from fsd.errors import UsageError

CODE = "code"
OLDER_CODE, OLDER_FUNCTIONS = ("numpy", "scipy", "pandas"), 280
NEWER_CODE, NEWER_FUNCTIONS = ("transformers", "peft", "trl", "accelerate"), 260
OWN_CODE, OWN_FUNCTIONS = "own-code", {"fsd": 160, "pipelines": 50}
SHORTEST, LONGEST = 250, 500
"""Characters of a function."""
FEWEST = 8
"""Fewest texts on a side of a cell."""
UNSEEN = "unseen"
Sides = Mapping[str, Sequence[Document]]
"""Kind (member, contemporary, later, unseen) → texts of a cell; an adapter is trained on the unseen ones alone."""


class Corpus(NamedTuple):
    """The texts of a corpus: of the period that targets are trained on texts of, and later ones, if there are any."""

    name: str
    older: Sequence[Document]
    later: Sequence[Document]


@functools.cache
def load(name: str, columns: str = "") -> Corpus:
    """A corpus by its name, or from a file of labelled texts.

    Older are all texts of the period of its members, whatever their label, since no model but those of the laboratory
    is asked; without periods the members are.
    """
    if name == CODE:
        return Corpus(name, functions(OLDER_CODE, OLDER_FUNCTIONS), functions(NEWER_CODE, NEWER_FUNCTIONS))
    if name == OWN_CODE:
        own = [functions([package], limit) for package, limit in OWN_FUNCTIONS.items()]
        return Corpus(name, list(chain(*own)), [])
    if name in embedded.CORPORA:
        documents = list(embedded.corpus(name))
    elif Path(name).suffix:
        documents = with_periods(read_files([name], parse_columns(columns)), None)
    else:
        known = ", ".join(embedded.CORPORA)
        raise UsageError(f"corpora must be {known}, {CODE}, {OWN_CODE}, or files of labelled texts; got {name!r}")
    kinds = kinds_of(documents)
    if MEMBER not in kinds:
        raise UsageError(
            f"a corpus must have texts labelled 1, of the period that targets are trained on; {name} has none"
        )
    later = kinds == (NONMEMBER if NONMEMBER in kinds else LATER)
    return Corpus(Path(name).stem, list(compress(documents, ~later)), list(compress(documents, later)))


def functions(packages: Sequence[str], limit: int) -> list[Document]:
    """A random sample of functions of installed packages, without docstrings and comments, one of each family."""
    most = limit if len(packages) > 1 else 2 * limit
    each = [random.Random(1).sample(found, min(most, len(found))) for found in map(_functions, packages)]
    drawn = [Document(text) for texts in zip(*each, strict=False) for text in texts][: 2 * limit]
    first: dict[int, Document] = {}
    for number, document in zip(families(drawn), drawn, strict=True):
        first.setdefault(number, document)
    if len(first) < limit:
        raise UsageError(f"{', '.join(packages)} must have {limit} functions of different families; got {len(first)}")
    return list(first.values())[:limit]


def _functions(package: str) -> list[str]:
    """The distinct functions of a package of a suitable length, in alphabetical order."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"packages of the corpus `code` must be installed; {package!r} is not")
    found = set()
    for file in Path(next(iter(spec.submodule_search_locations))).rglob("*.py"):
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
    body = function.body[1:] if ast.get_docstring(function, clean=False) else function.body
    bare = ast.FunctionDef(function.name, function.args, body or [ast.Pass()], [], function.returns, lineno=0)
    return ast.unparse(bare)


def draw(corpus: Corpus, seed: int, limit: int | None = None) -> Sides:
    """The sides of a cell: half of the older texts are members, half contemporaries; half of the later ones are unseen.

    Families stay on one side. Without later texts, the older ones are divided into three.
    """
    rng = random.Random(seed)
    older, later = (rng.sample(side, min(limit or len(side), len(side))) for side in (corpus.older, corpus.later))
    members, others = hold_out(older, 0.5 if later else 1 - 1 / 3, seed=seed)
    tested, unseen = hold_out(later, 0.5, seed=seed) if later else ([], [])
    if not later:
        others, unseen = hold_out(others, 0.5, seed=seed)
    family = families([*unseen, *members, *others, *tested])
    known = set(family[len(unseen) :])
    unseen = [document for document, number in zip(unseen, family, strict=False) if number not in known]
    sides = {MEMBER: members, CONTEMPORARY: others, LATER: tested, UNSEEN: unseen}
    if min(map(len, (members, others, unseen))) < FEWEST:
        sizes = ", ".join(f"{kind}: {len(side)}" for kind, side in sides.items())
        raise UsageError(f"corpus {corpus.name} must give at least {FEWEST} texts on each side; got {sizes}")
    return sides
