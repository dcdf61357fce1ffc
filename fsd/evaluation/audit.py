"""Explanations of a result other than membership: leaks between the parts, and differences visible without a model.

Where a classifier of the texts alone is as good as a detector, no score proves membership (Duan et al. 2024,
https://arxiv.org/abs/2402.07841; Das et al. 2024, https://arxiv.org/abs/2406.16201). Which of several classifiers
judges a text is decided by nested cross-validation (Varma and Simon 2006, https://doi.org/10.1186/1471-2105-7-91).
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse, stats
from scipy.special import entr
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fsd.data.ablations import stamps
from fsd.data.documents import Document
from fsd.data.near_duplicates import families, near_duplicates, words
from fsd.data.splitting import Split, without_later
from fsd.errors import UsageError
from fsd.evaluation.metrics import METRICS, BoolArray, Bootstrap, Estimate, auc, group_index, percentiles
from fsd.token_stats import FloatArray, IntArray

SHUFFLES = 20
BINS = 10
FOLDS, REPEATS = 5, 3
"""Largest number of folds, and number of divisions into folds."""
TRAINED_ON = 4000
"""Largest number of texts that classifiers are trained on and the most telling word is sought in, half of each set."""
CHARACTERS = 5000
"""Character n-grams are taken from this many characters at the beginning of a text."""
RAREST = 5
"""A telling word or sign occurs in at least this many families: fewer than six can hardly be significant."""
FEWEST_BOOSTED = 100
"""With fewer training texts nothing is boosted: its trees have leaves of at least 15 texts."""
_WORD, _SIGN = "0", "1"  # words are sorted before signs
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


class Leak(NamedTuple):
    """Two related texts in different parts of the split, by group or a rule of near-duplicates; a row of leaks.json."""

    part: str
    other_part: str
    reason: str
    text: str
    other_text: str


class Leaks(NamedTuple):
    """Related texts that a split separates, and pairs that show it."""

    pairs: tuple[Leak, ...]
    groups: int  # families in more than one part
    tested: int  # test texts with a relative among the unseen texts
    calibrated: int  # test texts with a relative in validation
    test: int


@dataclass(frozen=True)
class Control:
    """An AUC reached without a language model, or the reason why there is none; (N,) scores."""

    auc: Estimate | None
    reason: str = ""
    scores: FloatArray | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Overlap:
    """Overlap of members and non-members in one respect, and its mean over shuffled labels, as of matched texts."""

    value: float
    chance: float


class Telling(NamedTuple):
    """The word, pair of words or sign that tells two sets of texts apart best, and the shares of families with it."""

    phrase: str
    members: float
    nonmembers: float
    p: float  # of Fisher's exact test by family, two-sided, times the number of words, pairs and signs
    looked_at: int


@dataclass(frozen=True)
class Audit:
    """The audit of one benchmark and its split: leaks, controls, overlaps and the most telling word, if known."""

    leaks: Leaks
    blind: Control
    date: Control
    length: Control
    overlaps: dict[str, Overlap]
    telling: Telling | None = None

    def metrics(self) -> dict[str, float]:
        """The numbers by their names in MLflow, without those that are unknown."""
        aucs = {name: getattr(self, name).auc for name in ("blind", "date", "length")}
        return {
            "audit/leaked_groups": float(self.leaks.groups),
            "audit/leaked_tests": float(self.leaks.tested),
            **{f"audit/{name}_auc": auc.value for name, auc in aucs.items() if auc is not None},
            **{f"audit/{name}_overlap": overlap.value for name, overlap in self.overlaps.items()},
        }


def audit(split: Split, *, seed: int = 0, repeats: int | None = None) -> Audit:
    """Everything that can be said without a model about the two sides that a detector is judged on."""
    judged = without_later(split)
    documents = [document for document in (*judged.validation, *judged.test) if document.member is not None]
    texts, labels = [document.text for document in documents], [bool(document.member) for document in documents]
    family = families(documents)
    return Audit(
        leaks(split),
        **controls(documents, labels, family, seed=seed, repeats=repeats),
        overlaps=overlaps(documents, seed=seed),
        telling=most_telling(texts, np.array(labels, dtype=bool), np.array(family, dtype=np.int64), seed=seed),
    )


def explains(blind: Estimate | None, auc: Estimate) -> bool:
    """Whether a blind classifier explains a detector's result: it is above .5, and not clearly below the detector."""
    return blind is not None and blind.low > 0.5 and blind.high >= auc.low


def leaks(split: Split) -> Leaks:
    """Families that span more than one part, and the pairs of texts that show it."""
    documents = [document for part in split for document in part]
    part = np.repeat(np.arange(3), [len(documents) for documents in split])
    texts, groups = [document.text for document in documents], [document.group for document in documents]
    links = near_duplicates(texts)
    reasons = {(i, j): reason for i, j, reason, *_ in links if part[i] != part[j]}
    named = pd.DataFrame({"group": groups, "part": part}).query("group != ''")
    for firsts in named.drop_duplicates().groupby("group").groups.values():  # the first text of a group in each part
        reasons |= dict.fromkeys(combinations(firsts, 2), "group")
    family = np.array(families(documents, links), dtype=np.int64)
    holds = np.zeros((3, int(family.max(initial=-1)) + 1), dtype=bool)
    holds[part, family] = True
    names, test = Split._fields, family[part == 2]
    return Leaks(
        pairs=tuple(
            Leak(names[part[i]], names[part[j]], reason, texts[i], texts[j])
            for (i, j), reason in sorted(reasons.items())
        ),
        groups=int((holds.sum(axis=0) > 1).sum()),
        tested=int(holds[0][test].sum()),
        calibrated=int(holds[1][test].sum()),
        test=test.size,
    )


def overlaps(documents: Sequence[Document], *, seed: int = 0) -> dict[str, Overlap]:
    """Overlap of members and non-members in length, vocabulary and, if every text has one, date."""
    member = np.array([bool(document.member) for document in documents])
    if member.all() or not member.any():
        return {}
    rng, tokens = np.random.default_rng(seed), [words(document.text) for document in documents]
    respects = {"length": _spread(list(map(len, tokens))), "vocabulary": _vocabulary(tokens)}
    dates = [document.date.toordinal() for document in documents if document.date]
    if len(dates) == len(documents):
        respects["date"] = _spread(dates)
    group = group_index([document.group for document in documents], member.size)
    first = np.unique(group, return_index=True)[1]
    found = {}
    for name, compare in respects.items():
        chance = [compare(rng.permutation(member[first])[group]) for _ in range(SHUFFLES)]
        found[name] = Overlap(compare(member), float(np.mean(chance)))
    return found


def _spread(numbers: Sequence[int]) -> Callable[[BoolArray], float]:
    """(N,) labels → overlap of two histograms whose bins contain a tenth of all texts each."""
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, BINS + 1)[1:-1]))
    place = np.searchsorted(edges, numbers, side="right")

    def compare(member: BoolArray) -> float:
        sides = [np.bincount(place[side], minlength=BINS + 1) / max(1, side.sum()) for side in (member, ~member)]
        return float(np.minimum(*sides).sum())

    return compare


def _vocabulary(tokens: Sequence[Sequence[str]]) -> Callable[[BoolArray], float]:
    """(N,) labels → one minus the Jensen-Shannon divergence (bits) of the two sides' word frequencies."""
    table = DictVectorizer(sort=False).fit_transform(map(Counter, tokens))

    def compare(member: BoolArray) -> float:
        p, q = (counts / max(1, counts.sum()) for counts in (table.T @ member, table.T @ ~member))
        return 1 - float((entr((p + q) / 2) - (entr(p) + entr(q)) / 2).sum() / math.log(2))

    return compare


def controls(
    documents: Sequence[Document],
    labels: Sequence[bool],
    groups: Sequence[Hashable],
    *,
    seed: int = 0,
    repeats: int | None = None,
) -> dict[str, Control]:
    """What a classifier of the text (`blind`), the length and the date alone reach, without the language model."""
    texts = [document.text for document in documents]
    dates = [document.date.toordinal() if document.date else None for document in documents]
    return {
        "blind": blind(texts, labels, groups, seed=seed, repeats=repeats),
        "length": alone([len(words(text)) for text in texts], labels, groups, seed=seed),
        "date": alone(dates, labels, groups, seed=seed),
    }


def alone(
    values: Sequence[float | None],
    labels: Sequence[bool],
    groups: Sequence[Hashable] | None = None,
    *,
    seed: int = 0,
) -> Control:
    """AUC of one number per text, such as its date or length, in the direction that makes it at least .5."""
    known = np.array([at for at, value in enumerate(values) if value is not None], dtype=np.int64)
    if not known.size:
        return Control(None, "no text has it")
    numbers, group = np.array(values, dtype=np.float64)[known], group_index(groups, len(values))[known]
    try:
        bootstrap = Bootstrap.draw(np.array(labels, dtype=bool)[known], group.tolist(), seed=seed)
    except UsageError as error:
        return Control(None, str(error))
    turned = numbers if auc(bootstrap.member, numbers) >= 0.5 else -numbers
    (found,) = bootstrap.values(turned, [METRICS["auc"].of])
    return Control(percentiles(found[0], found[1:]), scores=turned)


def blind(
    texts: Sequence[str],
    labels: Sequence[bool],
    groups: Sequence[Hashable] | None = None,
    *,
    seed: int = 0,
    repeats: int | None = None,
) -> Control:
    """AUC of the best classifier without a language model, cross-validated by whole groups; None for too few of them.

    It is a mean over `repeats` divisions of the texts into folds, whose spread is in its interval as well. The (N,)
    `scores` are higher for a text more like those labelled True.
    """
    try:
        bootstrap = Bootstrap.draw(labels, groups, seed=seed)
    except UsageError as error:
        return Control(None, str(error))
    scores = _cross_validated(texts, bootstrap.member, bootstrap.group, seed, repeats or REPEATS)
    if scores is None:
        return Control(None, "members and non-members share too few groups to hold some out")
    values = np.concatenate([bootstrap.values(column, [METRICS["auc"].of]) for column in scores])
    return Control(percentiles(values[:, 0].mean(), values[:, 1:]), scores=scores.mean(axis=0))


def _cross_validated(
    texts: Sequence[str], member: BoolArray, group: IntArray, seed: int, repeats: int
) -> FloatArray | None:
    """(`repeats`, N) out-of-fold scores of the chosen classifiers, as ranks within the fold; None for too few texts."""
    few = _few(member, group, seed)
    folds = [_folds(member, group, seed + repeat) for repeat in range(repeats)]
    views = {name: view.fit([texts[at] for at in few]) for name, view in _views(len(few)).items()}

    def seen(places: IntArray) -> dict[str, Any]:
        return {name: view.transform([texts[at] for at in places]) for name, view in views.items()}

    known = seen(few)
    scores = np.empty((repeats, len(texts)))
    with threadpool_limits(1, user_api="openmp"):  # on so few rows, boosting is slower with threads
        divided = [_classifiers(known, member[few], fold[few], seed + at) for at, fold in enumerate(folds)]
        if None in divided:
            return None
        for start in range(0, len(texts), TRAINED_ON):
            block = np.arange(start, min(len(texts), start + TRAINED_ON))
            matrices = known if len(few) == len(texts) else seen(block)
            for row, fold, classifiers in zip(scores, folds, divided, strict=True):
                for number, (view, classifier) in enumerate(classifiers or ()):
                    at = np.flatnonzero(fold[block] == number)
                    if at.size:
                        row[block[at]] = classifier.decision_function(matrices[view][at])
    for row, fold in zip(scores, folds, strict=True):
        for number in range(int(fold.max()) + 1):
            row[fold == number] = stats.rankdata(row[fold == number]) / ((fold == number).sum() + 1)
    return scores


def _few(member: BoolArray, group: IntArray, seed: int) -> IntArray:
    """Positions of at most `TRAINED_ON` texts, at most half of them of each label, from families drawn at random."""
    rank = np.random.default_rng(seed).permutation(int(group.max()) + 1)[group]
    sides = (np.flatnonzero(side) for side in (member, ~member))
    return np.sort(np.concatenate([side[np.argsort(rank[side], kind="stable")][: TRAINED_ON // 2] for side in sides]))


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


def _classifiers(views: dict[str, Any], member: BoolArray, fold: IntArray, seed: int) -> list[tuple[str, Any]] | None:
    """View and classifier for each fold, chosen by cross-validation over the other folds; None for a single label."""
    candidates = _candidates(views, seed)
    count = int(fold.max()) + 1
    reached = np.zeros((count, len(candidates)))
    for pair in combinations(range(count), 2):
        train, *tests = (np.flatnonzero(part) for part in (~np.isin(fold, pair), *(fold == one for one in pair)))
        if any(np.unique(member[part]).size < 2 for part in (train, *tests)):
            continue
        for at, (view, candidate) in enumerate(candidates):
            classifier = clone(candidate).fit(views[view][train], member[train])
            for outer, test in zip(pair, reversed(tests), strict=True):
                reached[outer, at] += auc(member[test], classifier.decision_function(views[view][test]))
    chosen = []
    for number in range(count):
        train = np.flatnonzero(fold != number)
        if np.unique(member[train]).size < 2:
            return None
        view, candidate = candidates[int(np.argmax(reached[number]))] if reached[number].any() else candidates[-1]
        chosen.append((view, clone(candidate).fit(views[view][train], member[train])))
    return chosen


def _candidates(views: dict[str, Any], seed: int) -> list[tuple[str, Any]]:
    """View and classifier of every candidate, the plainest last: it judges where there are too few texts to choose."""
    texts, columns = views["presence"].shape
    linear = LogisticRegression(class_weight="balanced", solver="liblinear", max_iter=1000, random_state=seed)
    of_many = clone(linear).set_params(C=10.0, dual=True, tol=0.01)
    boosted = HistGradientBoostingClassifier(
        max_iter=20,
        max_leaf_nodes=4,
        min_samples_leaf=15,
        learning_rate=0.2,
        max_bins=32,
        early_stopping=False,
        random_state=seed,
    )
    return [
        *(("presence", make_pipeline(SelectKBest(association, k=min(k, columns)), linear)) for k in (1, 20)),
        ("characters", of_many),
        ("numbers", make_pipeline(StandardScaler(), linear)),
        *([("numbers", boosted)] if texts >= FEWEST_BOOSTED else []),
        ("words", of_many),
    ]


def association(presence: sparse.csr_array, member: BoolArray) -> FloatArray:
    """χ² / N of each column's presence with the label (0 if it is in all rows or none)."""
    count, inside = (np.asarray(rows.sum(axis=0)).ravel() for rows in (presence, presence[np.flatnonzero(member)]))
    share = member.mean()
    spread = count * (member.size - count) * share * (1 - share)
    return np.asarray((inside - count * share) ** 2 / np.where(spread > 0, spread, np.inf), dtype=np.float64)


def _views(texts: int) -> dict[str, Any]:
    """Name of a kind of features → what makes an (N, D) matrix of N texts, when fitted to so many texts."""
    fewest = 2 if texts > 20 else 1
    return {
        "presence": CountVectorizer(analyzer=_terms, binary=True, min_df=fewest, dtype=np.float64),
        "words": TfidfVectorizer(analyzer=_words_and_pairs, sublinear_tf=True, min_df=fewest),
        "characters": TfidfVectorizer(
            preprocessor=_marked, analyzer="char", ngram_range=(1, 3), sublinear_tf=True, min_df=fewest
        ),
        "numbers": FunctionTransformer(lambda texts: np.array(list(map(_numbers, texts)))),
    }


def _terms(text: str) -> set[str]:
    """Words, pairs of words and signs."""
    return {_WORD + word for word in _words_and_pairs(text)} | {_SIGN + sign for sign in _signs(text)}


def _words_and_pairs(text: str) -> list[str]:
    tokens = words(text)
    return ["", *tokens, *(f"{first} {second}" for first, second in pairwise(tokens))]  # "": no vocabulary is empty


def _signs(text: str) -> set[str]:
    """Each character, each two or three in sequence that are not letters or digits, and both ends with their kind."""
    signs = set(text)
    for run in set(_BETWEEN.findall(text)):
        signs.update(run[at : at + size] for size in (2, 3) for at in range(len(run) - size + 1))
    for mark, ends in ((_BEGIN, (text[:1], text[:2], text[:3])), (_END, (text[-1:], text[-2:], text[-3:]))):
        kind = next((kind for kind, test in _KINDS.items() if test(ends[0])), "a punctuation mark or symbol")
        signs.update(mark + part for part in (*filter(None, ends), kind))
    return signs


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


def most_telling(texts: Sequence[str], member: BoolArray, group: IntArray, *, seed: int) -> Telling | None:
    """The word, pair of words or sign with the smallest p-value of Fisher's test on families with and without it.

    The members and the non-members of a family are two units; None if nothing occurs in `RAREST` units, but not in all.
    """
    if member.all() or not member.any():
        return None
    few = _few(member, group, seed)
    terms = CountVectorizer(analyzer=_terms, binary=True, dtype=np.float64)
    present = terms.fit_transform([texts[at] for at in few])
    units, unit = np.unique(2 * group[few] + member[few], return_inverse=True)
    inside = units % 2 == 1
    belongs = sparse.csr_array((np.ones(few.size), (unit, np.arange(few.size))), shape=(units.size, few.size))
    present = sparse.csr_array(belongs @ present).sign()
    count, hits = (np.asarray(rows.sum(axis=0)).ravel() for rows in (present, present[np.flatnonzero(inside)]))
    tested = np.flatnonzero((count >= RAREST) & (count < units.size))
    if not tested.size:
        return None
    strongest = tested[np.argsort(-association(present, inside)[tested], kind="stable")[:50]]
    sides = np.array([inside.sum(), (~inside).sum()])

    def p_value(column: int) -> float:
        present_in = np.array([hits[column], count[column] - hits[column]])
        return float(stats.fisher_exact(np.stack([present_in, sides - present_in])).pvalue)

    best = min(strongest, key=p_value)
    return Telling(
        phrase=_name(terms.get_feature_names_out()[best]),
        members=float(hits[best] / sides[0]),
        nonmembers=float((count[best] - hits[best]) / sides[1]),
        p=min(1.0, p_value(best) * tested.size),
        looked_at=int(tested.size),
    )


def _name(term: str) -> str:
    """Words in quotation marks, or a noun for a sign: characters that may be mistaken by their Unicode names."""
    sign = term[1:]
    if term[0] == _WORD:
        return f"“{sign}”"
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
