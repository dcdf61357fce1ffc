"""Verdicts on texts from their scores and a calibration, given only where something shows that the error rate holds."""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from fsd.data.documents import Document
from fsd.data.near_duplicates import families
from fsd.errors import UsageError
from fsd.evaluation.calibration import TOLERANCE, Calibration
from fsd.evaluation.domain_check import DomainCheck, States
from fsd.evaluation.exchangeability import FEWEST, Exchangeability, exchangeability
from fsd.evaluation.metrics import BoolArray, group_index, group_members
from fsd.token_stats import FloatArray, Scores

SPLIT = 0.5
"""p-values above this estimate the share of non-members in Storey's correction."""
_SLACK = 1e-9


def discoveries(
    p_values: ArrayLike, groups: Sequence[Hashable] | None = None, *, fdr: float = 0.1, storey: bool = False
) -> BoolArray:
    """Texts selected as members by Benjamini and Hochberg's procedure over families.

    On average, at most the share `fdr` of the selected families contains no member. A family counts once, by Simes'
    combination of the p-values of its texts; within a selected family, texts are selected at the level fdr · R / F for
    R of F families (Benjamini and Bogomolov 2014, https://arxiv.org/abs/1106.3670). Conformal p-values that share one
    calibration set depend on each other positively, for which the procedure is valid (Bates et al. 2023,
    https://arxiv.org/abs/2104.08279).

    Args:
        p_values: (N,) p-values.
        groups: (N,) family of each text; None if all are independent.
        fdr: false discovery rate; a UsageError unless it is between 0 and 1.
        storey: whether to divide by Storey's estimate of the share of families without members,
            (1 + number of families with p > .5) / (F / 2), which finds more if there are many members (Storey, Taylor
            and Siegmund 2004, https://doi.org/10.1111/j.1467-9868.2004.00439.x).

    Returns:
        (N,) whether each text is selected.
    """
    check_fdr(fdr)
    values = np.asarray(p_values, dtype=np.float64)
    selected = np.zeros(values.size, dtype=bool)
    if not values.size:
        return selected
    group = group_index(groups, values.size)
    members = group_members(group)
    family = np.array([_adjusted(values[own]).min() for own in members])
    null = min(1.0, (1 + int((family > SPLIT).sum())) / (family.size * (1 - SPLIT))) if storey else 1.0
    called = _adjusted(family) * null <= fdr + _SLACK
    for own in np.flatnonzero(called):
        selected[members[own]] = _adjusted(values[members[own]]) * null <= fdr * called.mean() + _SLACK
    return selected


def check_fdr(fdr: float) -> None:
    """A UsageError unless a false discovery rate is between 0 and 1."""
    if not 0 < fdr < 1:
        raise UsageError(f"fdr must be above 0 and below 1; got {fdr:g}")


def _adjusted(p_values: FloatArray) -> FloatArray:
    """Benjamini and Hochberg's adjusted p-values; the smallest is Simes' p-value of the intersection."""
    return np.asarray(stats.false_discovery_control(p_values), dtype=np.float64)


T = TypeVar("T")
MEMBER, NOT_SHOWN = "member", "not shown"
OUT_OF_DOMAIN, NO_VERDICT = "outside the calibrated domain", "no verdict"
TESTED, ASSERTED = "tested", "asserted, not tested"
"""What a verdict rests on: the texts passed tests that can refuse, or the user says that they are of one kind."""
FEWEST_CALIBRATED = 10
"""Smallest number of groups of calibration non-members of a named source on whose texts verdicts are given."""


class Rules(NamedTuple):
    """Rates of the verdicts, and what is asserted."""

    fpr: float = 0.05
    """False-positive rate: share of non-members that may be called members."""
    fdr: float = 0.1
    """False discovery rate of the column `selected`."""
    storey: bool = False
    """Whether `selected` rests on Storey's estimate of the share of non-members."""
    same_source: bool = False
    """Whether the user asserts that the texts are of the kind of the calibration non-members."""


class Basis(NamedTuple):
    """What the verdicts on the texts of one source rest on."""

    collection: str
    """The source, "" without."""
    verdict: str
    """`TESTED` or `ASSERTED`, "" without a verdict, of which `reason` says why."""
    reason: str
    test: Exchangeability | None
    """Of the texts together; None for a source that the calibration does not know."""


class Classified(NamedTuple):
    """Verdicts on N texts: a table with score, rank, p_value, verdict, basis, warning and selected, and their bases."""

    table: pd.DataFrame
    bases: list[Basis]
    families: Sequence[int]
    """(N,) number of the family of each text."""


def _at(values: Sequence[T], positions: Sequence[int]) -> list[T]:
    return [values[n] for n in positions]


class Judge:
    """Verdicts by a calibration, with the domain checks on which they rest; `states` gives hidden states of texts."""

    def __init__(self, calibration: Calibration, states: States | None = None) -> None:
        self.calibration = calibration
        self._hidden = states
        self._last: tuple[Sequence[str], FloatArray | None] = ((), None)
        self._checks: dict[str, DomainCheck] = {}

    def sources(self, documents: Sequence[Document]) -> list[str]:
        """(N,) source by which each text is judged: its own, or "" where the calibration names none."""
        unnamed = set(self.calibration.collections) == {""}
        return ["" if unnamed else document.collection for document in documents]

    def unknown(self, collection: str) -> str:
        """Why no text of a source can be judged; "" if it can."""
        counts = self.calibration.source_groups
        if collection not in counts:
            known = ", ".join(sorted(name or "texts without a source" for name in counts))
            named = f"source {collection!r}" if collection else "a text without a source"
            return f"{named} is unknown to the adapter, which was calibrated on {known}"
        if collection and counts[collection] < FEWEST_CALIBRATED:
            return (
                f"source {collection!r} must have at least {FEWEST_CALIBRATED} groups of calibration non-members; "
                f"it has {counts[collection]}"
            )
        return ""

    def outside(self, documents: Sequence[Document], family: Sequence[int]) -> list[str]:
        """(N,) reason why each text is not of the kind of its source's non-members; "" if it is, or none is known."""
        sources, reasons = np.array(self.sources(documents)), np.full(len(documents), "", dtype=object)
        for name in dict.fromkeys(sources.tolist()):
            if not self.unknown(name):
                at = np.flatnonzero(sources == name).tolist()
                texts = [documents[n].text for n in at]
                reasons[at] = self._check(name).outside(texts, _at(family, at), self._states(texts))
        return list(reasons)

    def classify(
        self,
        documents: Sequence[Document],
        score: Callable[[Sequence[int]], Scores],
        rules: Rules,
        *,
        excluded: Sequence[str] | None = None,
    ) -> Classified:
        """Judge texts, source by source, after tests whether they are of the benchmark's kind.

        The verdict is `MEMBER` if p ≤ fpr, else `NOT_SHOWN`. It is `OUT_OF_DOMAIN` for a text that is not of the
        benchmark's kind, which is not scored; and `NO_VERDICT` where nothing shows that the error rate holds: then
        there are the score and its rank among the texts, and no p-value. Texts that cannot be tested get a verdict only
        if `same_source` asserts their kind. A failed test goes before the assertion.

        Args:
            documents: N texts; their groups, near-duplicates and sources count.
            score: positions of some texts → their scores by each candidate of the calibration.
            rules: rates, and whether the kind of the texts is asserted.
            excluded: (N,) other reason why a text cannot be judged, and says nothing about the others; "" for none.

        Raises:
            UsageError: if the calibration does not support the rates.
        """
        check_fdr(rules.fdr)
        sources, family = self.sources(documents), families(documents)
        for name in dict.fromkeys(sources):
            if not self.unknown(name):
                self.calibration.of(name).threshold_at(rules.fpr)
        left_out = list(excluded or [""] * len(documents))
        outside = [a or b for a, b in zip(left_out, self.outside(documents, family), strict=True)]
        table = pd.DataFrame(
            {
                "score": np.nan,
                "rank": pd.array([None] * len(documents), dtype="Int64"),
                "p_value": np.nan,
                "verdict": [OUT_OF_DOMAIN if why else NO_VERDICT for why in outside],
                "basis": "",
                "warning": outside,
                "selected": False,
            }
        )
        bases = []
        for name in dict.fromkeys(sources):
            at = [n for n, source in enumerate(sources) if source == name and not left_out[n]]
            if not at:
                continue
            texts = [documents[n].text for n in at]
            basis = self._basis(name, texts, _at(family, at), _at(outside, at), asserted=rules.same_source)
            bases.append(basis)
            inside = [n for n in at if not outside[n]]
            table.loc[inside, "warning"] = basis.reason
            if not inside or (basis.test and basis.test.rejected):
                continue
            scores = score(inside)
            table.loc[inside, "score"] = scores[self.calibration.detector]
            if basis.verdict:
                p_values = self.calibration.of(name).p_values(scores)
                table.loc[inside, "p_value"] = p_values
                table.loc[inside, "verdict"] = np.where(p_values <= rules.fpr + TOLERANCE, MEMBER, NOT_SHOWN)
                table.loc[inside, "basis"] = basis.verdict
        table["rank"] = table["score"].rank(ascending=False, method="min").astype("Int64")
        judged = np.flatnonzero(table["p_value"].notna()).tolist()
        p_values = table["p_value"].to_numpy()[judged]
        table.loc[judged, "selected"] = discoveries(p_values, _at(family, judged), fdr=rules.fdr, storey=rules.storey)
        return Classified(table, bases, family)

    def _states(self, texts: Sequence[str]) -> FloatArray | None:
        """Hidden states of the texts, which the tests of single texts and of all together both need."""
        if self._hidden and self._last[0] != texts:
            self._last = (texts, self._hidden(texts))
        return self._last[1] if self._hidden else None

    def _check(self, collection: str) -> DomainCheck:
        if collection not in self._checks:
            self._checks[collection] = self.calibration.reference.check(collection, self._hidden)
        return self._checks[collection]

    def _basis(
        self, name: str, texts: Sequence[str], family: Sequence[int], outside: Sequence[str], *, asserted: bool
    ) -> Basis:
        """Whether something shows that the rate holds for the texts of a source: tests that can refuse, or the user."""
        if unknown := self.unknown(name):
            return Basis(name, "", unknown, None)
        unlike = np.array([bool(why) for why in outside])
        test = exchangeability(self._check(name), texts, family, states=self._states(texts), outside=unlike)
        if test.rejected:
            p = f"p = {test.p:.2g}" if test.p >= 0.001 else "p < .001"
            why = f"the texts together are not exchangeable with the benchmark's non-members ({p})"
            return Basis(name, "", why, test)
        lacking = ""
        if not test.tested:
            lacking = (
                f"fewer than {FEWEST} independent texts cannot be compared with the benchmark's non-members "
                f"(here {test.groups})"
            )
        elif not self.calibration.reference.powerful:
            lacking = "the domain check of this adapter was not shown to recognise texts of other kinds"
        if lacking and not asserted:
            return Basis(name, "", f"{lacking}; --same-source asserts that they are of one source and kind", test)
        return Basis(name, ASSERTED if lacking else TESTED, "", test)
