"""Domain check: is a text of the kind of the benchmark's non-members, on which the error rate of verdicts rests?

Each measure of a text has a conformal rank of its own: the share of the benchmark's groups of non-members that are at
least as unusual (Vovk, Gammerman and Shafer 2005, Algorithmic Learning in a Random World, ch. 2). A text is outside at
a level divided by the number of measures. Texts of one group are also judged together, where small differences add up.
"""

import math
import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, zip_longest
from typing import NamedTuple

import numpy as np
from scipy import sparse, stats
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.preprocessing import KernelCenterer

from fsd.data import embedded
from fsd.data.near_duplicates import words
from fsd.evaluation.metrics import BoolArray, group_index, group_means, group_members
from fsd.token_stats import FloatArray, IntArray

FOLDS = 10
"""Parts in which the hidden states of the benchmark are compared with the others."""
LEVEL = 0.08
"""Share of texts of the benchmark's kind that may be found outside."""
POWER = 0.8
"""Share of the texts of other kinds that a domain check must find before passing it shows anything."""
LATER = "later texts"
"""Kind of the benchmark's texts of a later period, where it has contemporaries."""
OTHERS, TRIED = 120, 60
"""Texts of each other kind that the classifier of a domain check is trained on, and by which the check is tried."""
MOST = 2000
"""Largest number of a source's non-members that texts are compared with; of more, a sample of most families."""
BLOCK = 2048
"""New texts that are compared at a time, by all measures, so that their n-grams are counted once."""
NEAREST = 10
"""Number of nearest texts of the benchmark whose mean similarity counts."""
CHARACTERS = 20_000
"""Beginning of a text that is compared; the number of words is that of the whole text."""

SCRIPTS = {"CJK": "Chinese", "HIRAGANA": "Kana", "KATAKANA": "Kana"}
"""First word of a letter's name → script, where that is not the word itself."""

States = Callable[[Sequence[str]], FloatArray]
"""N texts → their (N, D) hidden states."""


@dataclass(frozen=True)
class Reference:
    """The non-members of a benchmark, with family and source; `power` is kind of other texts → share found outside."""

    texts: tuple[str, ...]
    families: tuple[int, ...]
    collections: tuple[str, ...]
    power: Mapping[str, float]

    @property
    def powerful(self) -> bool:
        """Whether the domain check finds most texts of other kinds; texts of a later period may be like these."""
        found = [share for kind, share in self.power.items() if kind != LATER]
        return bool(found) and sum(found) / len(found) >= POWER

    def check(self, collection: str, states: States | None = None) -> "DomainCheck":
        """The domain check by the texts of one source, at most `MOST`."""
        at = [at for at, name in enumerate(self.collections) if name == collection]
        if len(at) > MOST:
            of_family: dict[int, list[int]] = {}
            for n in random.Random(0).sample(at, len(at)):
                of_family.setdefault(self.families[n], []).append(n)
            rounds = chain.from_iterable(zip_longest(*of_family.values()))  # one text of each family, then one more
            at = sorted(islice((n for n in rounds if n is not None), MOST))
        texts = [self.texts[n] for n in at]
        others = [text for found in other_kinds(self.texts).values() for text in found]
        return DomainCheck(texts, [self.families[n] for n in at], states(texts) if states else None, others)


def power(
    reference: Reference, further: Mapping[str, Sequence[str]] | None = None, states: States | None = None
) -> dict[str, float]:
    """Kind → share found outside, over the benchmark's sources: the package's kinds, `further` ones, other sources."""
    rows, names = list(zip(reference.texts, reference.collections, strict=True)), dict.fromkeys(reference.collections)
    kinds = {f"source {name!r}": [text for text, of in rows if of == name] for name in names if name}
    kinds |= other_kinds(reference.texts, held_out=True) | {kind: [*texts] for kind, texts in (further or {}).items()}
    shares: dict[str, list[float]] = {kind: [] for kind in kinds}
    for name in names:
        check = reference.check(name, states)
        for kind in [kind for kind, texts in kinds.items() if texts and kind != f"source {name!r}"]:
            outside = check.outside(kinds[kind], None, states(kinds[kind]) if states else None)
            shares[kind].append(sum(map(bool, outside)) / len(outside))
    return {kind: sum(found) / len(found) for kind, found in shares.items() if found}


def other_kinds(texts: Sequence[str], *, held_out: bool = False) -> dict[str, list[str]]:
    """Kind → texts of the package of other kinds, to train a domain check's classifier on, or `held_out` to try it."""
    known = set(texts)
    part = slice(OTHERS, OTHERS + TRIED) if held_out else slice(OTHERS)
    kinds = {name: found[part] for name, found in _embedded().items() if not known & set(found)}
    return kinds | ({"Python's manual": _manual()} if held_out else {})


@lru_cache(maxsize=1)
def _embedded() -> dict[str, list[str]]:
    texts = {name: [document.text for document in embedded.corpus(name)] for name in embedded.CORPORA}
    return {f"embedded texts of {name}": random.Random(0).sample(found, len(found)) for name, found in texts.items()}


@lru_cache(maxsize=1)
def _manual() -> list[str]:
    from pydoc_data.topics import topics

    paragraphs = (" ".join(part.split()) for topic in sorted(topics) for part in topics[topic].split("\n\n"))
    prose = sorted({text for text in paragraphs if 30 <= len(text.split()) <= 150})
    return random.Random(0).sample(prose, TRIED)


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
        self.texts, self.states = list(texts), states
        self.group = group_index(groups, len(texts))
        self.groups = int(self.group.max()) + 1
        self._vote = 1 / np.bincount(self.group)[self.group]
        self._measures = {
            "script": _by_script(self.texts, self.group),
            "length": _by_length(self.texts),
            "words": _by_words(self.texts, self.group),
        }
        if states is not None:
            self._measures["states"] = _by_states(states, self.group)
        if others:
            self._measures["kind"] = _by_kind(self.texts, self.group, others)
        ranked = [self._ranked(one.own, one.own) for name, one in self._measures.items() if name != "script"]
        self._related = max(0.0, *(_intraclass(_normal(p_values), self.group) for p_values in ranked))
        graded = len(ranked)  # that a script is unknown is plain
        rank = max(1, math.floor(LEVEL / graded * (self.groups + 1) + 1e-9))
        self.bound = rank / (self.groups + 1)
        """A text is outside if p is at most this by one of the measures."""
        self.share = min(1.0, graded * self.bound)
        """Share of texts of the benchmark's kind that are outside, at most."""

    def p_values(
        self, texts: Sequence[str], groups: Sequence[Hashable] | None = None, states: FloatArray | None = None
    ) -> dict[str, FloatArray]:
        """Measure → (N,) conformal p-value of each new text, or of its group if that is smaller; see `outside`."""
        group = group_index(groups, len(texts))
        measures = {name: one for name, one in self._measures.items() if name != "states" or states is not None}
        p_values = {name: np.empty(len(texts)) for name in measures}
        for begin in range(0, len(texts), BLOCK):
            at = slice(begin, begin + BLOCK)
            for name, measure in measures.items():
                new = measure.of(texts[at], None if states is None else states[at])
                p_values[name][at] = self._ranked(measure.own, new)
        graded = {name: np.minimum(p, self._together(p, group)) for name, p in p_values.items() if name != "script"}
        return p_values | graded

    def outside(
        self, texts: Sequence[str], groups: Sequence[Hashable] | None = None, states: FloatArray | None = None
    ) -> list[str]:
        """(N,) reason why each of N ≥ 1 texts is unlike those of the benchmark; empty for a text that is like them."""
        p_values = self.p_values(texts, groups, states)
        names, table = list(p_values), np.stack(list(p_values.values()))
        found = table.min(axis=0) <= self.bound + 1e-9
        return [
            self._measures[names[measure]].why(text) if outside else ""
            for text, measure, outside in zip(texts, table.argmin(axis=0), found, strict=True)
        ]

    def _ranked(self, own: FloatArray, values: FloatArray) -> FloatArray:
        """(n,) and (N,) novelties → (N,) p-values: every group of the benchmark has one vote."""
        unlike = (own >= values[:, None] - 1e-12) @ self._vote
        return np.asarray((1 + unlike) / (self.groups + 1), dtype=np.float64)

    def _together(self, p_values: FloatArray, group: IntArray) -> FloatArray:
        """(N,) p-values of texts → those of their groups by their mean normal score (Stouffer); 1 for one text."""
        size = np.bincount(group)
        mean = group_means(_normal(p_values), group)
        joint = stats.norm.sf(mean * np.sqrt(size / (1 + (size - 1) * self._related)))
        return np.asarray(np.where(size > 1, joint, 1.0)[group], dtype=np.float64)


# Measures


class _Measure(NamedTuple):
    """How unusual the benchmark's texts are without their own groups, and new ones, and in what a text is unlike."""

    own: FloatArray
    of: Callable[[Sequence[str], FloatArray | None], FloatArray]
    why: Callable[[str], str]


def script(text: str) -> str:
    """The script of most letters of the text, by their names in Unicode; "no known" if there are none."""
    names = (unicodedata.name(letter, "unknown").split()[0] for letter in text if letter.isalpha())
    counts = Counter(SCRIPTS.get(name, name.capitalize()) for name in names)
    return counts.most_common(1)[0][0] if counts else "no known"


def _by_script(texts: Sequence[str], group: IntArray) -> _Measure:
    scripts = [script(text) for text in texts]
    groups = Counter(name for name, _ in {*zip(scripts, group.tolist(), strict=True)})
    known = ", ".join(sorted(groups))
    return _Measure(
        np.array([float(groups[name] == 1) for name in scripts]),
        lambda new, _: np.array([float(script(text) not in groups) for text in new]),
        lambda text: f"written in {script(text)} letters; calibrated on {known}",
    )


def _by_length(texts: Sequence[str]) -> _Measure:
    lengths = _log_lengths(texts)
    middle = np.median(lengths)
    shortest, longest = np.exp([lengths.min(), lengths.max()]).round().astype(int)
    return _Measure(
        np.abs(lengths - middle),
        lambda new, _: np.abs(_log_lengths(new) - middle),
        lambda text: f"length {len(words(text))} words; the calibrated texts have {shortest} to {longest}",
    )


def _by_words(texts: Sequence[str], group: IntArray) -> _Measure:
    """Similarity with the nearest texts of the benchmark, of which less is expected of shorter texts."""
    similarity, lengths = Similarity(texts), _log_lengths(texts)

    def powers(log_lengths: FloatArray) -> FloatArray:
        return np.vander(np.clip(log_lengths, lengths.min(), lengths.max()), 3, increasing=True)

    similar = similarity(texts)
    similar[group[:, None] == group[None, :]] = -np.inf
    near = _mean_of_nearest(similar)
    enough = len(texts) > FOLDS
    shape = np.linalg.lstsq(powers(lengths), near, rcond=None)[0] if enough else np.zeros(3)
    return _Measure(
        powers(lengths) @ shape - near,
        lambda new, _: powers(_log_lengths(new)) @ shape - _mean_of_nearest(similarity(new)),
        lambda text: "language or vocabulary unlike the calibrated texts",
    )


def _by_states(states: FloatArray, group: IntArray) -> _Measure:
    """Distance of the hidden states from the mean of the benchmark; its own texts by that of the other folds."""
    spread = states.std(axis=0)
    scale = np.where(spread > 1e-12, spread, 1.0)
    known, own = states / scale, np.zeros(len(states))
    for fold in range(FOLDS if group.max() else 0):
        part = group % FOLDS == fold
        if part.any() and not part.all():
            own[part] = mahalanobis(known[~part], known[part])
    return _Measure(
        own,
        lambda _, new: mahalanobis(known, np.asarray(new) / scale),
        lambda text: "unlike the calibrated texts in the model's hidden states",
    )


def _by_kind(texts: Sequence[str], group: IntArray, others: Sequence[str]) -> _Measure:
    """Ridge regression on words and character n-grams that distinguishes the benchmark from other kinds of texts."""
    similarity = Similarity([*texts, *others])
    label = np.repeat([1.0, 0.0], [len(texts), len(others)])
    ridge = Ridge(similarity([*texts, *others]))
    block = np.append(group, group.max() + 1 + np.arange(len(others)))
    weights, constant = ridge.weights(label)
    return _Measure(
        -ridge.left_out(label, block)[: len(texts)],
        lambda new, _: -constant - similarity.weighted_sum(new, weights),
        lambda text: "its words are rather those of other kinds of texts",
    )


_COUNTERS = [
    HashingVectorizer(n_features=2**18, norm=None, alternate_sign=False, analyzer=analyzer, ngram_range=lengths)
    for analyzer, lengths in ((words, (1, 1)), ("char_wb", (2, 4)))
]


@lru_cache(maxsize=4096)  # the domain check and the test of exchangeability count the same texts
def _counted(text: str) -> list[sparse.csr_matrix]:
    return [counter.transform([text[:CHARACTERS]]) for counter in _COUNTERS]


class Similarity:
    """Similarity with n ≥ 1 texts, from 0 to 1: the mean of the cosines by words and by character n-grams (tf-idf)."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._weighting = [TfidfTransformer(sublinear_tf=True).fit(counts) for counts in self._counts(texts)]
        self._rows = self._weighted(texts)

    @staticmethod
    def _counts(texts: Sequence[str]) -> list[sparse.csr_matrix]:
        return [sparse.vstack(rows) for rows in zip(*map(_counted, texts), strict=True)]

    def _weighted(self, texts: Sequence[str]) -> sparse.csr_matrix:
        parts = (weight.transform(count) for weight, count in zip(self._weighting, self._counts(texts), strict=True))
        return sparse.csr_matrix(sparse.hstack([part / math.sqrt(2) for part in parts]))

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """(N, n) similarity of N ≥ 1 texts with the n texts."""
        return np.asarray((self._weighted(texts) @ self._rows.T).toarray(), dtype=np.float64)

    def weighted_sum(self, texts: Sequence[str], weights: FloatArray) -> FloatArray:
        """(N,) sums of the similarities with the n texts, times (n,) weights, without the similarities themselves."""
        return np.asarray(self._weighted(texts) @ (self._rows.T @ weights), dtype=np.float64)


class Ridge:
    """Kernel ridge regression of (N,) or (N, P) labels on (N, N) scalar products, shrunk by their mean eigenvalue."""

    def __init__(self, products: FloatArray) -> None:
        self._centring = KernelCenterer().fit(products)
        kernel = self._centring.transform(products)
        self._inverse = np.linalg.inv(kernel + max(np.trace(kernel) / len(kernel), 1e-12) * np.eye(len(kernel)))
        self._smoother = kernel @ self._inverse + 1 / len(kernel)

    def weights(self, labels: FloatArray) -> tuple[FloatArray, float]:
        """(N,) weights of the scalar products with those that it is trained on, and the constant, of a prediction."""
        weights = self._inverse @ (labels - labels.mean())
        total = weights.sum()
        constant = labels.mean() - self._centring.K_fit_rows_ @ weights + self._centring.K_fit_all_ * total
        return weights - total / len(weights), float(constant)

    def left_out(self, labels: FloatArray | BoolArray, block: IntArray) -> FloatArray:
        """Prediction for each text when its whole group B is left out: (I − S_BB)⁻¹ (Sy − S_BB y)_B."""
        predicted = self._smoother @ labels
        for at in group_members(block):
            own = self._smoother[np.ix_(at, at)]
            predicted[at] = np.linalg.solve(np.eye(at.size) * (1 + 1e-9) - own, predicted[at] - own @ labels[at])
        return np.asarray(predicted, dtype=np.float64)


def mahalanobis(known: FloatArray, asked: FloatArray) -> FloatArray:
    """(N,) squared distances of (N, D) rows from the mean of (n, D) others, without a D × D matrix (Woodbury).

    The covariance is shrunk (Ledoit and Wolf 2004, https://doi.org/10.1016/S0047-259X(03)00096-4).
    """
    mean = known.mean(axis=0)
    rows, new = known - mean, asked - mean
    shrinkage = float(ledoit_wolf_shrinkage(rows, assume_centered=True)) if len(rows) > 1 else 1.0
    shrinkage = min(max(shrinkage, 1e-6), 1 - 1e-12)
    ridge = shrinkage * max(float((rows**2).mean()), 1e-12)
    inner = rows @ rows.T + ridge * len(rows) / (1 - shrinkage) * np.eye(len(rows))
    products = new @ rows.T
    explained = (products * np.linalg.solve(inner, products.T).T).sum(axis=1)
    return np.asarray(((new**2).sum(axis=1) - explained) / ridge, dtype=np.float64)


def _mean_of_nearest(similar: FloatArray) -> FloatArray:
    """(N, M) similarities, -inf for texts that do not count → (N,) mean of the `NEAREST` highest."""
    nearest = -np.sort(-similar, axis=1)[:, :NEAREST]
    known = np.isfinite(nearest)
    total = np.where(known, nearest, 0.0).sum(axis=1)
    return np.asarray(total / np.maximum(1, known.sum(axis=1)), dtype=np.float64)


def _normal(p_values: FloatArray) -> FloatArray:
    return np.asarray(stats.norm.isf(np.clip(p_values, 1e-6, 1 - 1e-6)), dtype=np.float64)


def _intraclass(values: FloatArray, group: IntArray) -> float:
    """Correlation of two texts of one group (analysis of variance); 0 if every group has one text."""
    size = np.bincount(group)
    count, texts = size.size, values.size
    if texts == count or count < 2:
        return 0.0
    means = group_means(values, group)
    between = float(size @ (means - values.mean()) ** 2) / (count - 1)
    within = float(((values - means[group]) ** 2).sum()) / (texts - count)
    typical = (texts - float((size**2).sum()) / texts) / (count - 1)
    return min(1.0, (between - within) / max(between + (typical - 1) * within, 1e-12))


def _log_lengths(texts: Sequence[str]) -> FloatArray:
    return np.log([max(1, len(words(text))) for text in texts])
