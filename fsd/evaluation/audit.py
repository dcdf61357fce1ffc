"""Explanations of a result other than membership: leaks between the parts, and differences visible without a model.

Nothing here uses a language model. A classifier of the texts alone that is as good as a detector shows that the members
and non-members of a benchmark differ in content; then no score on it proves membership (Duan et al. 2024,
https://arxiv.org/abs/2402.07841; Das et al. 2024, https://arxiv.org/abs/2406.16201).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction import DictVectorizer

from fsd.data.documents import Document
from fsd.data.near_duplicates import families, near_duplicates, words
from fsd.data.splitting import Split, without_later
from fsd.errors import UsageError
from fsd.evaluation.metrics import METRICS, BoolArray, Bootstrap, Estimate, auc, group_index, percentiles
from fsd.evaluation.text_classifiers import Telling, cross_validated, most_telling
from fsd.token_stats import FloatArray

SHUFFLES = 20
BINS = 10
Similarity = Callable[[BoolArray], float]
"""(N,) labels → overlap of the two sides, from 0 (nothing in common) to 1."""


@dataclass(frozen=True)
class Overlap:
    """Overlap of members and non-members in one respect, as measured, and the mean over shuffled labels.

    The latter is what a matched benchmark of this size would show.
    """

    value: float
    chance: float


def _spread(numbers: FloatArray) -> Similarity:
    """Overlap of two histograms whose bins contain a tenth of all texts each."""
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, BINS + 1)[1:-1]))
    place = np.searchsorted(edges, numbers, side="right")

    def compare(member: BoolArray) -> float:
        sides = [np.bincount(place[side], minlength=BINS + 1) / max(1, side.sum()) for side in (member, ~member)]
        return float(np.minimum(*sides).sum())

    return compare


def _vocabulary(texts: Sequence[str]) -> Similarity:
    """One minus the Jensen-Shannon divergence (bits) of the two sides' word frequencies."""
    table = DictVectorizer(sort=False).fit_transform([Counter(words(text)) for text in texts])

    def compare(member: BoolArray) -> float:
        sides = [table.T @ side.astype(np.float64) for side in (member, ~member)]
        p, q = (side / max(1.0, side.sum()) for side in sides)
        return 1 - (_entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2)

    return compare


def _entropy(p: FloatArray) -> float:
    positive = p[p > 0]
    return float(-(positive * np.log2(positive)).sum())


def overlaps(documents: Sequence[Document], *, seed: int = 0) -> dict[str, Overlap]:
    """Overlap of members and non-members in length, vocabulary and, if every text has one, date."""
    member = np.array([bool(document.member) for document in documents])
    if member.all() or not member.any():
        return {}
    rng, texts = np.random.default_rng(seed), [document.text for document in documents]
    respects = {
        "length": _spread(np.array([len(words(text)) for text in texts], dtype=np.float64)),
        "vocabulary": _vocabulary(texts),
    }
    dates = [document.date.toordinal() for document in documents if document.date]
    if len(dates) == len(documents):
        respects["date"] = _spread(np.array(dates, dtype=np.float64))
    group = group_index([document.group for document in documents], member.size)
    first = np.unique(group, return_index=True)[1]
    found = {}
    for name, compare in respects.items():
        chance = [compare(rng.permutation(member[first])[group]) for _ in range(SHUFFLES)]
        found[name] = Overlap(compare(member), float(np.mean(chance)))
    return found


class Leak(NamedTuple):
    """Two related texts in different parts of the split; a row of leaks.json.

    The reason is group (same article, paper or book), or the rule of `fsd.data.near_duplicates` that links them.
    """

    part: str
    other_part: str
    reason: str
    text: str
    other_text: str


@dataclass(frozen=True)
class Leaks:
    """Related texts that a split separates."""

    pairs: tuple[Leak, ...]
    """Enough to show every leak between two parts."""
    groups: int
    """Number of families (same group or near-duplicates) in more than one part."""
    tested: int
    """Number of test texts with a relative among the unseen texts, which are trained on."""
    calibrated: int
    """Number of test texts with a relative in validation."""
    test: int
    """Number of test texts."""


@dataclass(frozen=True)
class Control:
    """An AUC reached without a language model, or the reason why there is none."""

    auc: Estimate | None
    reason: str = ""
    scores: FloatArray | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Audit:
    """The audit of one benchmark and its split; the controls are explained at `controls`."""

    leaks: Leaks
    blind: Control
    date: Control
    length: Control
    overlaps: dict[str, Overlap]
    """Of date, length and vocabulary between members and non-members, as far as they are known."""
    telling: Telling | None = None
    """The word, pair of words or sign that tells most; None if none occurs often enough."""

    def metrics(self) -> dict[str, float]:
        """The numbers by their names in MLflow, without those that are unknown."""
        numbers = {"audit/leaked_groups": float(self.leaks.groups), "audit/leaked_tests": float(self.leaks.tested)}
        for name, control in (("blind", self.blind), ("date", self.date), ("length", self.length)):
            if control.auc is not None:
                numbers[f"audit/{name}_auc"] = control.auc.value
        return numbers | {f"audit/{name}_overlap": overlap.value for name, overlap in self.overlaps.items()}


def explains(blind: Estimate | None, auc: Estimate) -> bool:
    """Whether a blind classifier explains a detector's result, so that it is no evidence of membership.

    It does if it is better than chance (its interval is above .5) and not clearly worse than the detector: its interval
    reaches the detector's, or lies above it. A lead of the detector that its own and the classifier's error could make
    is no lead; a classifier that could not be trained (None) explains nothing, and rules nothing out.
    """
    return blind is not None and blind.low > 0.5 and blind.high >= auc.low


def leaks(split: Split) -> Leaks:
    """Families that span more than one part, and the pairs of texts that show it."""
    documents = [document for part in split for document in part]
    part = np.repeat(np.arange(3), [len(documents) for documents in split])
    texts = [document.text for document in documents]
    links = near_duplicates(texts)
    reasons = {(i, j): reason for i, j, reason, *_ in links if part[i] != part[j]}
    reasons |= dict.fromkeys(_same_group(documents, part), "group")
    family = np.array(families(documents, links), dtype=np.int64)
    holds = np.zeros((3, int(family.max(initial=-1)) + 1), dtype=bool)
    holds[part, family] = True
    names = Split._fields
    return Leaks(
        pairs=tuple(
            Leak(names[part[i]], names[part[j]], reason, texts[i], texts[j])
            for (i, j), reason in sorted(reasons.items())
        ),
        groups=int((holds.sum(axis=0) > 1).sum()),
        tested=int(holds[0][family[part == 2]].sum()),
        calibrated=int(holds[1][family[part == 2]].sum()),
        test=len(split.test),
    )


def _same_group(documents: Sequence[Document], part: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Pairs of the first texts of each group in the parts that contain it."""
    firsts: dict[str, dict[int, int]] = {}
    for at, document in enumerate(documents):
        if document.group:
            firsts.setdefault(document.group, {}).setdefault(int(part[at]), at)
    return [pair for places in firsts.values() for pair in combinations(sorted(places.values()), 2)]


def blind(
    texts: Sequence[str],
    labels: Sequence[bool],
    groups: Sequence[Hashable] | None = None,
    *,
    seed: int = 0,
    repeats: int | None = None,
) -> Control:
    """AUC of the best classifier without a language model, cross-validated by whole groups.

    Which kind of classifier is best (see `fsd.evaluation.text_classifiers`) is chosen inside the training texts of each
    fold. It works in every script: characters of scripts without spaces count as words. The AUC is a mean over several
    divisions of the texts into folds. Its interval contains the spread over folds as well as that over texts: every
    resample of the groups is judged by the scores of one of the divisions.

    Args:
        texts: (N,).
        labels: (N,) True for members, or for one of any two sets to compare.
        groups: (N,) or None.
        seed: of the folds and the bootstrap.
        repeats: number of divisions into folds; None for three.

    Returns:
        The AUC with `scores` (N,), higher = more like a member; no AUC if there are too few groups.
    """
    try:
        bootstrap = Bootstrap.draw(labels, groups, seed=seed)
    except UsageError as error:
        return Control(None, str(error))
    scores = cross_validated(texts, bootstrap.member, bootstrap.group, seed=seed, repeats=repeats)
    if scores is None:
        return Control(None, "members and non-members share too few groups to hold some out")
    values = np.concatenate([bootstrap.values(column, [METRICS["auc"].of]) for column in scores])
    return Control(percentiles(values[:, 0].mean(), values[:, 1:]), scores=scores.mean(axis=0))


def alone(
    values: Sequence[float | None],
    labels: Sequence[bool],
    groups: Sequence[Hashable] | None = None,
    *,
    seed: int = 0,
) -> Control:
    """AUC of one number per text, such as its date or length, in the direction that makes it at least .5.

    The choice of direction raises the AUC of noise a little above .5; its interval still reaches below.
    """
    known = [at for at, value in enumerate(values) if value is not None]
    if not known:
        return Control(None, "no text has it")
    numbers = np.array([values[at] for at in known], dtype=np.float64)
    member = np.array([labels[at] for at in known], dtype=bool)
    names = None if groups is None else [groups[at] for at in known]
    try:
        bootstrap = Bootstrap.draw(member, names, seed=seed)
    except UsageError as error:
        return Control(None, str(error))
    turned = numbers if auc(member, numbers) >= 0.5 else -numbers
    (found,) = bootstrap.values(turned, [METRICS["auc"].of])
    return Control(percentiles(found[0], found[1:]), scores=turned)


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


def audit(split: Split, *, seed: int = 0, repeats: int | None = None) -> Audit:
    """Everything that can be said about a benchmark without a model.

    The controls compare the two sides that a detector is judged on: the labelled validation and test texts, without
    later ones if there are contemporaries (see `fsd.data.splitting.without_later`). Unseen texts are on neither side,
    wherever they are from: a file of them may be of another kind or time, and those that were drawn from the benchmark
    come from families without a member. Near-duplicates count as one group.
    """
    leaked = leaks(split)
    judged = without_later(split)
    documents = [document for document in (*judged.validation, *judged.test) if document.member is not None]
    texts, labels = [document.text for document in documents], [bool(document.member) for document in documents]
    family = families(documents)
    telling = most_telling(texts, np.array(labels, dtype=bool), np.array(family, dtype=np.int64), seed=seed)
    without_model = controls(documents, labels, family, seed=seed, repeats=repeats)
    return Audit(leaked, **without_model, overlaps=overlaps(documents, seed=seed), telling=telling)
