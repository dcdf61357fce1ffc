"""How unusual a text is beside the non-members of a benchmark, by measures that each see something else.

A measure compares new texts with the benchmark's, and each of the benchmark's texts with those of other groups. Higher
means less usual. `fsd.verdicts.domain_check` turns the numbers into ranks.
"""

import math
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
from scipy import sparse
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.preprocessing import KernelCenterer
from typing_extensions import override

from fsd.data.documents import Texts
from fsd.data.near_duplicates import words
from fsd.errors import printable
from fsd.statistics.groups import group_members
from fsd.text_audit.writing import MEASURES, spread_out, writing
from fsd.token_stats import BoolArray, FloatArray, IntArray

FOLDS = 10
"""Parts in which the vectors of the benchmark are compared with the others."""
NEAREST = 10
"""Number of nearest texts of the benchmark whose mean similarity counts."""
CHARACTERS = 20_000
"""Beginning of a text that is compared; the number of words is that of the whole text."""
SMALLEST_SPREAD = 0.05
"""Smallest standard deviation of a measure of writing that counts, on the scale of `spread_out`.

Without it the first digit would make a text infinitely unusual where no text of the benchmark has one.
"""
TELLING = 3
"""Number of words or measures that a reason names."""
UNUSUAL = 3.0
"""Standard deviations from the benchmark's mean from which a reason names a measure beside the farthest one."""
LONGEST_WORD = 30
"""Characters of a word that a reason quotes."""

SCRIPTS = {"CJK": "Chinese", "HIRAGANA": "Kana", "KATAKANA": "Kana"}
"""First word of a letter's name → script, where that is not the word itself."""


Read = Callable[[Texts], FloatArray]
"""N texts → what a model makes of them: (N, D) hidden states, or (N, 3) their `fsd.scoring.model.Model.typicality`."""


class Measure(ABC):
    """How unusual texts are in one respect."""

    novelties: FloatArray
    """(n,) how unusual each text of the benchmark is without its own group."""

    @abstractmethod
    def novelty(self, texts: Texts) -> FloatArray:
        """(N,) how unusual new texts are."""

    @abstractmethod
    def reason(self, text: str) -> str:
        """In what a text is unlike those of the benchmark."""


def script(text: str) -> str:
    """The script of most letters of the text, by their names in Unicode; "no known" if there are none."""
    counts: Counter[str] = Counter()
    # In the order of their first occurrence, which decides between scripts of equally many letters.
    for sign, number in Counter(text).items():
        if sign.isalpha():
            name = unicodedata.name(sign, "unknown").split()[0]
            counts[SCRIPTS.get(name, name.capitalize())] += number
    return max(counts, key=counts.__getitem__, default="no known")


class Script(Measure):
    """Whether another group of the benchmark is written in the text's script: 0 if so, else 1."""

    def __init__(self, texts: Texts, group: IntArray) -> None:
        scripts = list(map(script, texts))
        distinct = set(zip(scripts, group.tolist(), strict=True))
        self._groups = Counter(name for name, _ in distinct)
        self.novelties = np.array([float(self._groups[name] == 1) for name in scripts])

    @override
    def novelty(self, texts: Texts) -> FloatArray:
        return np.array([float(script(text) not in self._groups) for text in texts])

    @override
    def reason(self, text: str) -> str:
        return f"written in {script(text)} letters; calibrated on {', '.join(sorted(self._groups))}"


class Length(Measure):
    """Distance from the median of the benchmark's numbers of words, on a log scale."""

    def __init__(self, texts: Texts) -> None:
        lengths = log_lengths(texts)
        self._median = np.median(lengths)
        self._shortest = round(math.exp(lengths.min()))
        self._longest = round(math.exp(lengths.max()))
        self.novelties = np.abs(lengths - self._median)

    @override
    def novelty(self, texts: Texts) -> FloatArray:
        return np.abs(log_lengths(texts) - self._median)

    @override
    def reason(self, text: str) -> str:
        return f"length {len(words(text))} words; the calibrated texts have {self._shortest} to {self._longest}"


class Words(Measure):
    """Lack of similarity with the nearest texts of the benchmark; of shorter texts less similarity is expected."""

    def __init__(self, texts: Texts, group: IntArray) -> None:
        self._similarity = Similarity(texts)
        self._lengths = log_lengths(texts)
        similar = self._similarity.among()
        similar[group[:, None] == group[None, :]] = -np.inf  # a text's own group says nothing about others
        nearest = _mean_of_nearest(similar)
        powers = self._powers(self._lengths)
        # a curve through fewer points would follow each of them: no similarity is then expected of any length
        fit = np.linalg.pinv(powers) if len(texts) > FOLDS else np.zeros((3, len(texts)))
        self._shape = fit @ nearest
        # a text's own part in the curve says nothing about a new one: the residual is that of a curve without the text
        own_part = np.minimum((powers * fit.T).sum(axis=1), 1 - 1e-9)
        self.novelties = (powers @ self._shape - nearest) / (1 - own_part)

    def _powers(self, lengths: FloatArray) -> FloatArray:
        # beyond the benchmark's own lengths the parabola would mean nothing
        within = np.clip(lengths, self._lengths.min(), self._lengths.max())
        return np.vander(within, 3, increasing=True)

    @override
    def novelty(self, texts: Texts) -> FloatArray:
        expected = self._powers(log_lengths(texts)) @ self._shape
        return expected - _mean_of_nearest(self._similarity(texts))

    @override
    def reason(self, text: str) -> str:
        new_words = self._similarity.new_words(text)
        return f"language or vocabulary unlike the calibrated texts{_listed(': none of them has ', new_words)}"


class Writing(Measure):
    """Distance of the shares of capitals, digits, punctuation, white space, ... from the benchmark's."""

    def __init__(self, texts: Texts, group: IntArray) -> None:
        shares = writing(texts)
        self._typical = np.median(shares, axis=0)
        self._vectors = spread_out(shares)
        self.novelties = by_fold(self._distances, self._vectors, group)

    @staticmethod
    def _distances(benchmark: FloatArray, asked: FloatArray) -> FloatArray:
        """(N,) squared distances of new vectors from the mean of the benchmark's (Mahalanobis)."""
        mean = benchmark.mean(axis=0)
        centred = benchmark - mean
        covariance = centred.T @ centred / len(centred) + SMALLEST_SPREAD**2 * np.eye(mean.size)
        return _quadratic_form(covariance, asked - mean)

    @override
    def novelty(self, texts: Texts) -> FloatArray:
        return self._distances(self._vectors, spread_out(writing(texts)))

    @override
    def reason(self, text: str) -> str:
        shares = writing([text])[0]
        spread = np.maximum(self._vectors.std(axis=0), SMALLEST_SPREAD)
        distance = np.abs(spread_out(shares) - self._vectors.mean(axis=0)) / spread
        farthest = np.argsort(-distance, kind="stable")[:TELLING]
        # beside the farthest only what is itself unusual: the third of three measures is often an ordinary one
        least = min(UNUSUAL, distance.max())
        telling = farthest[distance[farthest] >= least]
        phrases = []
        for measure in telling:
            typical = self._typical[measure]
            phrases.append(f"{MEASURES[measure]} {shares[measure]:.0%} (typically {typical:.0%})")
        return f"written unlike the calibrated texts: {', '.join(phrases)}"


class HiddenStates(Measure):
    """Distance of the hidden states from the mean of the benchmark."""

    def __init__(self, texts: Texts, group: IntArray, read: Read) -> None:
        self._read = read
        states = read(texts)
        self._scale = scale_of(states)
        self._vectors = states / self._scale
        self.novelties = by_fold(mahalanobis, self._vectors, group)

    @override
    def novelty(self, texts: Texts) -> FloatArray:
        return mahalanobis(self._vectors, self._read(texts) / self._scale)

    @override
    def reason(self, text: str) -> str:
        return "unlike the calibrated texts in the model's hidden states"


class Typical(Measure):
    """How probable a text is for a model that did not learn what is asked for (`Model.typicality`).

    A text that was read is probable for the model that read it alone; what a model wrote is probable for others too.
    With `both_ways`, as in audits, a text that the base knows less than the benchmark's is as unusual.
    """

    def __init__(self, texts: Texts, read: Read, *, both_ways: bool = False) -> None:
        self._read = read
        self._both_ways = both_ways
        values = read(texts)[:, 0]
        self._median = float(np.median(values))
        self.novelties = self._distance(values)

    def _distance(self, values: FloatArray) -> FloatArray:
        above = values - self._median
        if self._both_ways:
            return np.abs(above)
        return above

    @override
    def novelty(self, texts: Texts) -> FloatArray:
        return self._distance(self._read(texts)[:, 0])

    @override
    def reason(self, text: str) -> str:
        if self._read([text])[0, 0] > self._median:
            return "too probable for the model, as texts are that it wrote itself or that it knows otherwise"
        return "less probable for the base model than the calibrated texts"


class Kind(Measure):
    """How much more a text's words and character n-grams are those of other kinds of texts (ridge regression)."""

    def __init__(self, texts: Texts, group: IntArray, other_texts: Texts) -> None:
        self._similarity = Similarity(list(texts) + list(other_texts))
        ridge = Ridge(self._similarity.products())
        label = np.repeat([1.0, 0.0], [len(texts), len(other_texts)])
        self._weights, self._constant = ridge.weights(label)
        # each other text is a group of its own
        other_groups = group.max() + 1 + np.arange(len(other_texts))
        predicted = ridge.left_out(label, np.append(group, other_groups))
        # Texts of this kind are labelled 1, and novelty grows the other way: hence the minus signs.
        self.novelties = -predicted[: len(texts)]

    @override
    def novelty(self, texts: Texts) -> FloatArray:
        return -self._constant - self._similarity.weighted_sum(texts, self._weights)

    @override
    def reason(self, text: str) -> str:
        telling = self._similarity.words_against(text, self._weights)
        return f"its words are rather those of other kinds of texts{_listed(', such as ', telling)}"


def _listed(start: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    return start + ", ".join(map(quoted, names))


def quoted(word: str) -> str:
    """A word as a reason shows it: in quotation marks, without control characters, and not too long."""
    return repr(printable(word)[:LONGEST_WORD])


_counter = partial(
    HashingVectorizer,
    n_features=2**18,
    norm=None,
    alternate_sign=False,
    # capitals are other tokens for a model, so n-grams keep them
    lowercase=False,
)
_WORD_COUNTER = _counter(analyzer=words)
_NGRAM_COUNTER = _counter(analyzer="char_wb", ngram_range=(2, 4))


@lru_cache(maxsize=4096)  # the domain check and the test of exchangeability count the same texts
def _counted(text: str) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    beginning = [text[:CHARACTERS]]
    return _WORD_COUNTER.transform(beginning), _NGRAM_COUNTER.transform(beginning)


def _as_if_counted(counts: sparse.csr_matrix) -> TfidfTransformer:
    """Weights of the columns as they would be with one more text that has all of them.

    Each of the texts is itself counted. Weighted otherwise, a new text with rare words would be less similar to all of
    them than any of them is.
    """
    one_more = sparse.csr_matrix(np.ones((1, counts.shape[1])))
    return TfidfTransformer(sublinear_tf=True).fit(sparse.vstack([counts, one_more]))


def _without_one(counts: sparse.csr_matrix) -> FloatArray:
    """(F,) factor by which the weight of a column rises in the other texts if one text that has it is not counted."""
    # The counterpart of `_as_if_counted`: there a new text is counted among the others, here one of them is not. The
    # weight is scikit-learn's smoothed idf, log((1 + texts) / (1 + having)) + 1, with one text less in both numbers.
    # Rows are not scaled to length one again: on 40 abstracts the mean similarity with the nearest texts is .1478 in
    # place of the exact .1481.
    texts = counts.shape[0]
    having = np.maximum(1, counts.getnnz(axis=0))
    without = np.log(texts / having) + 1
    with_it: FloatArray = np.log((1 + texts) / (1 + having)) + 1
    return without / with_it


class Similarity:
    """Similarity with n ≥ 1 texts, from 0 to 1: the mean of the cosines by words and by character n-grams (tf-idf)."""

    def __init__(self, texts: Texts) -> None:
        counts = self._counts(texts)
        self._new = list(map(_as_if_counted, counts))
        as_they_are = [TfidfTransformer(sublinear_tf=True).fit(rows) for rows in counts]
        self._rows = self._weighted(counts, as_they_are)
        self._without_one = np.concatenate(list(map(_without_one, counts)))

    @staticmethod
    def _counts(texts: Texts) -> list[sparse.csr_matrix]:
        counted = map(_counted, texts)
        return list(map(sparse.vstack, zip(*counted, strict=True)))

    @staticmethod
    def _weighted(counts: Sequence[sparse.csr_matrix], weighting: Sequence[TfidfTransformer]) -> sparse.csr_matrix:
        parts = [of_part.transform(rows) for of_part, rows in zip(weighting, counts, strict=True)]
        # each part has length one, so that half of the squared length of a row belongs to either
        return sparse.csr_matrix(sparse.hstack(parts) / math.sqrt(2))

    def _rows_of(self, texts: Texts) -> sparse.csr_matrix:
        return self._weighted(self._counts(texts), self._new)

    def __call__(self, texts: Texts) -> FloatArray:
        """(N, n) similarity of N ≥ 1 texts with the n texts."""
        return _dense_products(self._rows_of(texts), self._rows)

    def products(self) -> FloatArray:
        """(n, n) similarity of the n texts, symmetric."""
        return _dense_products(self._rows, self._rows)

    def among(self) -> FloatArray:
        """(n, n) similarity of the n texts, each as if it was new to the others."""
        without_one = self._rows @ sparse.diags_array(self._without_one)
        return _dense_products(without_one, self._rows)

    def weighted_sum(self, texts: Texts, weights: FloatArray) -> FloatArray:
        """(N,) sums of the similarities with the n texts, times (n,) weights, without the similarities themselves."""
        sums: FloatArray = self._rows_of(texts) @ (self._rows.T @ weights)
        return sums

    def new_words(self, text: str) -> list[str]:
        """The words of a text with the most weight that none of the n texts has."""
        return self._telling(text, self._rows.getnnz(axis=0) == 0)

    def words_against(self, text: str, weights: FloatArray) -> list[str]:
        """The words of a text that lower its `weighted_sum` most."""
        return self._telling(text, np.maximum(0.0, -(self._rows.T @ weights)))

    def _telling(self, text: str, value: FloatArray | BoolArray) -> list[str]:
        """The words of a text with the highest weight times the (F,) value of their column, if it is above 0."""
        distinct = list(dict.fromkeys(words(text[:CHARACTERS])))
        if not distinct:
            return []
        # each of them is counted in the one column of its word
        column = _WORD_COUNTER.transform(distinct).argmax(axis=1)
        row = self._rows_of([text]).toarray()[0]
        score = (row * value)[np.asarray(column).ravel()]
        order = np.argsort(-score, kind="stable")[:TELLING]
        return [distinct[place] for place in order if score[place] > 0]


def _dense_products(left: sparse.csr_matrix, right: sparse.csr_matrix) -> FloatArray:
    """(N, n) scalar products of N rows with n."""
    products: FloatArray = (left @ right.T).toarray()
    return products


class Ridge:
    """Kernel ridge regression of (N,) or (N, P) labels on (N, N) scalar products, shrunk by their mean eigenvalue.

    With the centred products K and their mean eigenvalue λ, fitted labels are S y, where S = K (K + λI)⁻¹ + 1/N.
    """

    def __init__(self, products: FloatArray) -> None:
        self._centring = KernelCenterer().fit(products)
        kernel = self._centring.transform(products)
        size = len(kernel)
        shrinkage = max(np.trace(kernel) / size, 1e-12)
        self._inverse = np.linalg.inv(kernel + shrinkage * np.eye(size))
        self._smoother = kernel @ self._inverse + 1 / size

    def weights(self, labels: FloatArray) -> tuple[FloatArray, float]:
        """(N,) weights of the scalar products with those that it is trained on, and the constant, of a prediction."""
        mean = labels.mean()
        weights = self._inverse @ (labels - mean)
        total = weights.sum()
        # products with a new text come uncentred: what centring takes from them goes into weights and constant
        constant = mean - self._centring.K_fit_rows_ @ weights + self._centring.K_fit_all_ * total
        return weights - total / len(weights), float(constant)

    def left_out(self, labels: FloatArray | BoolArray, block: IntArray) -> FloatArray:
        """Prediction for each text when its whole group B is left out: (I − S_BB)⁻¹ (Sy − S_BB y)_B."""
        predicted: FloatArray = self._smoother @ labels
        for rows in group_members(block):
            within = self._smoother[np.ix_(rows, rows)]
            by_rest = predicted[rows] - within @ labels[rows]
            # one part in 10⁹ more, so that a group which decides its own prediction has one at all
            system = np.eye(rows.size) * (1 + 1e-9) - within
            predicted[rows] = np.linalg.solve(system, by_rest)
        return predicted


def scale_of(vectors: FloatArray) -> FloatArray:
    """(D,) standard deviations of the columns; 1 for a constant one, in which only rounding differs."""
    spread = vectors.std(axis=0)
    return np.where(spread > 1e-12, spread, 1.0)


def mahalanobis(benchmark: FloatArray, asked: FloatArray) -> FloatArray:
    """(N,) squared distances of (N, D) rows from the mean of (n, D) others, without a D × D matrix (Woodbury).

    The covariance is shrunk (Ledoit and Wolf 2004, https://doi.org/10.1016/S0047-259X(03)00096-4) to
    Σ = (1 − s) XᵀX / n + rI, so that xᵀΣ⁻¹x = (|x|² − (Xx)ᵀ (XXᵀ + rn / (1 − s) I)⁻¹ Xx) / r.
    """
    mean = benchmark.mean(axis=0)
    rows = benchmark - mean
    new = asked - mean
    size = len(rows)
    shrinkage = 1.0
    if size > 1:
        shrinkage = ledoit_wolf_shrinkage(rows, assume_centered=True)
    shrinkage = min(max(shrinkage, 1e-6), 1 - 1e-12)
    ridge = shrinkage * max((rows**2).mean(), 1e-12)
    inner = rows @ rows.T + ridge * size / (1 - shrinkage) * np.eye(size)
    explained = _quadratic_form(inner, new @ rows.T)
    distances: FloatArray = ((new**2).sum(axis=1) - explained) / ridge
    return distances


def _quadratic_form(matrix: FloatArray, rows: FloatArray) -> FloatArray:
    """(N,) xᵀ M⁻¹ x of the (N, D) rows x, for a (D, D) symmetric matrix M."""
    form: FloatArray = (rows * np.linalg.solve(matrix, rows.T).T).sum(axis=1)
    return form


def _mean_of_nearest(similar: FloatArray) -> FloatArray:
    """(N, M) similarities, -inf for texts that do not count → (N,) mean of the `NEAREST` highest."""
    nearest = -np.sort(-similar, axis=1)[:, :NEAREST]
    counts = np.isfinite(nearest)
    total = np.where(counts, nearest, 0.0).sum(axis=1)
    mean: FloatArray = total / np.maximum(1, counts.sum(axis=1))
    return mean


def by_fold(
    distances: Callable[[FloatArray, FloatArray], FloatArray], vectors: FloatArray, group: IntArray
) -> FloatArray:
    """(n,) distances of (n, D) vectors from those of other folds of groups, as new texts have theirs from all.

    Without folds a text would be near to the mean to which it contributes.
    """
    result = np.zeros(len(vectors))
    for fold in range(FOLDS):
        inside = group % FOLDS == fold
        if inside.any() and not inside.all():
            result[inside] = distances(vectors[~inside], vectors[inside])
    return result


def log_lengths(texts: Texts) -> FloatArray:
    """(N,) logarithms of the numbers of words, of at least one."""
    return np.log([max(1, len(words(text))) for text in texts])
