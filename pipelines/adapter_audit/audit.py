"""Scores of fine-tuned model and base, what they measure on labelled texts, and verdicts on the others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fsd import tracking
from fsd.data.documents import Document, content_hash
from fsd.data.near_duplicates import families, refuse_contradictions
from fsd.data.readers import parse_columns, read_files
from fsd.data.splitting import Split, split_labelled
from fsd.errors import UsageError
from fsd.evaluation import results
from fsd.evaluation.calibration import Calibration
from fsd.evaluation.domain_check import power
from fsd.evaluation.results import Results
from fsd.evaluation.sentences import AuditSummary
from fsd.evaluation.verdicts import ASSERTED, MEMBER, Judge, Rules
from fsd.models import language_model
from fsd.models.adapters import attach
from fsd.models.language_model import BaseIdentity
from fsd.scoring import deviation
from fsd.scoring.deviation import Deviation
from fsd.scoring.model import build_scorers
from fsd.scoring.token_frequencies import fingerprint
from fsd.token_stats import Scorer
from fsd.views import Detector, usable
from pipelines.adapter_audit.config import AuditConfig
from pipelines.common.adapter_files import AUDITED
from pipelines.common.experiment import cheap, load_detectors

FOUND = "in the fine-tuning data"


@dataclass(frozen=True)
class AuditResults:
    """What an audit measured.

    Attributes:
        results: of the labelled texts, with the scores of the fine-tuned model as "base", and fine-tuned minus base
            score as "fsd".
        calibration: of the detector that was best on validation.
        judged: the texts without a label.
        scores: one row per text, the judged ones last, with `<detector>.base`, `.tuned` and `.calibrated`.
        detectors: those that were scored.
        remarks: detectors that were left out, and what verdicts rest on.
    """

    results: Results
    calibration: Calibration
    judged: Sequence[Document]
    scores: pd.DataFrame
    detectors: Sequence[Detector]
    remarks: Sequence[str]

    @property
    def table(self) -> pd.DataFrame:
        """One row per number, with the states "tuned" and "calibrated"."""
        table = self.results.table[~self.results.table["metric"].isin(("accuracy", "validation_auc"))]
        return table.assign(state=table["state"].replace({"base": "tuned", "fsd": AUDITED})).reset_index(drop=True)

    @property
    def summary(self) -> AuditSummary:
        """How well the best detector and a blind classifier separate the labelled texts."""
        return replace(self.results.audit_summary, state=AUDITED)


def read(config: AuditConfig) -> tuple[Split, list[Document]]:
    """The labelled texts in two parts, by family, and the texts to be judged.

    Raises:
        UsageError: unless there are data, one fine-tuned model, and shares between 0 and 1; if a file cannot be read, a
            class is missing or too small, or a text to be judged is also labelled.
    """
    if not config.data:
        raise UsageError("data must be given, files with labelled texts (or --demo); got none")
    if (config.adapter is None) == (config.tuned is None):
        given = "both" if config.adapter else "none"
        raise UsageError(f"the fine-tuned model must be given by either --adapter or --tuned; got {given}")
    for name in ("validation", "fpr"):
        if not 0 < getattr(config, name) < 1:
            raise UsageError(f"{name} must be above 0 and below 1; got {getattr(config, name):g}")
    documents = read_files(config.data, parse_columns(config.columns))
    labelled = [document for document in documents if document.member is not None]
    judged = [document for document in documents if document.member is None]
    known = {document.text for document in labelled}
    both = next((document for document in judged if document.text in known), None)
    if both:
        raise UsageError(f"a text to be judged must not be labelled elsewhere; {both.source} is")
    refuse_contradictions(labelled)
    parts = split_labelled(labelled, validation=config.validation, seed=config.seed)
    groups = len(set(families([document for document in parts.validation if not document.member])))
    if judged and config.fpr < 1 / (groups + 1):
        raise UsageError(
            f"fpr must be at least {1 / (groups + 1):.4g} = 1/({groups}+1), with {groups} families of other texts in "
            f"validation; got {config.fpr:g}"
        )
    return parts, judged


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
    scorers = {**build_scorers(base, config.model), "tuned": build_scorers(tuned, config.model)["base"]}
    return scorers, str(config.tuned), base.identity


def judge(parts: Split, judged: Sequence[Document], scorers: dict[str, Scorer], config: AuditConfig) -> AuditResults:
    """Score all texts, measure on the test texts, calibrate on validation, and give verdicts on the others.

    The score of a text by a detector S is S(fine-tuned) − S(base), minus its FSD: fine-tuning raises S of what it is
    trained on.
    """
    requested = load_detectors(config.detection)
    plain = [detector.name for detector in cheap(requested) if not detector.paired]
    excluded = {d.name: "an audit compares plain scores" for d in requested if d.name not in plain}
    sides = {"validation": parts.validation, "test": parts.test, "judged": judged}
    documents = [document for side in sides.values() for document in side]
    texts, strict = [document.text for document in documents], config.detection.detectors != "all"
    computable, left_out = usable(requested, texts, scorers, excluded=excluded, strict=strict, use="used in an audit")
    scored = deviation.evaluate(texts, computable, scorers, shown=True)
    calibrated = {name: -column for name, column in scored.fsd.items()}
    labelled = len(documents) - len(judged)
    compared = Deviation(
        base={name: scored.tuned[name][:labelled] for name in calibrated},
        fsd={name: column[:labelled] for name, column in calibrated.items()},
    )
    measured = results.judge(parts, compared, None, computable, seed=config.seed)
    assert measured.calibration is not None  # the share of validation is above 0
    reference = replace(measured.calibration.reference, power=power(measured.calibration.reference))
    calibration = replace(measured.calibration, state=AUDITED, reference=reference)
    columns = {
        f"{name}.{state}": of[name]
        for name in calibrated
        for state, of in (("base", scored.base), ("tuned", scored.tuned), (AUDITED, calibrated))
    }
    scores = pd.DataFrame(
        {
            "id": [content_hash(document.text)[:16] for document in documents],
            "text": texts,
            "label": pd.array([None if d.member is None else int(d.member) for d in documents], dtype="Int64"),
            "group": [document.group for document in documents],
            "split": [name for name, side in sides.items() for _ in side],
            **columns,
            "p_value": np.nan,
            "verdict": pd.array([None] * len(documents), dtype="string"),
        }
    )
    remarks = []
    if judged:
        found = Judge(calibration).classify(
            judged,
            lambda at: {name: column[[labelled + n for n in at]] for name, column in calibrated.items()},
            Rules(config.fpr, same_source=config.same_source),
        )
        verdicts = found.table["verdict"].replace(MEMBER, FOUND)
        scores.loc[labelled:, ["p_value", "verdict"]] = np.stack([found.table["p_value"], verdicts], axis=1)
        remarks += [f"no verdicts: {basis.reason}" for basis in found.bases if basis.reason]
        remarks += [f"verdicts are {ASSERTED}" for basis in found.bases if basis.verdict == ASSERTED]
    remarks += [f"{name} left out: {reason}" for name, reason in left_out.items()]
    return AuditResults(measured, calibration, judged, scores, computable, remarks)
