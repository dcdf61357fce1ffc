"""What a run found, judged with controls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detectors import Detector
from fsd.data.documents import Document
from fsd.data.near_duplicates import families
from fsd.data.splitting import Split
from fsd.evaluation.audit import Audit, audit
from fsd.evaluation.calibration import Calibration, calibrate
from fsd.evaluation.conclusions import plain_words
from fsd.evaluation.metrics import Result, auc, best_threshold, table
from fsd.evaluation.placebo import Placebo, placebo_effect
from fsd.scoring.deviation import Deviation
from fsd.token_stats import FloatArray, Scores


@dataclass(frozen=True)
class Outcome:
    """All that a run found.

    Attributes:
        parts: the split; `deviation` holds its validation and then its test texts.
        deviation: base, tuned and FSD scores.
        groups: family of each scored text: what intervals resample as one.
        results: a row per detector, on the test texts.
        audit: leaks, blind baseline, shift between the sides.
        findings: what the numbers can support, in plain words.
        remarks: what else there is to say: detectors that were left out, and why.
        placebo: name of the placebo model and detector → FSD there.
        validation: detector → FSD AUC on validation; empty without one.
        best: the detector of the highest AUC on validation, else on test.
        calibration: of the best detector; None where validation has no non-members.
    """

    parts: Split
    deviation: Deviation
    groups: list[int]
    results: list[Result]
    audit: Audit
    findings: list[str]
    remarks: Sequence[str]
    placebo: tuple[str, dict[str, Placebo]] | None
    validation: dict[str, float]
    best: str
    calibration: Calibration | None

    @property
    def scored(self) -> list[Document]:
        """Validation and test texts, in the order of the scores."""
        return [*self.parts.validation, *self.parts.test]


def judge(
    parts: Split,
    deviation: Deviation,
    placebo: tuple[str, Deviation] | None,
    detectors: Sequence[Detector],
    *,
    seed: int,
    remarks: Sequence[str] = (),
    never_saw: bool = False,
) -> Outcome:
    """Numbers with intervals on the test texts, thresholds from validation, and every control beside them."""
    scored = [*parts.validation, *parts.test]
    member = np.array([bool(document.member) for document in scored])
    groups = families(scored)
    held = np.arange(len(scored)) < len(parts.validation)
    named = {f"{name}.base": column for name, column in deviation.base.items()}
    named |= {f"{name}.fsd": column for name, column in deviation.fsd.items()}
    chosen_on = held if held.any() else ~held
    tested = [group for group, h in zip(groups, held, strict=True) if not h]
    results = table(
        member[~held],
        _rows(deviation.base, ~held),
        _rows(deviation.fsd, ~held),
        tested,
        thresholds={name: best_threshold(member[chosen_on], column[chosen_on]) for name, column in named.items()},
        seed=seed,
    )
    validation = {n: auc(member[held], c[held]) for n, c in deviation.fsd.items()} if held.any() else {}
    best = max(validation, key=lambda n: validation[n]) if validation else max(results, key=_fsd_auc).detector
    sham = placebo and (
        placebo[0],
        placebo_effect(member[~held], _rows(placebo[1].fsd, ~held), _rows(deviation.fsd, ~held), tested, seed=seed),
    )
    report = audit(parts, seed=seed)
    settings = {detector.name: detector.settings for detector in detectors}
    return Outcome(
        parts,
        deviation,
        groups,
        results,
        report,
        plain_words(report, results, sham[1] if sham else None, never_saw=never_saw),
        tuple(remarks),
        sham,
        validation,
        best,
        _calibration(best, scored, groups, deviation.fsd[best], settings[best], held) if held.any() else None,
    )


def _fsd_auc(result: Result) -> float:
    return result.fsd.auc.value


def _rows(scores: Scores, keep: Any) -> Scores:
    return {name: column[keep] for name, column in scores.items()}


def _calibration(
    name: str, scored: list[Document], groups: list[int], column: FloatArray, settings: Mapping[str, Any], held: Any
) -> Calibration:
    texts = [document for document, h in zip(scored, held, strict=True) if h]
    return calibrate(
        [bool(document.member) for document in texts],
        column[held],
        [document.text for document in texts],
        [group for group, h in zip(groups, held, strict=True) if h],
        detector=name,
        settings=settings,
    )


def notes(outcome: Outcome) -> list[str]:
    """The findings, and whatever was left out or replaced along the way, a line each."""
    lines = list(outcome.findings)
    if not outcome.parts.validation:
        lines.append("no validation texts: accuracy is at the threshold that is best on the test texts themselves")
    lines += outcome.remarks
    total = len(outcome.scored)
    lines += [
        f"{name} fell back to {fallback} on {count} of {total} texts ({state} model)"
        for (name, state, fallback), count in sorted(outcome.deviation.fallbacks.items())
    ]
    return lines
