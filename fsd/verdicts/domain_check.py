"""Domain check: is a text of the kind of the benchmark's non-members, on which the error rate of verdicts rests?

Each measure of a text has a conformal rank of its own: the share of the benchmark's groups of non-members that are at
least as unusual (Vovk, Gammerman and Shafer 2005, Algorithmic Learning in a Random World, ch. 2). A text is outside at
a level divided by the number of measures. Texts of one group are also judged together, where small differences add up.

What the check can find is tried on texts of other kinds, and on texts of the benchmark after edits that keep the words.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, islice, zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field
from scipy import stats

from fsd.data import embedded
from fsd.data.corpus import Corpus
from fsd.data.documents import ReadAs, Texts
from fsd.statistics.groups import Groups, group_index, group_means
from fsd.text_audit.writing import edited
from fsd.token_stats import FloatArray, IntArray

if TYPE_CHECKING:
    from fsd.verdicts.domain_measures import Measure, Read

OUTSIDE_SHARE = 0.08
"""Share of texts of the benchmark's kind that may be found outside."""
POWER = 0.8
"""Share of the texts of other kinds that a domain check must find before passing it shows anything."""
HALF = 0.5
"""Share below which a kind of texts is named as one that the check does not recognise."""
OWN = "texts that the model wrote"
"""Kind of the openings of the benchmark's texts that the model in question continued."""
LATER = "later texts"
"""Kind of the benchmark's texts of a later period, where it has contemporaries."""
OTHERS = 120
"""Texts of each other kind that the classifier of a domain check is trained on."""
TRIED = 60
"""Further texts of each other kind, by which the check is tried."""
EDITED = 20
"""Largest number of a source's families whose texts are edited to try the check; at most a quarter of them."""
MOST = 2000
"""Largest number of a source's non-members that texts are compared with; of more, a sample of most families."""
BLOCK = 2048
"""New texts that are compared at a time, by all measures, so that their n-grams are counted once."""

Write = Callable[[Texts], Mapping[str, list[str]]]
"""N texts → N others by each way of sampling, which the model wrote from their openings."""
Sources = Annotated[tuple[str, ...], Field(alias="collections")]
"""Source of each text; saved files have the older name."""


class OwnText(NamedTuple):
    """A text that the model wrote, by a way of sampling, from the opening of one of a source; its score if inside."""

    source: str
    way: str
    inside: bool
    text: str = ""
    score: float | None = None


class Earlier(NamedTuple):
    """How probable texts are for what learned least of what is asked for (`Model.earlier`), see `Model.typicality`.

    In an audit that is the base, and `scores` are those by which the verdicts are given.
    """

    model: str = ""
    typicality: tuple[tuple[float, ...], ...] = ()
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class Reference:
    """The non-members of a benchmark, with family and source, and what the domain check by them was shown to find."""

    texts: tuple[str, ...]
    families: tuple[int, ...]
    sources: Sources
    power: Mapping[str, float]  # kind of other texts → share found outside
    edits: Mapping[str, float] = field(default_factory=dict)  # edit of the benchmark's own texts → share found outside
    read_as: tuple[ReadAs, ...] = ()  # what their rows were read as, each once; earlier releases do not tell
    earlier: Earlier = field(default_factory=Earlier)
    written: tuple[OwnText, ...] = ()  # by which the check was tried

    @property
    def powerful(self) -> bool:
        """Whether the domain check finds most texts of other kinds; later texts and own ones may be like these."""
        shares = [share for kind, share in self.power.items() if kind not in (LATER, OWN)]
        return bool(shares) and sum(shares) / len(shares) >= POWER

    @property
    def unrecognised(self) -> dict[str, float]:
        """Kind or edit → share found outside, of those that are found in less than half of the cases."""
        tried = {**self.power, **self.edits}
        return {kind: share for kind, share in tried.items() if share < HALF and kind != LATER}

    def kept(self, typicality: "Read | None") -> "Kept | None":
        """The typicality of texts, each read once, and those of the benchmark never; None without it."""
        if typicality is None or not self.earlier.typicality:
            return None
        return Kept(typicality, dict(zip(self.texts, self.earlier.typicality, strict=True)))

    def with_own_scores(self, score: Callable[[Texts], FloatArray]) -> "Reference":
        """The reference with the scores of the model's own texts that are inside, and without these texts."""
        inside = [text.text for text in self.written if text.inside]
        scores: dict[str, float] = {}
        if inside:
            scores = dict(zip(inside, score(inside).tolist(), strict=True))
        scored = [text._replace(text="", score=scores.get(text.text)) for text in self.written]
        return replace(self, written=tuple(scored))

    def beyond_own(self, source: str, scores: FloatArray) -> FloatArray:
        """(N,) p-values of scores among those of the texts that the model wrote; 0 beyond all of them.

        A text outside the domain is never called, and ranks below all. No way of sampling may have a larger share.
        """
        tried = [text for text in self.written if text.source == source]
        # a text outside has no score, and reaches none
        reached = np.array([text.score for text in tried], dtype=np.float64) >= scores[:, None]
        count = reached.sum(axis=1)
        p_values = (1 + count) / (1 + len(tried))
        for way in sorted({text.way for text in tried}):
            of_way = [text.way == way for text in tried]
            p_values = np.maximum(p_values, reached[:, of_way].mean(axis=1))
        return np.where(count > 0, p_values, 0.0)

    def beside_known(self, source: str, scores: FloatArray, typicality: FloatArray) -> FloatArray:
        """(N,) p-values of scores beside what the base's (N, 3) typicality lets expect of them; 0 but in audits.

        Fine-tuning moves a text that the base knows less than one that is new to it: beside non-members that it was
        trained on, other texts would be called. So residuals are compared, of a regression on the non-members.
        """
        rows = self._rows_of(source)
        if not self.earlier.scores or not rows:
            return np.zeros(len(scores))
        of_benchmark = np.array(self.earlier.scores)[rows]
        familiar = np.array(self.earlier.typicality)[rows]
        spread = np.maximum(familiar.std(axis=0), 1e-12)

        def inputs(values: FloatArray) -> FloatArray:
            return np.insert((values - familiar.mean(axis=0)) / spread, 0, 1.0, axis=1)

        features = inputs(familiar)
        fit = np.linalg.pinv(features)
        weights = fit @ of_benchmark
        # a text's own part in the fit says nothing about a new one
        own_part = np.minimum((features * fit.T).sum(axis=1), 1 - 1e-9)
        residuals = (of_benchmark - features @ weights) / (1 - own_part)
        group = group_index([self.families[row] for row in rows], len(rows))
        return _ranked(residuals, group, scores - inputs(typicality) @ weights)

    def check(
        self,
        source: str,
        states: "Read | None" = None,
        typicality: "Read | None" = None,
        *,
        without: Collection[int] = frozenset(),
    ) -> "DomainCheck":
        """The domain check by the texts of one source, at most `MOST`, `without` those of some families."""
        rows = [row for row in self._rows_of(source) if self.families[row] not in without]
        if len(rows) > MOST:
            rows = self._sample(rows)
        texts = [self.texts[row] for row in rows]
        other_texts = list(chain.from_iterable(other_kinds(self.texts).values()))
        for name in dict.fromkeys(self.sources):
            if name != source:
                other_texts += self.half_of(name)[:OTHERS]
        families = [self.families[row] for row in rows]
        return DomainCheck(
            texts, families, other_texts, states=states, typicality=typicality, both_ways=bool(self.earlier.scores)
        )

    def half_of(self, source: str, *, held_out: bool = False) -> list[str]:
        """The texts of every other family of a source, from which checks of other sources learn; or `held_out` ones."""
        in_half = group_index(self.families, len(self.texts)) % 2 == held_out
        return [self.texts[row] for row in self._rows_of(source) if in_half[row]]

    def _rows_of(self, source: str) -> list[int]:
        return [row for row, name in enumerate(self.sources) if name == source]

    def _sample(self, rows: Sequence[int]) -> list[int]:
        """`MOST` rows of most families: one text of each family, then one more, and so on."""
        by_family: dict[int, list[int]] = {}
        for row in random.Random(0).sample(rows, len(rows)):
            by_family.setdefault(self.families[row], []).append(row)
        rounds = chain.from_iterable(zip_longest(*by_family.values()))
        # a family whose rows have run out gives None
        return sorted(islice((row for row in rounds if row is not None), MOST))


class Trial(NamedTuple):
    """What a domain check finds, see `Reference`."""

    power: dict[str, float]
    edits: dict[str, float]
    written: tuple[OwnText, ...] = ()

    def added_to(self, reference: Reference) -> Reference:
        """The reference that was tried, with what was found."""
        return replace(reference, **self._asdict())


def trial(
    reference: Reference,
    further: Mapping[str, Texts] = MappingProxyType({}),
    states: "Read | None" = None,
    typicality: "Read | None" = None,
    write: Write | None = None,
) -> Trial:
    """What the domain check of a reference finds of other kinds of texts, `further` kinds too, of edits and own texts.

    `write` gives the texts that the model writes from the openings of others.
    """
    check = partial(reference.check, states=Kept(states) if states else None, typicality=reference.kept(typicality))
    power = _power(reference, further, check)
    written: tuple[OwnText, ...] = ()
    if write:
        written = _written(reference, check, write)
    if written:
        power[OWN] = sum(not text.inside for text in written) / len(written)
    return Trial(power, _edits(reference, check), written)


class Kept:
    """What is read of texts, each once: several checks read those of the benchmark, of which some may be known."""

    def __init__(self, read: "Read", measured: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._read = read
        self._rows = dict(measured)

    def __call__(self, texts: Texts) -> FloatArray:
        """What is read of texts, in order."""
        new_texts = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if new_texts:
            self._rows.update(zip(new_texts, self._read(new_texts), strict=True))
        return np.stack([self._rows[text] for text in texts])

    def forget_others(self, texts: set[str]) -> None:
        """Forget what was read of all but these texts."""
        for text in self._rows.keys() - texts:
            del self._rows[text]


Check = Callable[..., "DomainCheck"]
"""Source, and families to do without → the domain check by its texts."""


def _power(reference: Reference, further: Mapping[str, Texts], check_by: Check) -> dict[str, float]:
    """Kind → share found outside, over the benchmark's sources: the package's kinds, `further` ones, other sources.

    Only texts in the script of a source are tried on its check: the script alone tells others, which shows nothing of
    the other measures.
    """
    from fsd.verdicts.domain_measures import script

    sources = dict.fromkeys(reference.sources)
    kinds: dict[str, Texts] = {}
    for source in filter(None, sources):
        kinds[_source_kind(source)] = reference.half_of(source, held_out=True)
    kinds |= other_kinds(reference.texts, held_out=True)
    kinds |= further
    shares: dict[str, list[float]] = {kind: [] for kind in kinds}
    for source in sources:
        check = check_by(source)
        ((usual, _),) = Counter(map(script, check.texts)).most_common(1)
        for kind, texts in kinds.items():
            alike = [text for text in texts if script(text) == usual]
            if alike and kind != _source_kind(source):
                shares[kind].append(check.share_outside(alike))
    return _means(shares)


def _source_kind(source: str) -> str:
    return f"source {source!r}"


def _edits(reference: Reference, check_by: Check) -> dict[str, float]:
    """Edit → share found outside, over the sources, of texts of families that the check does not know."""
    shares: dict[str, list[float]] = {}
    for source in dict.fromkeys(reference.sources):
        held_out = _held_out(reference, source)
        if len(held_out) < 2:  # joining needs two texts, and nothing is known of a share of one
            continue
        check = check_by(source, without=held_out)
        for name, texts in edited(list(held_out.values())).items():
            shares.setdefault(name, []).append(check.share_outside(texts))
    return _means(shares)


def _written(reference: Reference, check_by: Check, write: Write) -> tuple[OwnText, ...]:
    """What the model writes from the openings of texts of families that the check of their source does not know."""
    written = []
    for source in dict.fromkeys(reference.sources):
        held_out = _held_out(reference, source)
        if not held_out:
            continue
        check = check_by(source, without=held_out)
        for way, texts in write(list(held_out.values())).items():
            for text, reason in zip(texts, check.outside(texts), strict=True):
                written.append(OwnText(source, way, not reason, text))
    return tuple(written)


def _held_out(reference: Reference, source: str) -> dict[int, str]:
    """Family → a text of it, for a sample of a source's families."""
    texts: dict[int, str] = {}
    for row, family in enumerate(reference.families):
        if reference.sources[row] == source:
            texts.setdefault(family, reference.texts[row])
    count = min(EDITED, len(texts) // 4)
    return {family: texts[family] for family in random.Random(0).sample(list(texts), count)}


def _means(shares: Mapping[str, Sequence[float]]) -> dict[str, float]:
    means = {}
    for name, values in shares.items():
        if values:
            means[name] = sum(values) / len(values)
    return means


def other_kinds(texts: Texts, *, held_out: bool = False) -> dict[str, list[str]]:
    """Kind → texts of the package of other kinds, to train a domain check's classifier on, or `held_out` to try it."""
    part = slice(OTHERS)
    if held_out:
        part = slice(OTHERS, OTHERS + TRIED)
    kinds = {}
    for name, corpus in _embedded().items():
        # a benchmark of these texts is not of another kind than they are
        if set(corpus).isdisjoint(texts):
            kinds[name] = corpus[part]
    if held_out:
        kinds["Python's manual"] = _manual()
    return kinds


@cache
def _embedded() -> dict[str, list[str]]:
    kinds = {}
    for name in embedded.CORPORA:
        texts = Corpus(embedded.corpus(name)).texts
        kinds[f"embedded texts of {name}"] = random.Random(0).sample(texts, len(texts))
    return kinds


@cache
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

    Every one of the (n,) groups has one vote. A classifier distinguishes `other_texts`, those of other kinds, from
    these. `states` reads hidden states, and `typicality` how probable texts are for a model that did not learn what is
    asked for; less than the benchmark's counts as well with `both_ways`.
    """

    def __init__(
        self,
        texts: Texts,
        groups: Groups = None,
        other_texts: Texts = (),
        *,
        states: "Read | None" = None,
        typicality: "Read | None" = None,
        both_ways: bool = False,
    ) -> None:
        # scikit-learn takes long to import, and a run whose trial is in the cache makes no check
        from fsd.verdicts.domain_measures import HiddenStates, Kind, Length, Script, Typical, Words, Writing

        self.texts = list(texts)
        self.states = states
        group = group_index(groups, len(texts))
        size = np.bincount(group)
        self.group = group
        self.groups = size.size
        measures: dict[str, Measure] = {
            "script": Script(texts, group),
            "length": Length(texts),
            "words": Words(texts, group),
        }
        measures["writing"] = Writing(texts, group)
        if states is not None:
            measures["states"] = HiddenStates(texts, group, states)
        if typicality is not None:
            measures["typicality"] = Typical(texts, typicality, both_ways=both_ways)
        if other_texts:
            measures["kind"] = Kind(texts, group, other_texts)
        self._measures = measures
        related = [0.0]
        for name, measure in measures.items():
            if name != "script":  # a new script is plain: it has no grades
                p_values = self._ranked(measure.novelties, measure.novelties)
                related.append(_intraclass(_normal(p_values), group))
        self._related = max(related)
        n_graded = len(measures) - 1
        # the largest multiple of 1 / (G + 1), as p-values are, that is no more than a measure's part of the share
        rank = math.floor(OUTSIDE_SHARE / n_graded * (self.groups + 1) + 1e-9)
        self.bound = max(1, rank) / (self.groups + 1)
        """A text is outside if p is at most this by one of the measures."""
        self.share = min(1.0, n_graded * self.bound)
        """Share of texts of the benchmark's kind that are outside, at most."""

    def p_values(self, novelties: Mapping[str, FloatArray], group: IntArray) -> dict[str, FloatArray]:
        """Measure → (N,) conformal p-value of each new text, combined with that of its (N,) group; see `outside`."""
        p_values = {}
        for name, novelty in novelties.items():
            of_texts = self._ranked(self._measures[name].novelties, novelty)
            p_values[name] = of_texts
            if name != "script":
                together = self._together(of_texts, group)
                # The smaller of the two would make families outside up to twice as often as single texts.
                several = np.bincount(group)[group] > 1
                p_values[name] = np.where(several, _combined(of_texts, together), of_texts)
        return p_values

    def novelties(self, texts: Texts, *, without: str = "") -> dict[str, FloatArray]:
        """Measure → (N,) how unusual each new text is; `without` one of them."""
        names = [name for name in self._measures if name != without]
        novelties = {name: np.empty(len(texts)) for name in names}
        for begin in range(0, len(texts), BLOCK):
            block = slice(begin, begin + BLOCK)
            for name in names:
                novelties[name][block] = self._measures[name].novelty(texts[block])
        return novelties

    def outside(self, texts: Texts, groups: Groups = None) -> list[str]:
        """(N,) reason why each of N ≥ 1 texts is unlike those of the benchmark; empty for a text that is like them."""
        novelties = self.novelties(texts)
        p_values = self.p_values(novelties, group_index(groups, len(texts)))
        unlike = np.stack(list(p_values.values())) <= self.bound + 1e-9
        # many measures reach the smallest p-value; the reason is the one by which the text is farthest from the others
        excess = np.stack([self._excess(name, novelty) for name, novelty in novelties.items()])
        farthest = np.where(unlike, excess, -np.inf).argmax(axis=0)
        names = list(novelties)
        reasons = [""] * len(texts)
        for row in np.flatnonzero(unlike.any(axis=0)).tolist():
            measure = self._measures[names[farthest[row]]]
            reasons[row] = measure.reason(texts[row])
        return reasons

    def _excess(self, name: str, novelty: FloatArray) -> FloatArray:
        """How far novelties are above the benchmark's median, in units of its spread; a new script is beyond all."""
        if name == "script":
            return np.where(novelty > 0, np.inf, 0.0)
        if name == "states":  # which no reader can check: the reason is another measure wherever one sees the text
            return np.full(len(novelty), -1e12)
        of_benchmark = self._measures[name].novelties
        middle = np.median(of_benchmark)
        spread = np.quantile(of_benchmark, 0.9) - middle
        return (novelty - middle) / max(spread, 1e-12)

    def share_outside(self, texts: Texts) -> float:
        """Share of N ≥ 1 texts, each a group of its own, that are unlike the benchmark's; without a pass a text."""
        novelties = self.novelties(texts, without="typicality")
        p_values = self.p_values(novelties, np.arange(len(texts)))
        smallest = np.min(list(p_values.values()), axis=0)
        return float((smallest <= self.bound + 1e-9).mean())

    def _ranked(self, of_benchmark: FloatArray, values: FloatArray) -> FloatArray:
        return _ranked(of_benchmark, self.group, values)

    def _together(self, p_values: FloatArray, group: IntArray) -> FloatArray:
        """(N,) p-values of texts → those of their groups by their mean normal score (Stouffer); 1 for one text."""
        size = np.bincount(group)
        mean = group_means(_normal(p_values), group)
        # texts of one group say less than as many independent ones: the variance of their mean is (1 + (n − 1) ρ) / n
        independent = size / (1 + (size - 1) * self._related)
        joint = stats.norm.sf(mean * np.sqrt(independent))
        return np.where(size > 1, joint, 1.0)[group]


def _ranked(of_benchmark: FloatArray, group: IntArray, values: FloatArray) -> FloatArray:
    """(n,) numbers of a benchmark and (N,) others → (N,) p-values: every one of the (n,) groups has one vote."""
    size = np.bincount(group)
    # one part in 10¹² is rounding: equal texts must rank equally
    unlike = (of_benchmark >= values[:, None] - 1e-12) @ (1 / size[group])
    return np.asarray((1 + unlike) / (size.size + 1))


def _combined(of_texts: FloatArray, of_groups: FloatArray) -> FloatArray:
    """One p-value of two, however they depend: equal ones stay as they are, one alone counts twice; at most .5.

    Source: the Cauchy combination (Liu and Xie 2020, https://doi.org/10.1080/01621459.2018.1554485) of positive parts.
    """
    p_values = np.clip([of_texts, of_groups], 1e-12, 0.5)
    parts = np.maximum(0.0, 1 / np.tan(np.pi * p_values))
    return np.asarray(np.arctan2(1.0, parts.mean(axis=0)) / np.pi)


def _normal(p_values: FloatArray) -> FloatArray:
    # a p-value of exactly 0 or 1 has no finite score
    return stats.norm.isf(np.clip(p_values, 1e-6, 1 - 1e-6))


def _intraclass(values: FloatArray, group: IntArray) -> float:
    """Correlation of two texts of one group (analysis of variance); 0 if every group has one text.

    It is (B − W) / (B + (n₀ − 1) W) for the mean squares B between and W within groups, where
    n₀ = (N − Σ n_g² / N) / (G − 1) stands for the size of unequal groups.
    """
    size = np.bincount(group)
    groups = size.size
    texts = values.size
    if texts == groups or groups < 2:
        return 0.0
    means = group_means(values, group)
    between = float(size @ (means - values.mean()) ** 2) / (groups - 1)
    within = float(((values - means[group]) ** 2).sum()) / (texts - groups)
    typical_size = (texts - float((size**2).sum()) / texts) / (groups - 1)
    total = between + (typical_size - 1) * within
    return min(1.0, (between - within) / max(total, 1e-12))
