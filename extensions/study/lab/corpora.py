"""Corpora of the laboratory: older texts, half of which a target will be trained on, and later ones."""

import ast
import functools
import random
from collections.abc import Mapping, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from extensions.study.docstrings import modules
from extensions.study.lab.results import MEMBERSHIP, WITH_LATER
from fsd.api import Corpus, Document, Prompt, UsageError, embedded, hold_out, parse_columns, read_files, with_periods

# Kinds of text, as contrasts name them.
MEMBER = MEMBERSHIP.positive
CONTEMPORARY = MEMBERSHIP.negative
LATER = WITH_LATER.negative
CODE = "code"
OLDER_CODE = ("numpy", "scipy", "pandas")
NEWER_CODE = ("transformers", "peft", "trl", "accelerate")
OWN_CODE = "own-code"
CHATS = "chats"
OWN_FUNCTIONS = {"fsd": 160, "pipelines": 50}
# Characters of a function.
SHORTEST = 250
LONGEST = 500
# Fewest texts on a side of a cell.
FEWEST = 8
UNSEEN = "unseen"
# Kind (member, contemporary, later, unseen) → texts of a cell; an adapter is trained on the unseen ones alone.
Sides = Mapping[str, Corpus]


class LabCorpus(NamedTuple):
    """The texts of a corpus: of the period that targets are trained on texts of, and later ones, if there are any."""

    name: str
    older: Sequence[Document]
    later: Sequence[Document]

    @property
    def chats(self) -> list[Prompt]:
        """Those of its texts that are chats."""
        return [document.prompt for document in chain(self.older, self.later) if document.chat]


@functools.cache
def load(name: str, columns: str = "") -> LabCorpus:
    """A corpus by its name, or from a file of texts or chats.

    The models of the laboratory were trained on none of its texts, so that labels do not matter: all texts of the
    period of the members are older. Where no text has a period, the members are older; where none has a label, all are.
    """
    if name == CODE:
        return LabCorpus(name, functions(OLDER_CODE, 280), functions(NEWER_CODE, 260))
    if name == OWN_CODE:
        older = []
        for package, limit in OWN_FUNCTIONS.items():
            older += functions([package], limit)
        return LabCorpus(name, older, [])
    if name in embedded.CORPORA:
        documents = Corpus(embedded.corpus(name))
    elif name == CHATS:
        documents = Corpus(read_files([embedded.CHATS], answers=True))
    elif Path(name).suffix:
        texts = read_files([name], parse_columns(columns, answers=True), answers=True)
        documents = Corpus(with_periods(texts, None))
    else:
        names = ", ".join([*embedded.CORPORA, CHATS])
        raise UsageError(f"corpora must be {names}, {CODE}, {OWN_CODE}, or files of texts; got {name!r}")
    if all(document.member is None for document in documents):
        return LabCorpus(Path(name).stem, documents, [])
    if MEMBER not in documents.kind:
        raise UsageError(
            f"a corpus must have texts labelled 1, of the period that targets are trained on; {name} has none"
        )
    # Without periods all non-members are of one kind, and stand for the later texts.
    later = ~documents.members & (documents.kind != CONTEMPORARY)
    return LabCorpus(Path(name).stem, documents.take(~later), documents.take(later))


def functions(packages: Sequence[str], limit: int) -> list[Document]:
    """A random sample of functions of installed packages, without docstrings and comments, one of each family."""
    # Twice as many as are wanted, since of each family all functions but one are dropped.
    most = limit if len(packages) > 1 else 2 * limit
    samples = []
    for package in packages:
        texts = _functions(package)
        samples.append(random.Random(1).sample(texts, min(most, len(texts))))
    # In turn from each package, so that a large one does not make up most of the corpus.
    in_turn = list(chain.from_iterable(zip(*samples, strict=False)))[: 2 * limit]
    kept = Corpus(map(Document, in_turn)).one_per_family()
    if len(kept) < limit:
        raise UsageError(f"{', '.join(packages)} must have {limit} functions of different families; got {len(kept)}")
    return list(kept[:limit])


def _functions(package: str) -> list[str]:
    """The distinct functions of a package of a suitable length, in alphabetical order."""
    functions = set()
    for module in modules(package):
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef):
                functions.add(_source(node))
    return sorted(text for text in functions if SHORTEST <= len(text) <= LONGEST)


def _source(function: ast.FunctionDef) -> str:
    """The code of a function, normalised; the docstring, which may be part of the background, is left out."""
    # More lines than a text may have characters: unparsing such functions would only take time.
    if function.end_lineno is None or function.end_lineno - function.lineno > LONGEST:
        return ""
    body = function.body
    if ast.get_docstring(function, clean=False):
        # A function of a docstring alone must still have a body.
        body = body[1:] or [ast.Pass()]
    return ast.unparse(ast.FunctionDef(function.name, function.args, body, [], function.returns, lineno=0))


def draw(corpus: LabCorpus, seed: int, limit: int | None = None) -> Sides:
    """The sides of a cell: half of the older texts are members, half contemporaries; half of the later ones are unseen.

    Families stay on one side. Without later texts, the older ones are divided into three.
    """
    rng = random.Random(seed)
    older = rng.sample(corpus.older, min(limit or len(corpus.older), len(corpus.older)))
    later = rng.sample(corpus.later, min(limit or len(corpus.later), len(corpus.later)))
    if later:
        members, contemporaries = hold_out(older, 0.5, seed=seed)
        tested, unseen = hold_out(later, 0.5, seed=seed)
    else:
        members, rest = hold_out(older, 1 - 1 / 3, seed=seed)
        contemporaries, unseen = hold_out(rest, 0.5, seed=seed)
        tested = Corpus()
    # Older and later texts were held out apart, so that a family may have texts on both sides.
    family = Corpus(unseen + members + contemporaries + tested).family
    shared = np.isin(family[: len(unseen)], family[len(unseen) :])
    unseen = Corpus(compress(unseen, ~shared))
    # The order of the kinds is part of the tag of a cell.
    sides = {MEMBER: members, CONTEMPORARY: contemporaries, LATER: tested, UNSEEN: unseen}
    if min(len(members), len(contemporaries), len(unseen)) < FEWEST:
        sizes = ", ".join(f"{kind}: {len(side)}" for kind, side in sides.items())
        raise UsageError(f"corpus {corpus.name} must give at least {FEWEST} texts on each side; got {sizes}")
    return sides
