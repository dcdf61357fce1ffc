"""Explanations of a result other than membership: leaks between the parts, and differences visible without a model.

Where a classifier of the texts alone is as good as a detector, no score proves membership (Duan et al. 2024,
https://arxiv.org/abs/2402.07841; Das et al. 2024, https://arxiv.org/abs/2406.16201). Which of several classifiers
judges a text is decided by nested cross-validation (Varma and Simon 2006, https://doi.org/10.1186/1471-2105-7-91).
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain, combinations, pairwise
from math import log1p
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import default_rng
from numpy.typing import ArrayLike
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fsd.data.corpus import Corpus, Split, as_corpus
from fsd.data.documents import Documents, Texts
from fsd.data.near_duplicates import Link, families, near_duplicates, words
from fsd.data.periods import stamps
from fsd.errors import UsageError
from fsd.statistics.bootstrap import Bootstrap
from fsd.statistics.groups import Groups, group_index
from fsd.statistics.intervals import percentiles
from fsd.statistics.metrics import METRICS, auc
from fsd.text_audit.audited import Audit, Control, Leak, Leaks, Telling
from fsd.token_stats import BoolArray, FloatArray, IntArray

FOLDS = 5
"""Largest number of folds."""
REPEATS = 3
"""Number of divisions into folds."""
TRAINED_ON = 4000
"""Largest number of texts that classifiers are trained on and the most telling word is sought in, half of each set."""
CHARACTERS = 5000
"""Character n-grams are taken from this many characters at the beginning of a text."""
RAREST = 5
"""A telling word or sign occurs in at least this many families: fewer than six can hardly be significant."""
FEWEST_BOOSTED = 100
"""With fewer training texts nothing is boosted: its trees have leaves of at least 15 texts."""
# The first character of a term tells its kind. Terms are sorted, and of those that tell as much the first is named: a
# word before a sign, and a sign at an end before others.
_WORD = "0"
_SIGN = "1"
_BEGIN = "\x02"
_END = "\x03"
_PLACES = {_BEGIN: " at the beginning", _END: " at the end"}
_BETWEEN = re.compile(r"[\W_]{2,}")
_KINDS = {
    "a lower-case letter": str.islower,
    "a capital letter": str.isupper,
    "a letter without case": str.isalpha,
    "a digit": str.isdigit,
    "white space": str.isspace,
}
_Features = dict[str, Any]
"""View → (N, D) matrix of N texts, or what makes one."""
_Classifier = tuple[str, Any]
"""View, and classifier of its rows."""
_BLANKS = {" ": "blank", "\n": "line break", "\r": "carriage return", "\t": "tab"}


def audit(split: Split, *, seed: int = 0, repeats: int | None = None) -> Audit:
    """Everything that can be said without a model about the two sides that a detector is judged on."""
    judged = split.without_later().judged
    has_label = [document.member is not None for document in judged]
    labelled = judged.take(np.array(has_label, dtype=bool))
    return Audit(
        leaks(split),
        **controls(labelled, labelled.members, labelled.family.tolist(), seed=seed, repeats=repeats),
        telling=most_telling(labelled.wholes, labelled.members, labelled.family, seed=seed),
    )


def leaks(split: Split) -> Leaks:
    """Families that span more than one part, and the pairs of texts that show it."""
    documents = Corpus(chain.from_iterable(split))
    part = np.repeat(np.arange(3), list(map(len, split)))
    links = near_duplicates(documents.wholes)
    family = _families_of(split, documents, links)
    reasons = {}
    for i, j, reason in links:
        if part[i] != part[j] and family[i] == family[j]:
            reasons[i, j] = reason
    groups = pd.DataFrame({"group": [document.group for document in documents], "part": part})
    # one text of a group stands for all of its texts in a part: every pair of them would be too many
    one_per_part = groups.query("group != ''").drop_duplicates()
    for representatives in one_per_part.groupby("group").groups.values():
        reasons |= dict.fromkeys(combinations(representatives, 2), "group")
    names = [Split._fields[number] for number in part]
    texts = documents.wholes
    pairs = [Leak(names[i], names[j], reason, texts[i], texts[j]) for (i, j), reason in sorted(reasons.items())]
    occurs = np.zeros((3, family.max(initial=-1) + 1), dtype=bool)
    occurs[part, family] = True
    test = family[part == 2]
    tested, calibrated, _ = occurs[:, test].sum(axis=1).tolist()
    return Leaks(
        pairs=tuple(pairs),
        groups=int((occurs.sum(axis=0) > 1).sum()),
        tested=tested,
        calibrated=calibrated,
        test=test.size,
    )


def _families_of(split: Split, documents: Corpus, links: Sequence[Link]) -> IntArray:
    """(N,) family of each text: those by which the split was made, else those of its parts together."""
    home = split.unseen.home
    # A passage of many texts links none of them; among the few that are left of these it would look like a leak.
    if home is not None and home is split.validation.home and home is split.test.home:
        return home.take(np.concatenate([texts.positions for texts in split])).family
    return np.array(families(documents, links), dtype=np.int64)


def controls(
    documents: Documents, labels: ArrayLike, groups: Groups, *, seed: int = 0, repeats: int | None = None
) -> dict[str, Control]:
    """What a classifier of the text (`blind`), the length and the date alone reach, without the language model.

    They see what the model sees, each text after its context: the contexts may tell the sides apart as well.
    """
    texts = as_corpus(documents).wholes
    lengths = list(map(len, map(words, texts)))
    dates = [document.date.toordinal() if document.date else None for document in documents]
    by_text = blind(texts, labels, groups, seed=seed, repeats=repeats)
    return {
        "blind": by_text,
        "length": single_number_auc(lengths, labels, groups, seed=seed),
        "date": single_number_auc(dates, labels, groups, seed=seed),
    }


def single_number_auc(
    values: Sequence[float | None], labels: ArrayLike, groups: Groups = None, *, seed: int = 0
) -> Control:
    """AUC of one number per text, such as its date or length, in the direction that makes it at least .5."""
    numbers = np.array(values, dtype=np.float64)  # NaN for None
    has_one = ~np.isnan(numbers)
    if not has_one.any():
        return Control(None, "no text has it")
    numbers = numbers[has_one]
    group = group_index(groups, len(values))[has_one]
    try:
        bootstrap = Bootstrap.draw(np.asarray(labels, dtype=bool)[has_one], group.tolist(), seed=seed)
    except UsageError as error:
        return Control(None, str(error))
    scores = numbers if auc(bootstrap.member, numbers) >= 0.5 else -numbers
    return _auc_of(bootstrap, scores[None])


def blind(
    texts: Texts, labels: ArrayLike, groups: Groups = None, *, seed: int = 0, repeats: int | None = None
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
    return _auc_of(bootstrap, scores)


def _auc_of(bootstrap: Bootstrap, scores: FloatArray) -> Control:
    """Mean AUC of (D, N) scores of the same texts, such as those of D divisions into folds."""
    # the resamples of all divisions together, so that the interval has the spread over the divisions as well
    aucs = np.concatenate([bootstrap.values(row, [METRICS["auc"].compute]) for row in scores])
    return Control(percentiles(aucs[:, 0].mean(), aucs[:, 1:]), scores=scores.mean(axis=0))


def _cross_validated(texts: Texts, member: BoolArray, group: IntArray, seed: int, repeats: int) -> FloatArray | None:
    """(`repeats`, N) out-of-fold scores of the chosen classifiers, as ranks within the fold; None for too few texts."""
    sample = _sample(member, group, seed)
    folds = [_folds(member, group, seed + repeat) for repeat in range(repeats)]
    documents = np.array(texts, dtype=object)
    views = {name: view.fit(documents[sample]) for name, view in _views(sample.size).items()}

    def features(rows: IntArray) -> _Features:
        return {name: view.transform(documents[rows]) for name, view in views.items()}

    of_sample = features(sample)
    scores = np.empty((repeats, len(texts)))
    with threadpool_limits(1, user_api="openmp"):  # on so few rows, boosting is slower with threads
        trained = []
        for repeat, fold in enumerate(folds):
            classifiers = _classifiers(of_sample, member[sample], fold[sample], seed + repeat)
            if classifiers is None:
                return None
            trained.append(classifiers)
        # block by block, since the features of all texts of a large benchmark do not fit into memory
        for start in range(0, len(texts), TRAINED_ON):
            block = np.arange(start, min(len(texts), start + TRAINED_ON))
            of_block = of_sample if sample.size == len(texts) else features(block)
            for column, fold, classifiers in zip(scores, folds, trained, strict=True):
                column[block] = _held_out_scores(of_block, fold[block], classifiers)
    for column, fold in zip(scores, folds, strict=True):
        _rank_in_folds(column, fold)
    return scores


def _held_out_scores(views: _Features, fold: IntArray, classifiers: list[_Classifier]) -> FloatArray:
    """(N,) scores of N texts by the classifier of the fold of each, which was not trained on it."""
    scores = np.empty(fold.size)
    for number, (view, classifier) in enumerate(classifiers):
        rows = np.flatnonzero(fold == number)
        if rows.size:
            scores[rows] = classifier.decision_function(views[view][rows])
    return scores


def _rank_in_folds(scores: FloatArray, fold: IntArray) -> None:
    """Put ranks within the fold, above 0 and below 1, in place of the (N,) scores."""
    # the classifiers of two folds have scores of different scales, which cannot be compared
    for number in range(fold.max() + 1):
        held_out = fold == number
        scores[held_out] = stats.rankdata(scores[held_out]) / (held_out.sum() + 1)


def _sample(member: BoolArray, group: IntArray, seed: int) -> IntArray:
    """Positions of at most `TRAINED_ON` texts, at most half of them of each label, from families drawn at random."""
    rank = default_rng(seed).permutation(group.max() + 1)
    order = np.argsort(rank[group], kind="stable")
    sides = [order[side[order]][: TRAINED_ON // 2] for side in (member, ~member)]
    return np.sort(np.concatenate(sides))


def _folds(member: BoolArray, group: IntArray, seed: int) -> IntArray:
    """(N,) number of the fold of each text: whole groups, each label spread evenly; one fold if there are no more."""
    count = min(FOLDS, np.unique(group[member]).size, np.unique(group[~member]).size)
    fold = np.zeros(member.size, dtype=np.int64)
    if count < 2:
        return fold
    mostly_members = 2 * np.bincount(group, weights=member) > np.bincount(group)
    n_smaller = min(mostly_members.sum(), (~mostly_members).sum())
    # groups with both labels may leave too few of one label to spread
    division = StratifiedKFold if n_smaller >= count else KFold
    folds = division(count, shuffle=True, random_state=seed)
    for number, (_, held_out) in enumerate(folds.split(mostly_members, mostly_members)):
        fold[np.isin(group, held_out)] = number
    return fold


def _has_both(member: BoolArray) -> bool:
    """Whether there are members and non-members."""
    return bool(member.any() and not member.all())


def _classifiers(views: _Features, member: BoolArray, fold: IntArray, seed: int) -> list[_Classifier] | None:
    """View and classifier for each fold, chosen by cross-validation over the other folds; None for a single label."""
    candidates = _candidates(views, seed)
    count = fold.max() + 1
    folds = [np.flatnonzero(fold == number) for number in range(count)]

    def fitted(view: str, candidate: Any, rows: IntArray) -> Any:
        return clone(candidate).fit(views[view][rows], member[rows])

    summed = np.zeros((count, len(candidates)))
    for i, j in combinations(range(count), 2):
        train = np.flatnonzero((fold != i) & (fold != j))
        if not all(_has_both(member[rows]) for rows in (train, folds[i], folds[j])):
            continue
        for column, (view, candidate) in enumerate(candidates):
            classifier = fitted(view, candidate, train)
            # A classifier that saw neither fold serves twice: what it reaches on one of them counts for the choice
            # that is judged on the other.
            for judged_on, test in ((i, folds[j]), (j, folds[i])):
                scores = classifier.decision_function(views[view][test])
                summed[judged_on, column] += auc(member[test], scores)
    chosen = []
    for number in range(count):
        train = np.flatnonzero(fold != number)
        if not _has_both(member[train]):
            return None
        best = np.argmax(summed[number]) if summed[number].any() else -1
        view, candidate = candidates[best]
        chosen.append((view, fitted(view, candidate, train)))
    return chosen


def _candidates(views: _Features, seed: int) -> list[_Classifier]:
    """View and classifier of every candidate, the plainest last: it judges where there are too few texts to choose."""
    texts, columns = views["presence"].shape
    # balanced: the sides of a benchmark may differ in size, which says nothing
    linear = LogisticRegression(class_weight="balanced", solver="liblinear", max_iter=1000, random_state=seed)
    one_term = make_pipeline(SelectKBest(association, k=1), linear)
    few_terms = make_pipeline(SelectKBest(association, k=min(20, columns)), linear)
    # with far more columns than texts the dual problem is the smaller one
    many_terms = clone(linear).set_params(C=10.0, dual=True, tol=0.01)
    boosted = HistGradientBoostingClassifier(
        max_iter=20,
        max_leaf_nodes=4,
        min_samples_leaf=15,
        learning_rate=0.2,
        max_bins=32,
        early_stopping=False,
        random_state=seed,
    )
    candidates = [
        ("presence", one_term),
        ("presence", few_terms),
        ("characters", many_terms),
        ("numbers", make_pipeline(StandardScaler(), linear)),
    ]
    if texts >= FEWEST_BOOSTED:
        candidates.append(("numbers", boosted))
    candidates.append(("words", many_terms))
    return candidates


def association(presence: sparse.csr_array, member: BoolArray) -> FloatArray:
    """χ² / N of each column's presence with the label (0 if it is in all rows or none).

    It is (a − c s)² / (c (N − c) s (1 − s)) for c rows with the term, a of them members, and the share s of members.
    """
    count = _column_sums(presence)
    share = member.mean()
    expected = count * share
    spread = count * (member.size - count) * share * (1 - share)
    excess = _column_sums(presence[np.flatnonzero(member)]) - expected
    chi2: FloatArray = excess**2 / np.where(spread > 0, spread, np.inf)
    return chi2


def _column_sums(matrix: sparse.csr_array) -> FloatArray:
    return np.asarray(matrix.sum(axis=0), dtype=np.float64).ravel()


def _views(texts: int) -> _Features:
    """Name of a kind of features → what makes an (N, D) matrix of N texts, when fitted to so many texts."""
    fewest = 2 if texts > 20 else 1  # a term of a single text helps no other text, except among very few
    presence = CountVectorizer(analyzer=_terms, binary=True, min_df=fewest, dtype=np.float64)
    of_words = TfidfVectorizer(analyzer=_words_and_pairs, sublinear_tf=True, min_df=fewest)
    of_characters = TfidfVectorizer(
        preprocessor=_marked, analyzer="char", ngram_range=(1, 3), sublinear_tf=True, min_df=fewest
    )
    return {
        "presence": presence,
        "words": of_words,
        "characters": of_characters,
        "numbers": FunctionTransformer(lambda texts: np.array(list(map(_numbers, texts)))),
    }


def _terms(text: str) -> set[str]:
    """Words, pairs of words and signs."""
    return {_WORD + word for word in _words_and_pairs(text)} | {_SIGN + sign for sign in _signs(text)}


def _words_and_pairs(text: str) -> list[str]:
    tokens = words(text)
    pairs = map(" ".join, pairwise(tokens))
    return ["", *tokens, *pairs]  # "": no vocabulary is empty


def _signs(text: str) -> set[str]:
    """Each character, each two or three in sequence that are not letters or digits, and both ends with their kind."""
    signs = set(text)
    for run in set(_BETWEEN.findall(text)):
        for size in (2, 3):
            signs.update(run[start : start + size] for start in range(len(run) - size + 1))
    signs |= {_BEGIN + _kind(text[:1]), _END + _kind(text[-1:])}
    if text:
        for size in (1, 2, 3):
            signs |= {_BEGIN + text[:size], _END + text[-size:]}
    return signs


def _kind(character: str) -> str:
    for kind, is_of_kind in _KINDS.items():
        if is_of_kind(character):
            return kind
    return "a punctuation mark or symbol"


def _marked(text: str) -> str:
    """The beginning of a text between marks, so that n-grams see how a text begins and ends."""
    return f"{_BEGIN}{text[:CHARACTERS]}{_END}"


def _numbers(text: str) -> list[float]:
    """Length, layout, spelling and years of one text."""
    tokens = words(text)
    size = max(1, len(text))
    n_tokens = max(1, len(tokens))
    lengths = [log1p(len(tokens)), log1p(len(text)), len(text) / n_tokens, len(set(tokens)) / n_tokens]
    letters = sum(map(str.isalpha, text))
    digits = sum(map(str.isdigit, text))
    spaces = sum(map(str.isspace, text))
    capitals = sum(map(str.isupper, text))
    # files of other programs may hold half of a surrogate pair
    n_bytes = len(text.encode("utf-8", "surrogatepass"))
    marks = len(text) - letters - digits - spaces
    shares = [number / size for number in (digits, spaces, marks, capitals, n_bytes)]
    sentence_ends = sum(map(text.count, ".!?。"))
    percents = [100 * number / size for number in (text.count("\n"), sentence_ends, text.count(","))]
    dates = stamps(text)
    mentioned = [int(year) for date in dates for year in re.findall(r"\d{4}", date)]
    # texts without a year stand in the middle, at 2000, and are marked as such
    years = [log1p(len(dates)), float(bool(mentioned)), max(mentioned, default=2000) - 2000.0]
    return lengths + shares + percents + years


def most_telling(texts: Texts, member: BoolArray, group: IntArray, *, seed: int) -> Telling | None:
    """The word, pair of words or sign with the smallest p-value of Fisher's test on families with and without it.

    The members and the non-members of a family are two units; None if nothing occurs in `RAREST` units, but not in all.
    """
    if not _has_both(member):
        return None
    sample = _sample(member, group, seed)
    terms = CountVectorizer(analyzer=_terms, binary=True, dtype=np.float64)
    in_texts = terms.fit_transform([texts[row] for row in sample])
    # a word that is in all passages of one work is one observation, not many
    # the two sides of a family have an even and an odd number
    units, unit = np.unique(2 * group[sample] + member[sample], return_inverse=True)
    members = units % 2 == 1
    belongs = sparse.csr_array((np.ones(sample.size), (unit, np.arange(sample.size))))
    present = sparse.csr_array(belongs @ in_texts).sign()
    count = _column_sums(present)
    tested = np.flatnonzero((count >= RAREST) & (count < units.size))
    if not tested.size:
        return None
    # Fisher's test is slow: it is made for the terms that χ² ranks highest alone, but corrected for all that were seen
    chi2 = association(present, members)[tested]
    strongest = tested[np.argsort(-chi2, kind="stable")[:50]]
    n_units = np.array([members.sum(), (~members).sum()])
    hits = _column_sums(present[np.flatnonzero(members)])
    by_side = np.stack([hits, count - hits])

    def p_value(column: int) -> float:
        n_present = by_side[:, column]
        table = np.stack([n_present, n_units - n_present])
        return float(stats.fisher_exact(table).pvalue)

    best = min(strongest, key=p_value)
    in_members, in_nonmembers = (by_side[:, best] / n_units).tolist()
    term = terms.get_feature_names_out()[best]
    return Telling(
        phrase=_name(term),
        members=in_members,
        nonmembers=in_nonmembers,
        p=min(1.0, p_value(best) * tested.size),
        looked_at=tested.size,
    )


def _name(term: str) -> str:
    """Words in quotation marks, or a noun for a sign: characters that may be mistaken by their Unicode names."""
    sign = term[1:]
    if term[0] == _WORD:
        return f"“{sign}”"
    place = ""
    # a mark alone is a character of the text itself
    if len(sign) > 1:
        place = _PLACES.get(sign[0], "")
    if place:
        sign = sign[1:]
    if len(sign) > 3:  # a kind of character, which has a name already
        return sign + place
    return " + ".join(map(_character_name, re.findall(r"[!-~]+|[^!-~]", sign))) + place


def _character_name(piece: str) -> str:
    if "!" <= piece[0] <= "~":
        return f"“{piece}”"
    if piece in _BLANKS:
        return _BLANKS[piece]
    return f"{unicodedata.name(piece, 'character').lower()} (U+{ord(piece):04X})"
