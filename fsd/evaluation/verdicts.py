"""Verdicts on texts from their scores and a calibration, given only where something shows that the error rate holds."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from fsd.data.documents import Document
from fsd.data.near_duplicates import families
from fsd.evaluation.calibration import TOLERANCE, Calibration
from fsd.evaluation.discoveries import check_fdr, discoveries
from fsd.evaluation.domain_check import DomainCheck, States
from fsd.evaluation.exchangeability import FEWEST, Exchangeability, exchangeability
from fsd.token_stats import FloatArray, Scores

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
