"""Domain check: is a text of the kind of the benchmark's non-members, on which the error rate of verdicts rests?

Each measure of a text has a conformal rank of its own: the share of the benchmark's groups of non-members that are at
least as unusual (Vovk, Gammerman and Shafer 2005, Algorithmic Learning in a Random World, ch. 2). A text is outside at
a level divided by the number of measures. Texts of one group are also judged together, where small differences add up.

What the check can find is tried on texts of other kinds, and on texts of the benchmark after edits that keep the words.
"""

import math
import random
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice, zip_longest
from typing import Annotated

import numpy as np
from pydantic import Field
from scipy import stats

from fsd.data import embedded
from fsd.data.corpus import Corpus
from fsd.evaluation import domain_measures
from fsd.evaluation.domain_measures import Measure
from fsd.evaluation.writing import edited
from fsd.statistics.groups import group_index, group_means
from fsd.token_stats import FloatArray, IntArray

OUTSIDE_SHARE = 0.08
"""Share of texts of the benchmark's kind that may be found outside."""
POWER = 0.8
"""Share of the texts of other kinds that a domain check must find before passing it shows anything."""
HALF = 0.5
"""Share below which a kind of texts is named as one that the check does not recognise."""
LATER = "later texts"
"""Kind of the benchmark's texts of a later period, where it has contemporaries."""
OTHERS, TRIED = 120, 60
"""Texts of each other kind that the classifier of a domain check is trained on, and by which the check is tried."""
EDITED = 20
"""Largest number of a source's families whose texts are edited to try the check; at most a quarter of them."""
MOST = 2000
"""Largest number of a source's non-members that texts are compared with; of more, a sample of most families."""
BLOCK = 2048
"""New texts that are compared at a time, by all measures, so that their n-grams are counted once."""

States = Callable[[Sequence[str]], FloatArray]
"""N texts → their (N, D) hidden states."""


@dataclass(frozen=True)
class Reference:
    """The non-members of a benchmark, with family and source, and what the domain check by them was shown to find."""

    texts: tuple[str, ...]
    families: tuple[int, ...]
    sources: Annotated[tuple[str, ...], Field(alias="collections")]  # saved files have the older name
    power: Mapping[str, float]  # kind of other texts → share found outside
    edits: Mapping[str, float] = field(default_factory=dict)  # edit of the benchmark's own texts → share found outside

    @property
    def powerful(self) -> bool:
        """Whether the domain check finds most texts of other kinds; texts of a later period may be like these."""
        shares = [share for kind, share in self.power.items() if kind != LATER]
        return bool(shares) and sum(shares) / len(shares) >= POWER

    @property
    def unrecognised(self) -> dict[str, float]:
        """Kind or edit → share found outside, of those that are found in less than half of the cases."""
        tried = {**self.power, **self.edits}
        return {kind: share for kind, share in tried.items() if share < HALF and kind != LATER}

    def check(
        self, source: str, states: States | None = None, *, without: Collection[int] = frozenset()
    ) -> "DomainCheck":
        """The domain check by the texts of one source, at most `MOST`, `without` those of some families."""
        rows = [
            row
            for row, (name, family) in enumerate(zip(self.sources, self.families, strict=True))
            if name == source and family not in without
        ]
        if len(rows) > MOST:
            rows = self._sample(rows)
        texts = [self.texts[row] for row in rows]
        families = [self.families[row] for row in rows]
        others = list(chain.from_iterable(other_kinds(self.texts).values()))
        for name in dict.fromkeys(self.sources):
            if name != source:
                others += self.half_of(name)[:OTHERS]
        return DomainCheck(texts, families, states(texts) if states else None, others)

    def half_of(self, source: str, *, held_out: bool = False) -> list[str]:
        """The texts of every other family of a source, from which checks of other sources learn; or `held_out` ones."""
        order = {family: place for place, family in enumerate(dict.fromkeys(self.families))}
        rows = zip(self.texts, self.families, self.sources, strict=True)
        return [text for text, family, name in rows if name == source and order[family] % 2 == held_out]

    def _sample(self, rows: Sequence[int]) -> list[int]:
        """`MOST` rows of most families: one text of each family, then one more, and so on."""
        by_family: dict[int, list[int]] = {}
        for row in random.Random(0).sample(rows, len(rows)):
            by_family.setdefault(self.families[row], []).append(row)
        rounds = chain.from_iterable(zip_longest(*by_family.values()))
        return sorted(islice((row for row in rounds if row is not None), MOST))


def tried(
    reference: Reference, further: Mapping[str, Sequence[str]] | None = None, states: States | None = None
) -> Reference:
    """The reference with what its domain check finds of other kinds of texts, `further` kinds too, and of edits."""
    kept = _kept(states) if states else None
    power = _power(reference, further or {}, kept)
    return Reference(reference.texts, reference.families, reference.sources, power, _edits(reference, kept))


def _kept(states: States) -> States:
    """The hidden states of texts, each computed once: several checks read those of the benchmark."""
    rows: dict[str, FloatArray] = {}

    def of_texts(texts: Sequence[str]) -> FloatArray:
        new = [text for text in dict.fromkeys(texts) if text not in rows]
        if new:
            rows.update(zip(new, states(new), strict=True))
        return np.stack([rows[text] for text in texts])

    return of_texts


def _power(reference: Reference, further: Mapping[str, Sequence[str]], states: States | None) -> dict[str, float]:
    """Kind → share found outside, over the benchmark's sources: the package's kinds, `further` ones, other sources."""
    sources = list(dict.fromkeys(reference.sources))
    kinds: dict[str, Sequence[str]] = {}
    for source in filter(None, sources):
        kinds[_source_kind(source)] = reference.half_of(source, held_out=True)
    kinds |= other_kinds(reference.texts, held_out=True)
    kinds |= further
    shares: dict[str, list[float]] = {}
    for source in sources:
        check = reference.check(source, states)
        for kind, texts in kinds.items():
            if texts and kind != _source_kind(source):
                shares.setdefault(kind, []).append(check.share_outside(texts, states))
    return _means({kind: shares[kind] for kind in kinds if kind in shares})


def _source_kind(source: str) -> str:
    return f"source {source!r}"


def _edits(reference: Reference, states: States | None) -> dict[str, float]:
    """Edit → share found outside, over the sources, of texts of families that the check does not know."""
    shares: dict[str, list[float]] = {}
    for source in dict.fromkeys(reference.sources):
        held_out = _held_out(reference, source)
        if len(held_out) < 2:  # joining needs two texts, and nothing is known of a share of one
            continue
        check = reference.check(source, states, without=held_out)
        for name, texts in edited(list(held_out.values())).items():
            shares.setdefault(name, []).append(check.share_outside(texts, states))
    return _means(shares)


def _held_out(reference: Reference, source: str) -> dict[int, str]:
    """Family → a text of it, for a sample of a source's families."""
    texts: dict[int, str] = {}
    for text, family, name in zip(reference.texts, reference.families, reference.sources, strict=True):
        if name == source:
            texts.setdefault(family, text)
    count = min(EDITED, len(texts) // 4)
    return {family: texts[family] for family in random.Random(0).sample(list(texts), count)}


def _means(shares: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: sum(values) / len(values) for name, values in shares.items()}


def other_kinds(texts: Sequence[str], *, held_out: bool = False) -> dict[str, list[str]]:
    """Kind → texts of the package of other kinds, to train a domain check's classifier on, or `held_out` to try it."""
    benchmark = set(texts)
    part = slice(OTHERS, OTHERS + TRIED) if held_out else slice(OTHERS)
    kinds = {name: corpus[part] for name, corpus in _embedded().items() if not benchmark & set(corpus)}
    if held_out:
        kinds["Python's manual"] = _manual()
    return kinds


@lru_cache(maxsize=1)
def _embedded() -> dict[str, list[str]]:
    kinds = {}
    for name in embedded.CORPORA:
        texts = Corpus(embedded.corpus(name)).texts
        kinds[f"embedded texts of {name}"] = random.Random(0).sample(texts, len(texts))
    return kinds


@lru_cache(maxsize=1)
def _manual() -> list[str]:
    from pydoc_data.topics import topics

    prose = set()
    for topic in sorted(topics):
        for part in topics[topic].split("\n\n"):
            words = part.split()
            if 30 <= len(words) <= 150:
                prose.add(" ".join(words))
    return random.Random(0).sample(sorted(prose), TRIED)


class DomainCheck:
    """Conformal test of whether new texts are like the n ≥ 1 non-members of a benchmark.

    Every one of the (n,) groups has one vote. `states` are (n, D) hidden states, None to do without, and `others` texts
    of other kinds, that a classifier distinguishes from these.
    """

    def __init__(
        self,
        texts: Sequence[str],
        groups: Sequence[Hashable] | None = None,
        states: FloatArray | None = None,
        others: Sequence[str] = (),
    ) -> None:
        self.texts = list(texts)
        self.states = states
        self.group = group_index(groups, len(texts))
        self.groups = int(self.group.max()) + 1
        self._vote = 1 / np.bincount(self.group)[self.group]
        self._measures: dict[str, Measure] = {
            "script": domain_measures.Script(self.texts, self.group),
            "length": domain_measures.Length(self.texts),
            "words": domain_measures.Words(self.texts, self.group),
            "writing": domain_measures.Writing(self.texts, self.group),
        }
        if states is not None:
            self._measures["states"] = domain_measures.States(states, self.group)
        if others:
            self._measures["kind"] = domain_measures.Kind(self.texts, self.group, others)
        graded = [measure for name, measure in self._measures.items() if name != "script"]  # a new script is plain
        ranked = [self._ranked(measure.known, measure.known) for measure in graded]
        self._related = max(0.0, *(_intraclass(_normal(p_values), self.group) for p_values in ranked))
        rank = max(1, math.floor(OUTSIDE_SHARE / len(graded) * (self.groups + 1) + 1e-9))
        self.bound = rank / (self.groups + 1)
        """A text is outside if p is at most this by one of the measures."""
        self.share = min(1.0, len(graded) * self.bound)
        """Share of texts of the benchmark's kind that are outside, at most."""

    def p_values(
        self, texts: Sequence[str], groups: Sequence[Hashable] | None = None, states: FloatArray | None = None
    ) -> dict[str, FloatArray]:
        """Measure → (N,) conformal p-value of each new text, or of its group if that is smaller; see `outside`."""
        return self._p_values(self._novelties(texts, states), group_index(groups, len(texts)))

    def _p_values(self, novelties: Mapping[str, FloatArray], group: IntArray) -> dict[str, FloatArray]:
        p_values = {}
        for name, novelty in novelties.items():
            p_values[name] = self._ranked(self._measures[name].known, novelty)
            if name != "script":
                p_values[name] = np.minimum(p_values[name], self._together(p_values[name], group))
        return p_values

    def _novelties(self, texts: Sequence[str], states: FloatArray | None) -> dict[str, FloatArray]:
        """Measure → (N,) how unusual each new text is; without the measure of hidden states if these are not given."""
        names = [name for name in self._measures if name != "states" or states is not None]
        novelties = {name: np.empty(len(texts)) for name in names}
        for begin in range(0, len(texts), BLOCK):
            block = slice(begin, begin + BLOCK)
            of_block = None if states is None else states[block]
            for name in names:
                novelties[name][block] = self._measures[name].novelty(texts[block], of_block)
        return novelties

    def outside(
        self, texts: Sequence[str], groups: Sequence[Hashable] | None = None, states: FloatArray | None = None
    ) -> list[str]:
        """(N,) reason why each of N ≥ 1 texts is unlike those of the benchmark; empty for a text that is like them."""
        novelties = self._novelties(texts, states)
        p_values = np.stack(list(self._p_values(novelties, group_index(groups, len(texts))).values()))
        unlike = p_values <= self.bound + 1e-9
        # many measures reach the smallest p-value; the reason is the one by which the text is farthest from the others
        excess = np.stack([self._excess(name, novelty) for name, novelty in novelties.items()])
        farthest = np.where(unlike, excess, -np.inf).argmax(axis=0)
        is_outside = np.any(unlike, axis=0).tolist()
        names = list(novelties)
        return [
            self._measures[names[measure]].reason(text) if is_unlike else ""
            for text, measure, is_unlike in zip(texts, farthest.tolist(), is_outside, strict=True)
        ]

    def _excess(self, name: str, novelty: FloatArray) -> FloatArray:
        """How far novelties are above the benchmark's median, in units of its spread; a new script is beyond all."""
        if name == "script":
            return np.where(novelty > 0, np.inf, 0.0)
        if name == "states":  # which no reader can check: the reason is another measure wherever one sees the text
            return np.full(len(novelty), -1e12)
        known = self._measures[name].known
        middle = np.median(known)
        spread = np.quantile(known, 0.9) - middle
        return np.asarray((novelty - middle) / max(float(spread), 1e-12))

    def share_outside(self, texts: Sequence[str], states: States | None = None) -> float:
        """Share of N ≥ 1 texts, each a group of its own, that are unlike those of the benchmark."""
        p_values = self.p_values(texts, None, states(texts) if states else None)
        smallest = np.min(list(p_values.values()), axis=0)
        return float((smallest <= self.bound + 1e-9).mean())

    def _ranked(self, known: FloatArray, values: FloatArray) -> FloatArray:
        """(n,) and (N,) novelties → (N,) p-values: every group of the benchmark has one vote."""
        # one part in 10¹² is rounding: equal texts must rank equally
        unlike = (known >= values[:, None] - 1e-12) @ self._vote
        return np.asarray((1 + unlike) / (self.groups + 1), dtype=np.float64)

    def _together(self, p_values: FloatArray, group: IntArray) -> FloatArray:
        """(N,) p-values of texts → those of their groups by their mean normal score (Stouffer); 1 for one text."""
        size = np.bincount(group)
        mean = group_means(_normal(p_values), group)
        # texts of one group say less than as many independent ones
        joint = stats.norm.sf(mean * np.sqrt(size / (1 + (size - 1) * self._related)))
        return np.asarray(np.where(size > 1, joint, 1.0)[group], dtype=np.float64)


def _normal(p_values: FloatArray) -> FloatArray:
    # a p-value of exactly 0 or 1 has no finite score
    return np.asarray(stats.norm.isf(np.clip(p_values, 1e-6, 1 - 1e-6)), dtype=np.float64)


def _intraclass(values: FloatArray, group: IntArray) -> float:
    """Correlation of two texts of one group (analysis of variance); 0 if every group has one text."""
    size = np.bincount(group)
    groups = size.size
    texts = values.size
    if texts == groups or groups < 2:
        return 0.0
    means = group_means(values, group)
    between = float(size @ (means - values.mean()) ** 2) / (groups - 1)
    within = float(((values - means[group]) ** 2).sum()) / (texts - groups)
    typical_size = (texts - float((size**2).sum()) / texts) / (groups - 1)
    return min(1.0, (between - within) / max(between + (typical_size - 1) * within, 1e-12))
