"""Classifiers that tell two sets of texts apart without a language model, and the word or sign that tells most.

The candidates read the presence of words, word pairs and signs (characters, punctuation and blanks in sequence, the
beginning and end of a text), frequencies of words and word pairs, character n-grams, or simple numbers such as length,
punctuation and years mentioned. Which of them judges a text is decided by cross-validation inside the texts that it is
trained on (nested cross-validation; Varma and Simon 2006, https://doi.org/10.1186/1471-2105-7-91), so the choice does
not flatter the result. All folds keep families of related texts whole.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse, stats
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fsd.data.ablations import stamps
from fsd.data.near_duplicates import words
from fsd.evaluation.metrics import BoolArray, auc
from fsd.token_stats import FloatArray, IntArray

FOLDS, REPEATS = 5, 3
"""Largest number of folds, and number of divisions into folds."""
TRAINED_ON = 4000
"""Largest number of texts that classifiers and the search for a telling word or sign read, half of them of each set."""
CHARACTERS = 5000
"""Character n-grams are taken from this many characters at the beginning of a text."""
RAREST = 5
"""A telling word or sign occurs in at least this many families: fewer than six can hardly be significant."""
FEWEST_BOOSTED = 100
"""With fewer training texts nothing is boosted: its trees have leaves of at least 15 texts."""
_BEGIN, _END = "\x02", "\x03"  # sorted first: of signs that tell as much, one at an end is named
_BETWEEN = re.compile(r"[\W_]{2,}")
_KINDS: dict[str, Callable[[str], bool]] = {
    "a lower-case letter": str.islower,
    "a capital letter": str.isupper,
    "a letter without case": str.isalpha,
    "a digit": str.isdigit,
    "white space": str.isspace,
}
_BLANKS = {" ": "blank", "\n": "line break", "\r": "carriage return", "\t": "tab"}

Views = dict[str, Any]
"""Kind of features → (N, D) matrix, sparse or dense."""


class Telling(NamedTuple):
    """The word, pair of words or sign whose presence tells two sets of texts apart best."""

    phrase: str
    """One word or two, in lower case and quotation marks; or a noun for the sign, such as “!” at the end."""
    members: float
    """Share of the families of members with a text that contains it."""
    nonmembers: float
    p: float
    """Of Fisher's exact test by family, two-sided, corrected for everything looked at (Bonferroni)."""
    looked_at: int
    """Number of words, pairs and signs that were tested."""


def _words_and_pairs(text: str) -> list[str]:
    tokens = words(text)
    return ["", *tokens, *(f"{first} {second}" for first, second in pairwise(tokens))]  # "": no vocabulary is empty


def _kind(character: str) -> str:
    return next((kind for kind, test in _KINDS.items() if test(character)), "a punctuation mark or symbol")


def _signs(text: str) -> set[str]:
    """Each character, each two or three in sequence that are not letters or digits, and both ends with their kind."""
    signs = set(text)
    for run in set(_BETWEEN.findall(text)):
        signs.update(run[at : at + size] for size in (2, 3) for at in range(len(run) - size + 1))
    for mark, ends in ((_BEGIN, (text[:1], text[:2], text[:3])), (_END, (text[-1:], text[-2:], text[-3:]))):
        signs.update(mark + part for part in (*filter(None, ends), _kind(ends[0])))
    return signs


def _name(sign: str) -> str:
    """A noun for a sign, with characters that cannot be seen or may be taken for others by their Unicode names."""
    place = {_BEGIN: " at the beginning", _END: " at the end"}.get(sign[0], "") if len(sign) > 1 else ""
    part = sign[1:] if place else sign
    if len(part) > 3:  # a kind
        return part + place
    pieces = [
        f"“{piece}”"
        if "!" <= piece[0] <= "~"
        else _BLANKS.get(piece, f"{unicodedata.name(piece, 'character').lower()} (U+{ord(piece):04X})")
        for piece in re.findall(r"[!-~]+|[^!-~]", part)
    ]
    return " + ".join(pieces) + place


def _marked(text: str) -> str:
    """The beginning of a text between marks, so that n-grams see how a text begins and ends."""
    return f"{_BEGIN}{text[:CHARACTERS]}{_END}"


def _numbers(text: str) -> list[float]:
    """Length, layout, spelling and years of one text."""
    tokens, size = words(text), max(1, len(text))
    dates = stamps(text)
    mentioned = [int(year) for date in dates for year in re.findall(r"\d{4}", date)]
    letters, digits, spaces = (sum(map(kind, text)) for kind in (str.isalpha, str.isdigit, str.isspace))
    return [
        math.log1p(len(tokens)),
        math.log1p(len(text)),
        len(text) / max(1, len(tokens)),
        len(set(tokens)) / max(1, len(tokens)),
        digits / size,
        spaces / size,
        (len(text) - letters - digits - spaces) / size,
        sum(map(str.isupper, text)) / size,
        len(text.encode("utf-8", "surrogatepass")) / size,
        100 * text.count("\n") / size,
        100 * sum(map(text.count, ".!?。")) / size,
        100 * text.count(",") / size,
        math.log1p(len(dates)),
        float(bool(mentioned)),
        max(mentioned, default=2000) - 2000.0,
    ]


class _Features:
    """Feature extraction fitted to some texts; no label is used."""

    def __init__(self, texts: Sequence[str]):
        fewest = 2 if len(texts) > 20 else 1
        counts = CountVectorizer(analyzer=_words_and_pairs, min_df=fewest, dtype=np.float64)
        signs = CountVectorizer(analyzer=_signs, min_df=fewest, dtype=np.float64)
        characters = TfidfVectorizer(
            analyzer="char", ngram_range=(1, 3), lowercase=False, sublinear_tf=True, min_df=fewest
        )
        self._counts, self._signs, self._characters = (
            counts.fit(texts),
            signs.fit(texts),
            characters.fit(map(_marked, texts)),
        )
        self._weights = TfidfTransformer(sublinear_tf=True).fit(counts.transform(texts))

    def of(self, texts: Sequence[str]) -> Views:
        """Features of any texts."""
        counts, characters = self._counts.transform(texts), self._characters.transform(map(_marked, texts))
        presence = sparse.hstack([counts, self._signs.transform(texts)], format="csr").sign()
        weights = self._weights.transform(counts)
        for matrix in (presence, weights, characters):
            matrix.sort_indices()  # once, and not in every fit
        numbers = np.array([_numbers(text) for text in texts])
        return {"presence": presence, "words": weights, "characters": characters, "numbers": numbers}


def association(presence: sparse.csr_array, member: BoolArray) -> FloatArray:
    """χ² / N of each column's presence with the label (0 if it is in all rows or none)."""
    count, inside = (np.asarray(rows.sum(axis=0)).ravel() for rows in (presence, presence[np.flatnonzero(member)]))
    share = member.mean()
    spread = count * (member.size - count) * share * (1 - share)
    return np.asarray((inside - count * share) ** 2 / np.where(spread > 0, spread, np.inf), dtype=np.float64)


def _candidates(views: Views, seed: int) -> list[tuple[str, Callable[[], Any]]]:
    """View and classifier of every candidate, the plainest last: it judges where there are too few texts to choose."""
    columns = views["presence"].shape[1]
    linear = partial(LogisticRegression, class_weight="balanced", solver="liblinear", max_iter=1000, random_state=seed)
    boosted = partial(
        HistGradientBoostingClassifier,
        max_iter=20,
        max_leaf_nodes=4,
        min_samples_leaf=15,
        learning_rate=0.2,
        max_bins=32,
        early_stopping=False,
        random_state=seed,
    )
    boosting = [("numbers", boosted)] if views["presence"].shape[0] >= FEWEST_BOOSTED else []
    return [
        *(
            ("presence", lambda k=k: make_pipeline(SelectKBest(association, k=min(k, columns)), linear()))
            for k in (1, 20)
        ),
        ("characters", lambda: linear(C=10.0, dual=True, tol=0.01)),
        ("numbers", lambda: make_pipeline(StandardScaler(), linear())),
        *boosting,
        ("words", lambda: linear(C=10.0, dual=True, tol=0.01)),
    ]


def _folds(member: BoolArray, group: IntArray, seed: int) -> IntArray:
    """(N,) number of the fold of each text: whole groups, each label spread evenly; one fold if there are no more."""
    count = min(FOLDS, *(np.unique(group[side]).size for side in (member, ~member)))
    fold = np.zeros(member.size, dtype=np.int64)
    if count < 2:
        return fold
    mostly = 2 * np.bincount(group, weights=member) > np.bincount(group)
    even = min(mostly.sum(), (~mostly).sum()) >= count  # groups with both labels may leave too few to spread
    divide = (StratifiedKFold if even else KFold)(count, shuffle=True, random_state=seed)
    for number, (_, held) in enumerate(divide.split(mostly, mostly)):
        fold[np.isin(group, held)] = number
    return fold


def _classifiers(views: Views, member: BoolArray, fold: IntArray, seed: int) -> list[tuple[str, Any]] | None:
    """View and fitted classifier for each fold, chosen by cross-validation over the other folds and trained on them.

    A classifier trained without two folds serves in the choice for either, since it is tested on the other.
    None if the texts outside a fold have only one label.
    """
    candidates = _candidates(views, seed)
    count = int(fold.max()) + 1
    reached = np.zeros((count, len(candidates)))
    for first, second in combinations(range(count), 2):
        train = np.flatnonzero((fold != first) & (fold != second))
        tests = [(outer, np.flatnonzero(fold == inner)) for outer, inner in ((first, second), (second, first))]
        if np.unique(member[train]).size < 2 or any(np.unique(member[test]).size < 2 for _, test in tests):
            continue
        for at, (view, make) in enumerate(candidates):
            judge = make().fit(views[view][train], member[train])
            for outer, test in tests:
                reached[outer, at] += auc(member[test], judge.decision_function(views[view][test]))
    chosen = []
    for number in range(count):
        train = np.flatnonzero(fold != number)
        if np.unique(member[train]).size < 2:
            return None
        view, make = candidates[int(np.argmax(reached[number]))] if reached[number].any() else candidates[-1]
        chosen.append((view, make().fit(views[view][train], member[train])))
    return chosen


def _few(member: BoolArray, group: IntArray, seed: int) -> IntArray:
    """Positions of at most `TRAINED_ON` texts, at most half of them of each label, from families drawn at random."""
    rank = np.random.default_rng(seed).permutation(int(group.max()) + 1)[group]
    sides = (np.flatnonzero(side) for side in (member, ~member))
    return np.sort(np.concatenate([side[np.argsort(rank[side], kind="stable")][: TRAINED_ON // 2] for side in sides]))


def cross_validated(
    texts: Sequence[str], member: BoolArray, group: IntArray, *, seed: int, repeats: int | None = None
) -> FloatArray | None:
    """Out-of-fold scores of the chosen classifiers, once for each of several (`REPEATS`) divisions into folds.

    They are (`repeats`, N) ranks within the fold, in (0, 1), since scores of different classifiers have no common
    scale; None if too few groups can be held out.
    """
    few, repeats = _few(member, group, seed), repeats or REPEATS
    folds = [_folds(member, group, seed + repeat) for repeat in range(repeats)]
    trained_on = [texts[at] for at in few]
    features = _Features(trained_on)
    known = features.of(trained_on)
    scores = np.empty((repeats, len(texts)))
    with threadpool_limits(1, user_api="openmp"):  # on so few rows, boosting is slower with threads
        divided = [_classifiers(known, member[few], fold[few], seed + at) for at, fold in enumerate(folds)]
        for start in range(0, len(texts), TRAINED_ON):
            block = np.arange(start, min(len(texts), start + TRAINED_ON))
            views = known if len(few) == len(texts) else features.of([texts[at] for at in block.tolist()])
            for row, fold, classifiers in zip(scores, folds, divided, strict=True):
                if classifiers is None:
                    return None
                for number, (view, judge) in enumerate(classifiers):
                    at = np.flatnonzero(fold[block] == number)
                    if at.size:
                        row[block[at]] = judge.decision_function(views[view][at])
    for row, fold in zip(scores, folds, strict=True):
        for number in range(int(fold.max()) + 1):
            row[fold == number] = stats.rankdata(row[fold == number]) / ((fold == number).sum() + 1)
    return scores


def most_telling(texts: Sequence[str], member: BoolArray, group: IntArray, *, seed: int) -> Telling | None:
    """The word, pair of words or sign with the smallest p-value of Fisher's test on families with and without it.

    The members and the non-members of a family are two units of the test. Of more than `TRAINED_ON` texts, some are
    drawn by the seed. None if nothing occurs in `RAREST` families or more, or all that does occurs in every family.
    """
    if member.all() or not member.any():
        return None
    few = _few(member, group, seed)
    counts, signs = (CountVectorizer(analyzer=kind, dtype=np.float64) for kind in (_words_and_pairs, _signs))
    present = sparse.hstack([kind.fit_transform([texts[at] for at in few]) for kind in (counts, signs)]).sign()
    units, unit = np.unique(2 * group[few] + member[few], return_inverse=True)
    inside = units % 2 == 1
    belongs = sparse.csr_array((np.ones(few.size), (unit, np.arange(few.size))), shape=(units.size, few.size))
    present = sparse.csr_array(belongs @ present).sign()
    count = np.asarray(present.sum(axis=0)).ravel()
    tested = np.flatnonzero((count >= RAREST) & (count < units.size))
    if not tested.size:
        return None
    hits = np.asarray(present[np.flatnonzero(inside)].sum(axis=0)).ravel()
    strongest = tested[np.argsort(-association(present, inside)[tested], kind="stable")[:50]]
    sides = np.array([inside.sum(), (~inside).sum()])

    def p_value(column: int) -> float:
        present_in = np.array([hits[column], count[column] - hits[column]])
        return float(stats.fisher_exact(np.stack([present_in, sides - present_in])).pvalue)

    best = min(strongest, key=p_value)
    phrases = counts.get_feature_names_out()
    sign = best - phrases.size
    return Telling(
        phrase=f"“{phrases[best]}”" if sign < 0 else _name(signs.get_feature_names_out()[sign]),
        members=float(hits[best] / sides[0]),
        nonmembers=float((count[best] - hits[best]) / sides[1]),
        p=min(1.0, p_value(best) * tested.size),
        looked_at=int(tested.size),
    )
