"""Verdicts on texts from their scores and a calibration, given only where something shows that the error rate holds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fsd.data.corpus import as_corpus
from fsd.data.documents import Documents
from fsd.data.near_duplicates import families
from fsd.scores import ScoreColumns
from fsd.statistics.multiplicity import check_fdr, discoveries
from fsd.token_stats import FloatArray, IntArray
from fsd.verdicts.calibration import TOLERANCE, Calibration
from fsd.verdicts.domain_check import Kept
from fsd.verdicts.domain_measures import Read
from fsd.verdicts.exchangeability import FEWEST, Exchangeability, exchangeability

MEMBER = "member"
NOT_SHOWN = "not shown"
OUT_OF_DOMAIN = "outside the calibrated domain"
LEARNED = "trained on by the adapter"
"""Its own fine-tuning reads the text, whose score then says nothing of the model."""
NO_VERDICT = "no verdict"
TESTED = "tested"
"""A verdict rests on tests that can refuse, and the texts passed them."""
ASSERTED = "asserted, not tested"
"""A verdict rests on the user, who says that the texts are of one kind."""


class Rules(NamedTuple):
    """Rates of the verdicts; `same_source` asserts that the texts are of the kind of the calibration non-members."""

    fpr: float = 0.05
    fdr: float = 0.1
    storey: bool = False
    same_source: bool = False


class Basis(NamedTuple):
    """What the verdicts on the texts of one source, "" without, rest on: `TESTED`, `ASSERTED`, or "" for a `reason`."""

    source: str
    verdict: str = ""
    reason: str = ""
    test: Exchangeability | None = None


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on N texts: a row each (see `classify`), what they rest on by source, and the (N,) families."""

    table: pd.DataFrame
    bases: list[Basis]
    family: IntArray
    rules: Rules

    def count(self, *verdicts: str) -> int:
        """Number of texts with one of these verdicts."""
        return int(self.table["verdict"].isin(verdicts).sum())

    @property
    def asserted(self) -> bool:
        """Whether a verdict rests on the assertion that the texts are of the calibrated kind."""
        return any(basis.verdict == ASSERTED for basis in self.bases)

    def calls(self) -> tuple[int, int]:
        """Number of families whose first judged text is called a member, and of all: passages are called together."""
        judged = self.table[self.table["p_value"].notna()]
        verdicts = judged.groupby(self.family[judged.index])["verdict"].first()
        return int((verdicts == MEMBER).sum()), len(verdicts)


class VerdictMaker:
    """Verdicts by a calibration, with the domain checks on which they rest.

    `states` gives hidden states of texts, and `typicality` how probable they are; a `refusal` says why no text can be
    judged, whatever the tests show.
    """

    def __init__(
        self, calibration: Calibration, states: Read | None = None, typicality: Read | None = None, *, refusal: str = ""
    ) -> None:
        reference = calibration.reference
        self.calibration = calibration
        self.refusal = refusal
        self._states = Kept(states) if states else None
        self._typicality = reference.kept(typicality)
        # a check is fitted to the non-members of a source, for `outside` and again for `classify`
        self._check = lru_cache(partial(reference.check, states=self._states, typicality=self._typicality))

    def sources(self, documents: Documents) -> list[str]:
        """(N,) source by which each text is judged, see `Calibration.judging`."""
        return self.calibration.judging([document.source for document in documents])

    def unknown(self, source: str) -> str:
        """Why no text of a source can be judged; "" if it can."""
        return self.refusal or self.calibration.unknown(source)

    def outside(self, documents: Documents, family: Sequence[int]) -> list[str]:
        """(N,) reason why each text is not of the kind of its source's non-members, or ""."""
        texts = np.array(as_corpus(documents).wholes, dtype=object)
        # What a server read of earlier requests would fill its memory.
        lasting = set(self.calibration.reference.texts).union(texts)
        for reader in filter(None, (self._states, self._typicality)):
            reader.forget_others(lasting)
        if self._states:
            self._states(texts.tolist())  # all in one go, whatever their source
        sources = np.array(self.sources(documents))
        group = np.array(family)
        reasons = np.full(len(documents), "", dtype=object)
        for name in self._calibrated(sources):
            rows = np.flatnonzero(sources == name)
            reasons[rows] = self._check(name).outside(texts[rows].tolist(), group[rows].tolist())
        return list(reasons)

    def _calibrated(self, sources: NDArray[np.str_]) -> list[str]:
        """The distinct sources on whose texts verdicts can be given."""
        return [name for name in dict.fromkeys(sources.tolist()) if not self.unknown(name)]

    def check_rates(self, documents: Documents, rules: Rules) -> None:
        """Refuse rates that make no sense, or that the calibration of the texts' sources does not support."""
        check_fdr(rules.fdr)
        for name in self._calibrated(np.array(self.sources(documents))):
            self.calibration.of(name).threshold_at(rules.fpr)

    def classify(
        self,
        documents: Documents,
        score: Callable[[Sequence[int]], ScoreColumns],
        rules: Rules,
        *,
        excluded: Sequence[str] | None = None,
    ) -> Verdicts:
        """Give verdicts on texts, source by source, after tests whether they are of the benchmark's kind.

        The verdict is `MEMBER` if p ≤ fpr, else `NOT_SHOWN`; `OUT_OF_DOMAIN` for a text of another kind, and `LEARNED`
        for one that is excluded, neither of which is scored; and `NO_VERDICT`, without a p-value, where nothing shows
        that the error rate holds: neither a test nor `same_source`. A failed test goes before the assertion, and a
        calibration that its own non-members contradict before both. `score` gives scores of some texts, by position,
        that of the calibration among them; `excluded` are (N,) reasons why the adapter itself knows a text, or "".
        """
        # before work of any kind
        self.check_rates(documents, rules)
        sources = np.array(self.sources(documents))
        family = np.array(families(documents))
        outside = self.outside(documents, family.tolist())
        excluded = excluded or [""] * len(documents)
        warnings = [of_text or of_kind for of_text, of_kind in zip(excluded, outside, strict=True)]
        allowed = np.array(excluded, dtype=str) == ""
        inside = np.array(warnings, dtype=str) == ""
        verdict = np.where(inside, NO_VERDICT, OUT_OF_DOMAIN)
        verdict = np.where(allowed, verdict, LEARNED)
        table = pd.DataFrame(
            {
                "score": np.nan,
                "rank": np.nan,
                "p_value": np.nan,
                "verdict": verdict,
                "basis": "",
                "warning": warnings,
                "selected": False,
            }
        )
        texts = np.array(as_corpus(documents).wholes, dtype=object)
        scored = inside.copy()
        bases = []
        for name in dict.fromkeys(sources[allowed].tolist()):
            is_own = allowed & (sources == name)
            test = None
            if not self.unknown(name):
                # the texts outside are tested as well: that there are so many of them tells something
                own_texts = texts[is_own].tolist()
                own_families = family[is_own].tolist()
                test = exchangeability(self._check(name), own_texts, own_families, outside=~inside[is_own])
            basis = self._basis(name, test, rules)
            bases.append(basis)
            table.loc[is_own & inside, ["basis", "warning"]] = basis.verdict, basis.reason
            if test and test.rejected:
                scored[is_own] = False
        if scored.any():
            column = score(np.flatnonzero(scored).tolist())[self.calibration.score]
            table.loc[scored, "score"] = column
            # without a basis a text has a score and a rank, but no p-value
            judged = (table["basis"] != "").to_numpy()
            scores = column[judged[scored]]
            p_values = self._p_values(scores, texts[judged], sources[judged])
            called = p_values <= rules.fpr + TOLERANCE
            table.loc[judged, "p_value"] = p_values
            table.loc[judged, "verdict"] = np.where(called, MEMBER, NOT_SHOWN)
            table.loc[judged, "selected"] = discoveries(
                p_values, family[judged].tolist(), fdr=rules.fdr, storey=rules.storey
            )
        table["rank"] = table["score"].rank(ascending=False, method="min").astype("Int64")
        return Verdicts(table, bases, family, rules)

    def called(self, scores: pd.DataFrame, fpr: float) -> pd.DataFrame:
        """The rows of a table like scores.parquet on whose sources verdicts are given, with a column `called`.

        Texts of another source would count as not called.
        """
        calibration = self.calibration
        sources = calibration.judging(list(scores.get("source", [""] * len(scores))))
        of_source = scores.assign(source=sources)
        # Verdicts are refused on texts of other sources, which would lower the share.
        judged = of_source[of_source["source"].isin(calibration.judged_at(fpr))]
        columns = (judged[name].to_numpy() for name in (str(calibration.score), "text", "source"))
        return judged.assign(called=self._p_values(*columns) <= fpr + TOLERANCE)

    def _p_values(self, scores: FloatArray, texts: NDArray[Any], sources: NDArray[np.str_]) -> FloatArray:
        """(N,) largest p-value of each score: of non-members, of the model's own texts, beside what its base knew."""
        reference = self.calibration.reference
        p_values = self.calibration.p_values(scores, sources.tolist())
        # Each of these is valid, and so is the largest of them.
        for name in dict.fromkeys(sources.tolist()):
            is_own = sources == name
            further = reference.beyond_own(name, scores[is_own])
            if self._typicality and reference.earlier.scores:
                typicality = self._typicality(texts[is_own].tolist())
                further = np.maximum(further, reference.beside_known(name, scores[is_own], typicality))
            p_values[is_own] = np.maximum(p_values[is_own], further)
        return p_values

    def _basis(self, name: str, test: Exchangeability | None, rules: Rules) -> Basis:
        """Whether something shows that the rate holds for the texts of a source: tests that can refuse, or the user."""
        if test is None:
            return Basis(name, reason=self.unknown(name))
        if test.rejected:
            p = f"p = {test.p:.2g}" if test.p >= 0.001 else "p < .001"
            reason = f"the texts together are not exchangeable with the benchmark's non-members ({p})"
            return Basis(name, reason=reason, test=test)
        contradiction = self.calibration.of(name).contradiction(rules.fpr)
        if contradiction:
            return Basis(name, reason=contradiction, test=test)
        lacking = self._lacking(test)
        if not lacking:
            return Basis(name, TESTED, test=test)
        if rules.same_source:
            return Basis(name, ASSERTED, test=test)
        reason = f"{lacking}; --same-source asserts that they are of one source and kind"
        return Basis(name, reason=reason, test=test)

    def _lacking(self, test: Exchangeability) -> str:
        """Why a test that did not refuse the texts shows nothing; "" if it shows that they are of one kind."""
        if not test.tested:
            return (
                f"fewer than {FEWEST} independent texts cannot be compared with the benchmark's non-members "
                f"(here {test.groups})"
            )
        if not self.calibration.reference.powerful:
            return "the domain check of this adapter was not shown to recognise texts of other kinds"
        return ""
