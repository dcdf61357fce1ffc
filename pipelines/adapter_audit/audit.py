"""Scores of fine-tuned model and base, what they measure on labelled texts, and verdicts on the others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fsd import tracking
from fsd.data.documents import Document, content_hash
from fsd.data.near_duplicates import families
from fsd.data.splitting import Split
from fsd.errors import UsageError
from fsd.evaluation.audit import Audit, audit
from fsd.evaluation.calibration import Calibration, calibrate
from fsd.evaluation.domain_check import power
from fsd.evaluation.results import evaluate, reference_of
from fsd.evaluation.verdicts import ASSERTED, MEMBER, Judge, Rules
from fsd.models import language_model
from fsd.models.adapters import attach
from fsd.models.language_model import BaseIdentity
from fsd.scoring import deviation
from fsd.scoring.deviation import Deviation
from fsd.scoring.scorers import build_scorers
from fsd.scoring.token_frequencies import fingerprint
from fsd.token_stats import Scorer, Scores
from fsd.views import Detector, usable
from pipelines.adapter_audit.config import AuditConfig
from pipelines.common.adapter_files import AUDITED
from pipelines.common.detection import cheap, load_detectors

FOUND = "in the fine-tuning data"


@dataclass(frozen=True)
class AuditResults:
    """What an audit measured.

    Attributes:
        parts: validation and test texts; no unseen ones.
        judged: the texts without a label.
        scores: one row per text, the judged ones last, with `<detector>.base`, `.tuned` and `.calibrated`.
        table: one row per number, with the states "tuned" and "calibrated".
        audit: what separates the two sides without the model.
        detectors: those that were scored.
        calibration: of the detector that was best on validation.
        remarks: detectors that were left out.
    """

    parts: Split
    judged: Sequence[Document]
    scores: pd.DataFrame
    table: pd.DataFrame
    audit: Audit
    detectors: Sequence[Detector]
    calibration: Calibration
    remarks: Sequence[str]


def load(config: AuditConfig) -> tuple[dict[str, Scorer], str, BaseIdentity]:
    """Scorers of the base and the fine-tuned model, the name of the latter, and the identity of the base.

    Raises:
        UsageError: if a model cannot be loaded, the adapter is of another base, or the tokenizers differ.
    """
    adapter = tracking.fetch_adapter(config.adapter) if config.adapter else None
    base = language_model.load(config.model)
    if adapter:
        attach(base, adapter)
        return build_scorers(base, config.model), str(config.adapter), base.identity
    tuned = language_model.load(config.model, model=config.tuned, revision=None)
    if fingerprint(base.tokenizer) != fingerprint(tuned.tokenizer):
        raise UsageError(f"tuned must have the tokenizer of its base {config.model.model}; {config.tuned} has another")
    built = build_scorers(base, config.model)
    tuned_scorer = build_scorers(tuned, config.model)["base"]
    return {**built, "tuned": tuned_scorer}, str(config.tuned), base.identity


def judge(parts: Split, judged: Sequence[Document], scorers: dict[str, Scorer], config: AuditConfig) -> AuditResults:
    """Score all texts, measure on the test texts, calibrate on validation, and give p-values to the others.

    The score of a text by a detector S is S(fine-tuned) − S(base): fine-tuning raises S of what it read.
    """
    requested = load_detectors(config.detection)
    plain = [detector.name for detector in cheap(requested) if not detector.paired]
    excluded = {d.name: "an audit compares plain scores" for d in requested if d.name not in plain}
    documents = [*parts.validation, *parts.test, *judged]
    texts = [document.text for document in documents]
    strict = config.detection.detectors != "all"
    computable, left_out = usable(requested, texts, scorers, excluded=excluded, strict=strict, use="used in an audit")
    scored = deviation.evaluate(texts, computable, scorers, shown=True)
    calibrated = calibrated_scores(scored)
    held, labelled = len(parts.validation), len(parts.validation) + len(parts.test)
    family = families([*parts.validation, *parts.test])
    member = [bool(document.member) for document in documents[:labelled]]
    states = {"base": scored.tuned, "fsd": calibrated}  # `evaluate` compares the second with the first
    test = slice(held, labelled)
    frame = pd.DataFrame({f"{name}.{state}": of[name][test] for state, of in states.items() for name in of})
    table = evaluate(frame, member[held:], family[held:], states=("base", "fsd"), seed=config.seed)
    table["state"] = table["state"].replace({"base": "tuned", "fsd": "calibrated"})
    reference = reference_of(parts)
    calibration = calibrate(
        member[:held],
        {name: column[:held] for name, column in calibrated.items()},
        family[:held],
        reference=replace(reference, power=power(reference)),
        collections=[document.collection for document in parts.validation],
        state=AUDITED,
        settings={detector.name: detector.settings for detector in computable},
    )
    scores, remarks = score_table(parts, judged, scored, calibration, config.fpr, same_source=config.same_source)
    return AuditResults(
        parts=parts,
        judged=judged,
        scores=scores,
        table=table,
        audit=audit(parts, seed=config.seed),
        detectors=computable,
        calibration=calibration,
        remarks=[*remarks, *(f"{name} left out: {reason}" for name, reason in left_out.items())],
    )


def calibrated_scores(scored: Deviation) -> Scores:
    """Detector → (N,) fine-tuned minus base score, which is minus the FSD."""
    return {name: -column for name, column in scored.fsd.items()}


def score_table(
    parts: Split,
    judged: Sequence[Document],
    scored: Deviation,
    calibration: Calibration,
    fpr: float,
    *,
    same_source: bool,
) -> tuple[pd.DataFrame, list[str]]:
    """One row per text: id, text, label, group, split, scores, and for the judged texts p_value and verdict.

    Texts of which nothing shows that they are of the kind of the calibration texts get neither; the remarks say so.
    """
    sides = {"validation": parts.validation, "test": parts.test, "judged": judged}
    documents = [document for side in sides.values() for document in side]
    table = pd.DataFrame(
        {
            "id": [content_hash(document.text)[:16] for document in documents],
            "text": [document.text for document in documents],
            "label": pd.array([None if d.member is None else int(d.member) for d in documents], dtype="Int64"),
            "group": [document.group for document in documents],
            "split": [name for name, side in sides.items() for _ in side],
        }
    )
    calibrated = calibrated_scores(scored)
    for name, column in calibrated.items():
        table[f"{name}.base"], table[f"{name}.tuned"] = scored.base[name], scored.tuned[name]
        table[f"{name}.calibrated"] = column
    p = np.full(len(documents), np.nan)
    verdicts: list[str | None] = [None] * (len(documents) - len(judged))
    remarks = []
    if judged:
        first = len(verdicts)
        found = Judge(calibration).classify(
            judged,
            lambda at: {name: column[[first + n for n in at]] for name, column in calibrated.items()},
            Rules(fpr, same_source=same_source),
        )
        p[first:] = found.table["p_value"]
        verdicts += [FOUND if verdict == MEMBER else str(verdict) for verdict in found.table["verdict"]]
        remarks += [f"no verdicts: {basis.reason}" for basis in found.bases if basis.reason]
        remarks += [f"verdicts are {ASSERTED}" for basis in found.bases if basis.verdict == ASSERTED]
    return table.assign(p_value=p, verdict=pd.array(verdicts, dtype="string")), remarks
