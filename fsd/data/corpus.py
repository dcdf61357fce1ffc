"""A corpus: texts as one table, of which family, kind and source are computed once; and its split into three parts."""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from fsd.data.documents import Document
from fsd.data.near_duplicates import families
from fsd.data.periods import Kinds, compared, kinds_of
from fsd.token_stats import BoolArray, IntArray, Prompt


class Corpus(tuple[Document, ...]):
    """Documents in their order, with the columns that are derived from all of them.

    It is a tuple, so that it stands wherever documents are wanted. A column is computed when it is first asked for.
    A part that was taken from a corpus has the columns of that corpus.

    Attributes:
        home: the corpus that the texts were taken from, None for texts of their own.
        positions: (N,) places of the texts in `home`; all of them if there is none.
    """

    home: Self | None = None
    positions: IntArray

    def __new__(cls, documents: Iterable[Document] = ()) -> Self:
        """Documents as a corpus of their own."""
        corpus = super().__new__(cls, documents)
        corpus.positions = np.arange(len(corpus))
        return corpus

    def take(self, chosen: IntArray | BoolArray) -> Self:
        """The texts of a mask, or of positions, in that order; families and kinds remain those of the whole."""
        # a part of a part is one of the whole, so that parts of one corpus stay comparable
        home = self if self.home is None else self.home
        positions = self.positions[chosen]
        part = type(self)(home[i] for i in positions.tolist())
        part.home = home
        part.positions = positions
        return part

    def one_per_family(self) -> Self:
        """The first text of each family, so that the texts are independent."""
        # Families are numbered in the order of their first texts.
        _, first_texts = np.unique(self.family, return_index=True)
        return self.take(first_texts)

    @cached_property
    def texts(self) -> list[str]:
        """The texts alone, without their contexts; of chats, the words of all turns."""
        return [document.text for document in self]

    @cached_property
    def wholes(self) -> list[str]:
        """The texts after their contexts: what a model sees of each, and so what every control must see."""
        return [document.whole for document in self]

    @cached_property
    def prompts(self) -> list[Prompt]:
        """What is scored of each document: its text, after its context, or the answers of a chat."""
        return [document.prompt for document in self]

    @cached_property
    def members(self) -> BoolArray:
        """(N,) whether a text is labelled a member; False for a non-member and without a label."""
        return np.array([bool(document.member) for document in self], dtype=bool)

    @cached_property
    def sources(self) -> list[str]:
        """Where each text was collected: the column `source` of the file, "" if unknown."""
        return [document.source for document in self]

    @cached_property
    def family(self) -> IntArray:
        """(N,) number of the family of each text, in the order of their first texts; see `families`."""
        if self.home is None:
            return np.array(families(self), dtype=np.int64)
        import pandas as pd

        numbers, _ = pd.factorize(self.home.family[self.positions])
        return numbers

    @cached_property
    def kind(self) -> Kinds:
        """(N,) member, contemporary, later or non-member; see `fsd.data.periods.kinds`."""
        if self.home is None:
            return kinds_of(self)
        return self.home.kind[self.positions]


def as_corpus(documents: Iterable[Document]) -> Corpus:
    """The corpus itself, with the columns that it has computed, or other documents as one."""
    return documents if isinstance(documents, Corpus) else Corpus(documents)


class _Parts(NamedTuple):
    unseen: Corpus
    validation: Corpus
    test: Corpus


class Split(_Parts):
    """Three parts of a benchmark, disjoint by family; only `unseen` is used for training.

    Parts that were taken from one corpus are index sets over it, see `Corpus.positions`.
    """

    def __new__(cls, unseen: Iterable[Document], validation: Iterable[Document], test: Iterable[Document]) -> Self:
        """The parts as corpora."""
        return super().__new__(cls, as_corpus(unseen), as_corpus(validation), as_corpus(test))

    @cached_property
    def judged(self) -> Corpus:
        """Validation and test texts: those that are scored and measured."""
        home = self.validation.home
        if home is not None and home is self.test.home:
            return home.take(np.concatenate([self.validation.positions, self.test.positions]))
        return Corpus(self.validation + self.test)

    def without_later(self) -> "Split":
        """The split with those validation and test texts on which membership is judged, see `compared`."""
        chosen = compared(self.judged.kind)
        size = len(self.validation)
        return self.replace(validation=self.validation.take(chosen[:size]), test=self.test.take(chosen[size:]))

    def replace(self, **parts: Iterable[Document]) -> "Split":
        """The split with other texts in the named parts."""
        return Split(**(self._asdict() | parts))
