"""The audit of a fine-tuned model: its scores beside those of the base, measured, calibrated and registered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from extensions.adapter_audit import preferences
from extensions.adapter_audit.settings import AuditConfig
from fsd.api import MEMBER_VERDICT as MEMBER
from fsd.api import (
    NOT_SHOWN,
    Answer,
    AuditSummary,
    Calibration,
    CleaningConfig,
    Corpus,
    Detector,
    DetectorConfig,
    Document,
    Earlier,
    Model,
    Prompt,
    Read,
    Results,
    Rules,
    ScoreTable,
    ScoringPlan,
    Split,
    UsageError,
    VerdictMaker,
    Verdicts,
    check_level,
    hidden_states,
    own_texts,
    parse_columns,
    read_files,
    read_rows,
    refuse_contradictions,
    results,
    split_labelled,
    trial,
)
from pipelines.api import calibrated_scores, for_adapter_audit, load_detectors, read_side

FOUND = "in the fine-tuning data"
# Asks the base alone, where none of the detectors that are asked for does.
BASE_DETECTOR = "loss"


class Inputs(NamedTuple):
    """The labelled texts in two parts, by family, and the texts to be judged.

    Of pairs of answers these are the chosen ones, and `rejected` has the others, by text.
    """

    parts: Split
    judged: Corpus = Corpus()
    rejected: Mapping[str, Prompt] = {}

    @property
    def documents(self) -> Corpus:
        """All texts in the order in which they are scored."""
        return Corpus([*self.parts.judged, *self.judged])

    def plan(self, model: Model, detection: DetectorConfig) -> ScoringPlan:
        """The scoring by the detectors that compare two models; one that reads the base alone is added as a control."""
        documents = self.documents
        if self.rejected:
            rejected = [self.rejected[text] for text in documents.texts]
            return model.plan([preferences.ANSWER], documents.prompts + rejected)
        requested = load_detectors(detection)
        if all(detector.paired for detector in for_adapter_audit(requested)):
            requested += load_detectors(DetectorConfig(detectors=BASE_DETECTOR))
        comparable = {detector.name: detector for detector in for_adapter_audit(requested)}
        detectors = []
        excluded = {}
        for detector in requested:
            detectors.append(comparable.get(detector.name, detector))
            if detector.name not in comparable:
                excluded[detector.name] = "an audit compares plain scores"
        return model.plan(
            detectors, documents.prompts, excluded=excluded, strict=detection.named, use="used in an audit"
        )

    def score(self, plan: ScoringPlan, detection: DetectorConfig) -> tuple[ScoreTable, Sequence[Detector]]:
        """The scores by the detectors that were asked for, and all that the base gives."""
        scored = plan.score()
        if self.rejected:
            return preferences.of_pairs(scored), preferences.DETECTORS
        asked = {detector.name for detector in load_detectors(detection)}
        columns = {
            score: column
            for score, column in scored.columns.items()
            if score.state == "base" or score.detector in asked
        }
        return replace(scored, columns=columns), [detector for detector in plan.detectors if detector.name in asked]


def texts_of(config: AuditConfig) -> Inputs:
    """Read the texts, and check them and the settings."""
    _check(config)
    documents, rejected = _read(config)
    # Corpora of their own: a text without a label says nothing about how to split the others.
    labelled = Corpus(document for document in documents if document.member is not None)
    judged = Corpus(document for document in documents if document.member is None)
    labelled_texts = set(labelled.texts)
    for document in judged:
        if document.text in labelled_texts:
            raise UsageError(f"a text to be judged must not be labelled elsewhere; {document.origin_url} is")
    # a text labelled both 1 and 0 would be on both sides of the measurement
    refuse_contradictions(labelled)
    parts = split_labelled(labelled, validation=config.validation, seed=config.seed)
    # refused before anything is scored: the calibration would refuse the rate, but only at the end
    groups = len(set(parts.test.family[~parts.test.members].tolist()))
    lowest = 1 / (groups + 1)
    if judged and config.fpr < lowest:
        raise UsageError(
            f"fpr must be at least {lowest:.4g} = 1/({groups}+1), with {groups} families of other texts in "
            f"the test; got {config.fpr:g}"
        )
    return Inputs(parts, judged, rejected)


def _read(config: AuditConfig) -> preferences.Pairs:
    """The texts, or the pairs of preference data."""
    columns = parse_columns(config.columns, answers=True)
    documents: list[Document] = []
    if config.members or config.nonmembers:
        for side, places in (("members", config.members), ("nonmembers", config.nonmembers)):
            documents += read_side(side, places, config.columns, CleaningConfig())[0]
    elif preferences.are_pairs(read_rows(config.data)):
        if config.detection.named:
            raise UsageError(
                "detectors must not be named for preference data, which are scored by the ratios of their answers; got "
                f"{config.detection.detectors}"
            )
        return preferences.read_pairs(read_rows(config.data), columns)
    # Beside files of one side, rows without a label are judged.
    if config.data:
        documents += read_files(config.data, columns, answers=True)
    return documents, {}


def _check(config: AuditConfig) -> None:
    if not config.places:
        raise UsageError("data must be given, files with labelled texts (or --demo); got none")
    if (config.adapter is None) == (config.tuned is None):
        named = "both" if config.adapter else "none"
        raise UsageError(f"the fine-tuned model must be given by either --adapter or --tuned; got {named}")
    check_level("validation", config.validation)
    check_level("fpr", config.fpr)


@dataclass(frozen=True)
class Audit:
    """What an audit measured; its scores are of the fine-tuned model, and calibrated ones: fine-tuned minus base."""

    results: Results
    detectors: Sequence[Detector]
    found: pd.DataFrame  # fine-tuning texts of the test, and whether each is called
    scores: pd.DataFrame
    verdicts: Verdicts | None  # on the texts without a label; None without such texts

    @property
    def table(self) -> pd.DataFrame:
        """One row per number."""
        table = self.results.table
        return table[~table["metric"].isin(("accuracy", "validation_auc"))].reset_index(drop=True)

    @property
    def calibration(self) -> Calibration:
        """That of the best score."""
        assert self.results.calibration is not None  # the share of validation is above 0
        return self.results.calibration

    @cached_property
    def summary(self) -> AuditSummary:
        """How well the best detector and a blind classifier separate the labelled texts."""
        return Answer(self.results).audit

    @property
    def calls(self) -> tuple[int, int]:
        """The texts without a label that are called fine-tuning data, and all that are judged."""
        if self.verdicts is None:
            return 0, 0
        return self.verdicts.count(MEMBER), self.verdicts.count(MEMBER, NOT_SHOWN)


def measure(inputs: Inputs, model: Model, config: AuditConfig) -> Audit:
    """Score all texts by both models, choose on validation, measure and calibrate on test, judge the others.

    The model is an audited one, see `fsd.scoring.model.Model.audited`.
    """
    parts = inputs.parts
    plan = inputs.plan(model, config.detection)
    scored, detectors = inputs.score(plan, config.detection)
    labelled = slice(len(parts.judged))
    remarks = list(plan.remarks)
    if inputs.rejected:
        remarks.insert(0, f"{len(inputs.documents):,} {preferences.REMARK}")
    measured = results.compute_results(parts, scored.take(labelled), None, detectors, seed=config.seed)
    states = partial(hidden_states, model.language_model)
    calibration = _calibrated(measured, inputs, model, scored.take(labelled), states)
    measured = replace(measured, calibration=calibration, remarks=remarks)
    summary = Answer(measured).audit
    # as `detect` refuses the version that is registered of such an audit
    refusal = summary.sentence if summary.void else ""
    typicality = None if inputs.rejected else model.typicality
    maker = VerdictMaker(calibration, states, typicality, refusal=refusal)
    verdicts = None
    if inputs.judged:
        of_judged = scored.take(slice(labelled.stop, None))
        verdicts = maker.classify(
            inputs.judged, lambda rows: of_judged.take(rows).columns, Rules(config.fpr, same_source=config.same_source)
        )
    table = results.score_table(parts.replace(test=(*parts.test, *inputs.judged)), scored)
    # After their contexts, as verdicts read them.
    whole = table.assign(text=inputs.documents.wholes)[labelled]
    # By the same rules as verdicts: what is said to be found would be called.
    found = maker.called(whole[(whole["split"] == "test") & (whole["label"] == 1)], config.fpr)
    return Audit(measured, detectors, found, _with_verdicts(table, labelled.stop, verdicts), verdicts)


def _calibrated(measured: Results, inputs: Inputs, model: Model, scored: ScoreTable, states: Read) -> Calibration:
    """The calibration beside what the base makes of its non-members, whose domain check was tried.

    It is tried on texts that the fine-tuned model writes, too; pairs are two texts each, and have neither.
    """
    calibration = measured.calibration
    assert calibration is not None
    reference = calibration.reference
    if inputs.rejected:
        return replace(calibration, reference=trial(reference, states=states).added_to(reference))
    scores = dict(zip(inputs.parts.judged.wholes, scored.columns[calibration.score].tolist(), strict=True))
    typicality = map(tuple, model.typicality(reference.texts).tolist())
    write = partial(own_texts, model.fine_tuned, tuned=model.fine_tuned.adapted)
    reference = replace(
        reference, earlier=Earlier(model.earlier, tuple(typicality), tuple(map(scores.__getitem__, reference.texts)))
    )
    reference = trial(reference, states=states, typicality=model.typicality, write=write).added_to(reference)
    return replace(calibration, reference=reference.with_own_scores(partial(calibrated_scores, model, calibration)))


def _with_verdicts(table: pd.DataFrame, labelled: int, verdicts: Verdicts | None) -> pd.DataFrame:
    """The table of scores with p-values and verdicts of the texts after the labelled ones."""
    table = table.astype({"label": "Int64"}).assign(p_value=np.nan, verdict=None, warning="")
    table["verdict"] = table["verdict"].astype("string")
    if verdicts is not None:
        judged = table.index[labelled:]
        # a table of scores has labelled texts alone: it took those without a label for non-members of the test
        table.loc[judged, ["label", "split"]] = pd.NA, "judged"
        columns = ["p_value", "verdict", "warning"]
        table.loc[judged, columns] = verdicts.table[columns].replace({"verdict": {MEMBER: FOUND}}).to_numpy()
    return table
