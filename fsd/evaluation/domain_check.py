"""Domain check: is a text of the kind of the benchmark's non-members, on which the error rate of verdicts rests?

Measures look at the script, the length, the similarity of words and character n-grams with the nearest texts of the
benchmark, a classifier of the benchmark against texts of other kinds, and the base model's hidden states. Each has a
conformal rank of its own: the share of the benchmark's groups of non-members that are at least as unusual. A text that
is exchangeable with them has p ≤ α by each measure with probability about α (Vovk, Gammerman and Shafer 2005,
Algorithmic Learning in a Random World, ch. 2). It is outside at a level divided by the number of measures. Texts of one
group are also judged together, where small differences add up.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import sparse, stats
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from fsd.data import embedded
from fsd.data.near_duplicates import words
from fsd.evaluation.metrics import BoolArray, group_index, group_means, group_members
from fsd.token_stats import FloatArray, IntArray

SCRIPTS: dict[str, tuple[int, int]] = {
    "Latin": (0x41, 0x24F),
    "Greek": (0x370, 0x3FF),
    "Cyrillic": (0x400, 0x52F),
    "Hebrew": (0x590, 0x5FF),
    "Arabic": (0x600, 0x6FF),
    "Devanagari": (0x900, 0x97F),
    "Bengali": (0x980, 0x9FF),
    "Thai": (0xE00, 0xE7F),
    "Hangul": (0xAC00, 0xD7AF),
    "Kana": (0x3040, 0x30FF),
    "Chinese characters": (0x3400, 0x9FFF),
}
"""Script → first and last code point of its range."""
FOLDS = 10
"""Parts in which the hidden states of the benchmark are compared with the others."""
LEVEL = 0.08
"""Share of texts of the benchmark's kind that may be found outside."""
POWER = 0.8
"""Share of the texts of other kinds that a domain check must find before passing it shows anything."""
LATER = "later texts"
"""Kind of the benchmark's texts of a later period, where it has contemporaries."""
OTHERS = 120
"""Texts of each embedded corpus that the classifier of a domain check is trained on."""
TRIED = 60
"""Texts of each other kind by which a domain check is tried."""
NEAREST = 10
"""Number of nearest texts of the benchmark whose mean similarity counts."""
CHARACTERS = 20_000
"""Beginning of a text that is compared; the number of words is that of the whole text."""


def script(text: str) -> str:
    """The script of most letters of the text; "no known" if there are none."""
    letters = Counter(ord(letter) for letter in text if letter.isalpha())
    counts: Counter[str] = Counter()
    for name, (low, high) in SCRIPTS.items():
        counts[name] = sum(number for code, number in letters.items() if low <= code <= high)
    name, number = counts.most_common(1)[0]
    return name if number else "no known"


States = Callable[[Sequence[str]], FloatArray]
"""N texts → their (N, D) hidden states."""


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
        counts = self._counts(texts)
        self._weighting = [TfidfTransformer(sublinear_tf=True).fit(count) for count in counts]
        self._rows = self._weighted(counts)

    @staticmethod
    def _counts(texts: Sequence[str]) -> list[sparse.csr_matrix]:
        return [sparse.vstack(rows) for rows in zip(*map(_counted, texts), strict=True)]

    def _weighted(self, counts: Sequence[sparse.csr_matrix]) -> sparse.csr_matrix:
        parts = (weight.transform(count) for weight, count in zip(self._weighting, counts, strict=True))
        return sparse.csr_matrix(sparse.hstack([part / math.sqrt(2) for part in parts]))

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """(N, n) similarity of N ≥ 1 texts with the n texts."""
        return np.asarray((self._weighted(self._counts(texts)) @ self._rows.T).toarray(), dtype=np.float64)


@dataclass(frozen=True)
class Reference:
    """The n non-members of a benchmark, which say of what kind texts must be, and how well others are recognised."""

    texts: tuple[str, ...]
    """The model may have been fine-tuned on some of them."""
    families: tuple[int, ...]
    """Number of the family of each."""
    collections: tuple[str, ...]
    """Source of each, "" without."""
    power: Mapping[str, float]
    """Kind of other texts → share of them that the domain check finds outside."""

    @property
    def powerful(self) -> bool:
        """Whether the domain check finds most texts of other kinds; texts of a later period may be like these."""
        found = [share for kind, share in self.power.items() if kind != LATER]
        return bool(found) and sum(found) / len(found) >= POWER

    def check(self, collection: str, states: States | None = None) -> "DomainCheck":
        """The domain check by the texts of one source."""
        at = [at for at, name in enumerate(self.collections) if name == collection]
        texts, families = [self.texts[n] for n in at], [self.families[n] for n in at]
        others = [text for found in other_kinds(self.texts).values() for text in found]
        return DomainCheck(texts, families, states(texts) if states else None, others)


@lru_cache(maxsize=1)
def _embedded() -> dict[str, list[str]]:
    """Kind → the texts that the package has of it, in random order."""
    texts = {name: [document.text for document in embedded.corpus(name)] for name in embedded.CORPORA}
    return {f"embedded texts of {name}": random.Random(0).sample(found, len(found)) for name, found in texts.items()}


def other_kinds(texts: Sequence[str], *, held_out: bool = False) -> dict[str, list[str]]:
    """Kind → texts that the package has of other kinds than the texts of a benchmark.

    With `held_out`, they are texts by which a domain check is tried, Python's manual among them, in place of those that
    its classifier is trained on.
    """
    known = set(texts)
    part = slice(OTHERS, OTHERS + TRIED) if held_out else slice(OTHERS)
    kinds = {name: found[part] for name, found in _embedded().items() if not known & set(found)}
    return kinds | ({"Python's manual": _manual()} if held_out else {})


@lru_cache(maxsize=1)
def _manual() -> list[str]:
    """Paragraphs of the manual that comes with Python, a kind of text of which no domain check knows any."""
    from pydoc_data.topics import topics

    paragraphs = (" ".join(part.split()) for topic in sorted(topics) for part in topics[topic].split("\n\n"))
    prose = sorted({text for text in paragraphs if 30 <= len(text.split()) <= 150})
    return random.Random(0).sample(prose, TRIED)


def power(
    reference: Reference, further: Mapping[str, Sequence[str]] | None = None, states: States | None = None
) -> dict[str, float]:
    """Measure how well the domain checks of a benchmark recognise texts of other kinds, one by one.

    The other kinds are those that the package has, the `further` ones, and for each source of the benchmark the others.
    Gives for each kind the share of its texts that are outside, on average over the sources of the benchmark.
    """
    kinds: dict[str, list[str]] = {}
    for text, name in zip(reference.texts, reference.collections, strict=True):
        if name:
            kinds.setdefault(f"source {name!r}", []).append(text)
    kinds |= {**other_kinds(reference.texts, held_out=True), **{kind: [*of] for kind, of in (further or {}).items()}}
    found: dict[str, list[float]] = {kind: [] for kind, texts in kinds.items() if texts}
    for name in dict.fromkeys(reference.collections):
        check = reference.check(name, states)
        for kind, shares in found.items():
            if kind != f"source {name!r}":
                outside = check.outside(kinds[kind], None, states(kinds[kind]) if states else None)
                shares.append(sum(map(bool, outside)) / len(outside))
    return {kind: sum(shares) / len(shares) for kind, shares in found.items() if shares}


class DomainCheck:
    """Conformal test of whether new texts are like the n ≥ 1 non-members of a benchmark.

    Args:
        texts: (n,) non-members of the benchmark.
        groups: (n,) group of each; a text is not compared with its own group, and every group has one vote. None if all
            are independent.
        states: (n, D) hidden states of the texts, see `fsd.scoring.model_scorer`; None to do without.
        others: texts of other kinds, that a classifier distinguishes from these; () to do without.
    """

    def __init__(
        self,
        texts: Sequence[str],
        groups: Sequence[Hashable] | None = None,
        states: FloatArray | None = None,
        others: Sequence[str] = (),
    ) -> None:
        self.texts = list(texts)
        self.group = group_index(groups, len(texts))
        self._similarity = Similarity(self.texts)
        self._scripts = Counter(name for name, _ in {*zip(map(script, texts), self.group.tolist(), strict=True)})
        self._vote = 1 / np.bincount(self.group)[self.group]
        self.distance = None if states is None else Distance(states, self.group)
        self._classifier = _Classifier(self.texts, self.group, others) if others else None
        self._length = _log_lengths(texts)
        similar = self._similarity(self.texts)
        similar[self.group[:, None] == self.group[None, :]] = -np.inf
        near = _mean_of_nearest(similar)
        enough = len(texts) > FOLDS
        self._shape = np.linalg.lstsq(self._powers(self._length), near, rcond=None)[0] if enough else np.zeros(3)
        self._novelty = self._measures(self.texts, near, known=1)
        if self.distance:
            self._novelty["states"] = self.distance.own
        if self._classifier:
            self._novelty["kind"] = self._classifier.own
        normal = [_normal(self._ranked(name, values)) for name, values in self._novelty.items() if name != "script"]
        self._related = max(0.0, *(_intraclass(values, self.group) for values in normal))

    @property
    def groups(self) -> int:
        """G, the number of groups of the benchmark's texts."""
        return int(self.group.max()) + 1

    @property
    def rank(self) -> int:
        """r: a text is outside if p ≤ r / (G + 1) by one of the measures."""
        return max(1, math.floor(LEVEL / (len(self._novelty) - 1) * (self.groups + 1) + 1e-9))  # a script is plain

    @property
    def share(self) -> float:
        """Share of texts of the benchmark's kind that are outside, at most."""
        return min(1.0, (len(self._novelty) - 1) * self.rank / (self.groups + 1))

    def p_values(
        self, texts: Sequence[str], groups: Sequence[Hashable] | None = None, states: FloatArray | None = None
    ) -> dict[str, FloatArray]:
        """Measure → (N,) conformal p-value of each new text, or of its group if that is smaller; see `outside`."""
        group = group_index(groups, len(texts))
        novelty = self._measures(texts, _mean_of_nearest(self._similarity(texts)))
        if self.distance and states is not None:
            novelty["states"] = self.distance(states)
        if self._classifier:
            novelty["kind"] = self._classifier(texts)
        ranked = {name: self._ranked(name, values) for name, values in novelty.items()}
        return {name: p if name == "script" else np.minimum(p, self._together(p, group)) for name, p in ranked.items()}

    def outside(
        self, texts: Sequence[str], groups: Sequence[Hashable] | None = None, states: FloatArray | None = None
    ) -> list[str]:
        """(N,) reason why each of N ≥ 1 texts is unlike those of the benchmark; empty for a text that is like them."""
        p_values = self.p_values(texts, groups, states)
        names, table = list(p_values), np.stack(list(p_values.values()))
        found = table.min(axis=0) <= self.rank / (self.groups + 1) + 1e-9
        return [
            self._reason(names[measure], text) if outside else ""
            for text, measure, outside in zip(texts, table.argmin(axis=0), found, strict=True)
        ]

    def _reason(self, measure: str, text: str) -> str:
        shortest, longest = np.exp([self._length.min(), self._length.max()]).round().astype(int)
        return {
            "script": f"written in {script(text)} letters; calibrated on {', '.join(sorted(self._scripts))}",
            "length": f"length {len(words(text))} words; the calibrated texts have {shortest} to {longest}",
            "words": "language or vocabulary unlike the calibrated texts",
            "states": "unlike the calibrated texts in the model's hidden states",
            "kind": "its words are rather those of other kinds of texts",
        }[measure]

    def _ranked(self, measure: str, values: FloatArray) -> FloatArray:
        """(N,) novelties → p-values: every group of the benchmark has one vote."""
        unlike = (self._novelty[measure] >= values[:, None] - 1e-12) @ self._vote
        return np.asarray((1 + unlike) / (self.groups + 1), dtype=np.float64)

    def _together(self, p_values: FloatArray, group: IntArray) -> FloatArray:
        """(N,) p-values of texts → those of their groups by the mean of their normal scores (Stouffer); 1 for one text.

        Texts of one group are as related as those of one group of the benchmark.
        """
        size = np.bincount(group)
        mean = group_means(_normal(p_values), group)
        joint = stats.norm.sf(mean * np.sqrt(size / (1 + (size - 1) * self._related)))
        return np.asarray(np.where(size > 1, joint, 1.0)[group], dtype=np.float64)

    def _measures(self, texts: Sequence[str], near: FloatArray, known: int = 0) -> dict[str, FloatArray]:
        """Measure → (N,) novelty of each text, for those that are made from texts.

        `near` is the (N,) similarity with the nearest texts of the benchmark, of which less is expected of shorter
        texts; `known` is how often the script of each text is counted for the text itself.
        """
        length = _log_lengths(texts)
        return {
            "script": np.array([float(self._scripts[script(text)] <= known) for text in texts]),
            "length": np.abs(length - np.median(self._length)),
            "words": self._powers(length) @ self._shape - near,
        }

    def _powers(self, length: FloatArray) -> FloatArray:
        """(N, 3) powers of log lengths within the range of the benchmark."""
        within = np.clip(length, self._length.min(), self._length.max())
        return np.stack([np.ones(within.size), within, within**2], axis=1)


class _Classifier:
    """Ridge regression on words and character n-grams that distinguishes the benchmark from other kinds of texts.

    `own` is (n,): how unlike the benchmark each of its texts is, by a classifier that was not trained on its group.
    """

    def __init__(self, texts: Sequence[str], group: IntArray, others: Sequence[str]) -> None:
        together = [*texts, *others]
        self._similarity = Similarity(together)
        block = group_index([*group.tolist(), *(f"other {at}" for at in range(len(others)))], len(together))
        label = (np.arange(len(together)) < len(texts)).astype(np.float64)[:, None]
        self._ridge = Ridge(self._similarity(together))
        self._weights, self._share = self._ridge.weights(label), float(label.mean())
        self.own = -self._ridge.left_out(label, block)[: len(texts), 0]

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """(N,) how unlike the benchmark new texts are."""
        centred = self._ridge.centred(self._similarity(texts))
        return np.asarray(-self._share - (centred @ self._weights)[:, 0], dtype=np.float64)


class Ridge:
    """Kernel ridge regression with intercept, shrunk by the mean eigenvalue of the kernel, (N, N) scalar products."""

    def __init__(self, products: FloatArray) -> None:
        self._mean, self._grand = products.mean(axis=0), products.mean()
        values, self._vectors = np.linalg.eigh(self.centred(products))
        self._values = np.maximum(values, 0.0)
        self._shrinkage = max(float(self._values.mean()), 1e-12)

    def centred(self, products: FloatArray) -> FloatArray:
        """(M, N) scalar products of any texts with those that it is trained on, both minus the mean of the latter."""
        return np.asarray(products - self._mean - products.mean(axis=1, keepdims=True) + self._grand)

    def weights(self, labels: FloatArray) -> FloatArray:
        """(N, P) weights for (N, P) labellings; `centred(products) @ weights` are predictions minus the mean label."""
        centred = self._vectors.T @ (labels - labels.mean(axis=0))
        return np.asarray(self._vectors @ (centred / (self._values + self._shrinkage)[:, None]), dtype=np.float64)

    def left_out(self, labels: FloatArray | BoolArray, block: IntArray) -> FloatArray:
        """(N, P) labellings → (N, P) prediction for each text when its whole group is left out.

        The smoother S does not depend on the labels, so that all labellings cost one product; leaving out a group B is
        (I − S_BB)⁻¹ (Sy − S_BB y)_B.
        """
        shrunk = self._values / (self._values + self._shrinkage)
        smoother = (self._vectors * shrunk) @ self._vectors.T + 1 / self._values.size
        predicted = smoother @ labels
        for at in group_members(block):
            own = smoother[np.ix_(at, at)]
            rest = np.eye(at.size) * (1 + 1e-9) - own
            predicted[at] = np.linalg.solve(rest, predicted[at] - own @ labels[at])
        return np.asarray(predicted, dtype=np.float64)


class Distance:
    """Squared Mahalanobis distance of hidden states from the mean of the benchmark.

    The covariance is shrunk towards a multiple of the identity (Ledoit and Wolf 2004,
    https://doi.org/10.1016/S0047-259X(03)00096-4). The benchmark's own texts are measured by that of the other folds.

    `states` are (n, D), and `own` is the (n,) distance of each of these texts, whose groups are in one fold each.
    """

    def __init__(self, states: FloatArray, group: IntArray) -> None:
        self.states = states
        spread = states.std(axis=0)
        self._scale = np.where(spread > 1e-12, spread, 1.0)
        self._known = states / self._scale
        self.own = np.zeros(len(states))
        for fold in range(FOLDS if group.max() else 0):
            part = group % FOLDS == fold
            if part.any() and not part.all():
                self.own[part] = _mahalanobis(self._known[~part], self._known[part])

    def __call__(self, states: FloatArray) -> FloatArray:
        """(N,) distances of new texts with (N, D) hidden states."""
        return _mahalanobis(self._known, states / self._scale)


def _mahalanobis(known: FloatArray, asked: FloatArray) -> FloatArray:
    """(N,) squared distances by the shrunk covariance of (n, D) rows, without a D × D matrix (Woodbury's identity)."""
    mean = known.mean(axis=0)
    rows, new = known - mean, asked - mean
    size, width = rows.shape
    if size < 2:  # no spread is known
        return np.asarray((new**2).sum(axis=1), dtype=np.float64)
    shrinkage = max(float(ledoit_wolf_shrinkage(rows, assume_centered=True)), 1e-6)
    ridge = shrinkage * max(float((rows**2).sum()) / size / width, 1e-12)
    inner = rows @ rows.T
    if shrinkage < 1:
        inner[np.diag_indices(size)] += ridge * size / (1 - shrinkage)
        products = new @ rows.T
        explained = (products * np.linalg.solve(inner, products.T).T).sum(axis=1)
    else:
        explained = 0.0
    return np.asarray(((new**2).sum(axis=1) - explained) / ridge, dtype=np.float64)


def _mean_of_nearest(similar: FloatArray) -> FloatArray:
    """(N, M) similarities, -inf for texts that do not count → (N,) mean of the `NEAREST` highest."""
    nearest = -np.sort(-similar, axis=1)[:, :NEAREST]
    known = np.isfinite(nearest)
    total = np.where(known, nearest, 0.0).sum(axis=1)
    return np.asarray(total / np.maximum(1, known.sum(axis=1)), dtype=np.float64)


def _normal(p_values: FloatArray) -> FloatArray:
    """p-values → normal scores."""
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
