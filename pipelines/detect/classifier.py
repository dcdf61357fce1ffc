"""Membership classifier: base model, adapter, detector and calibration of a finished run, applied to new texts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pandas as pd

import detectors
from fsd import tracking
from fsd.config import ModelConfig
from fsd.data.corpus import Corpus, as_corpus
from fsd.data.documents import Document, Documents, content_hash
from fsd.data.near_duplicates import NGRAM, ngrams, words
from fsd.data.readers import read_files
from fsd.errors import UsageError, quoted
from fsd.evaluation.answer import AuditSummary
from fsd.files import read_json
from fsd.models.adapters import check_adapter, check_base, check_unloaded
from fsd.scores import BASE, IN_AUDIT
from fsd.scoring.deviation import ScoreTable, score_texts
from fsd.scoring.model import Model, open_model
from fsd.scoring.model_checks import check_model
from fsd.scoring.scorers import TABLE, hidden_state_reader
from fsd.token_stats import Prompt
from fsd.verdicts.calibration import VERSION, Calibration
from fsd.verdicts.verdicts import Rules, VerdictMaker, Verdicts
from fsd.views import Detector
from pipelines.command.output import text_table
from pipelines.command.workers import Worker, identity, table_by_documents
from pipelines.experiment.adapter_files import (
    AUDIT,
    CALIBRATION,
    FILES,
    REFERENCE,
    SETUP,
    TEMPLATE,
    UNSEEN,
    Setup,
    served_columns,
    setup_in,
)
from pipelines.experiment.detector_settings import cheap, for_adapter_audit

TRAINED_OVERLAP = 0.2
"""A text counts as trained on if at least this share of its 7-grams occurs in the adapter's training texts."""
TRAINED = "the adapter itself was trained on this text or large parts of it"
"""Why a text that counts as trained on gets no verdict: its score reflects fine-tuning."""
Ngram = tuple[str, ...]


class CalibratedAdapter:
    """An adapter with the files that decide its verdicts, before its base model is opened.

    `uri` names the adapter: models:/name@alias, models:/name/version, runs:/id or a folder; `overrides` are settings of
    the base model that differ from those of the run: model (its location), device, dtype. None keeps that of the run.

    Raises:
        UsageError: if there is no such adapter, it has no calibration or one by a detector that needs known members, or
            its audit says that a blind classifier explains the results on its benchmark or that the labels do not hold.
    """

    def __init__(self, uri: str, **overrides: Any) -> None:
        self.adapter = tracking.fetch_adapter(uri)
        self.files: dict[str, Path] = {}
        for name in FILES:
            path = tracking.fetch_model_file(uri, name)
            if path:
                self.files[name] = path
        self.audit = _audit_in(self.files)
        # refused by the audit first: a calibration would not help an adapter whose benchmark shows nothing
        _require(self.files, CALIBRATION, SETUP)
        self.calibration = read_json(Calibration, self.files[CALIBRATION], f"a calibration of version {VERSION}")
        self.audited = self.calibration.state in IN_AUDIT
        if not self.audited:
            _require(self.files, UNSEEN)
        self.columns = served_columns(self.calibration)
        self.setup = setup_in(self.files[SETUP])
        self.config = _model_config(self.setup, self.files.get(TABLE), overrides, self.files.get(TEMPLATE))
        self.detector = self._load_detector()

    def _load_detector(self) -> Detector:
        """The detector of the calibration."""
        detector = detectors.load(self.calibration.detector, **self.calibration.settings)
        if detector.needs_labels:
            raise UsageError(
                "adapter must be calibrated by a detector that needs no known members, which detect has not; this one "
                f"is by {detector.name}: run again with other --detectors"
            )
        if self.audited:
            (detector,) = for_adapter_audit([detector])
        return detector

    def check(self, fpr: float, documents: Documents = ()) -> None:
        """Refuse a damaged adapter, a base model that is none or another, and a rate or rows that are not supported."""
        self.calibration.threshold_at(fpr)
        self.check_read_as(documents)
        check_model(self.config)
        check_unloaded(self.adapter, self.config.model, self.config.revision)

    def check_read_as(self, documents: Documents) -> None:
        """Refuse a row that is read as none of the calibration was, as its score can be compared with none of them."""
        calibrated = self.calibration.reference.read_as
        # That of an earlier release does not tell.
        if not calibrated:
            return
        for document in documents:
            if document.read_as not in calibrated:
                raise UsageError(
                    f"{document.origin}: a row must be a {' or a '.join(calibrated)}, as those that the adapter was "
                    f"calibrated on; it is a {document.read_as}"
                )


class MembershipClassifier(CalibratedAdapter):
    """Scores and verdicts by the score that was best on validation, with the calibration made there.

    Arguments and errors are those of `CalibratedAdapter`; also a UsageError if the base model cannot be loaded or
    differs.
    """

    def __init__(self, uri: str, **overrides: Any) -> None:
        super().__init__(uri, **overrides)
        self.score_title = self.calibration.score.title(paired=self.detector.paired)
        # an audited adapter comes without the texts that it was trained on: they are the question
        unseen = Corpus()
        if UNSEEN in self.files:
            unseen = Corpus(read_files([self.files[UNSEEN]], answers=True))
        self.unseen = unseen.texts
        self._trained = set().union(*map(_ngrams, self.unseen))
        self.model = self._open(self.adapter)
        if self.audited:
            self.model = self.model.audited()
        self.language_model = self.model.language_model
        states = hidden_state_reader(self.language_model, self.config)
        self.verdict_maker = VerdictMaker(self.calibration, states, self.model.typicality)
        learned = [document.prompt for document in unseen if content_hash(document.text) in self.setup.adapting]
        self.inputs = self.model.inputs(unseen.prompts, shots=self.setup.shots, adapting=learned)
        # A server answers each request in a thread of its own; the adapter is on or off for all of them.
        self._in_use = Lock()

    def _open(self, adapter: Path) -> Model:
        """The model with the adapter; without it where the score is one of the base model."""
        open_with = partial(open_model, self.config, reference_adapter=adapter / REFERENCE, seed=self.setup.seed)
        if self.calibration.state != BASE:
            return open_with(adapter=adapter)
        # the adapter still tells which base the calibration is of
        check_adapter(adapter)
        model = open_with()
        check_base(model.language_model.identity, adapter)
        return model

    def scores(self, texts: Sequence[str | Prompt], *, every: bool = False) -> ScoreTable:
        """(N,) scores, higher = more likely a member, of the calibration, or of `every` cheap detector."""
        chosen = [self.detector]
        if every:
            of_run = [detectors.load(name, **settings) for name, settings in self.setup.detectors.items()]
            suitable = for_adapter_audit(of_run) if self.audited else cheap(of_run)
            # these texts may lack what a detector of the run needs
            chosen = self.model.plan(suitable, texts, self.inputs).detectors or chosen
        scored = score_texts(self.model.prompts(texts), chosen, self.model.scorers, self.inputs)
        if self.audited:
            return scored.in_audit()
        return scored

    def _excluded(self, documents: Documents) -> list[str]:
        """(N,) reason why a text says nothing, whatever it is like: its score reflects fine-tuning; "" if it does."""
        reasons = []
        for document in documents:
            of_text = _ngrams(document.text)
            trained = len(of_text & self._trained) >= TRAINED_OVERLAP * len(of_text)
            reasons.append(TRAINED if trained else "")
        return reasons

    def left_out(self, documents: Documents) -> list[str]:
        """(N,) reason why no verdict can be given on a text, whatever the others are; "" if one can."""
        trained = self._excluded(documents)
        outside = self.verdict_maker.outside(documents, as_corpus(documents).family.tolist())
        unknown = map(self.verdict_maker.unknown, self.verdict_maker.sources(documents))
        return [next(filter(None, reasons), "") for reasons in zip(trained, outside, unknown, strict=True)]

    def classify(self, documents: Documents, rules: Rules) -> Verdicts:
        """Classify N ≥ 1 texts as members or not, where something shows that the error rate holds for them.

        A UsageError if there is no text, a text is blank, or the calibration does not support the rates.
        """
        if not documents:
            raise UsageError("at least one text must be given; got none")
        for row, document in enumerate(documents):
            if not isinstance(document.text, str) or not document.text.strip():
                raise UsageError(f"text must be a string that is not blank; got {quoted(document.text)} in row {row}")
        self.verdict_maker.check_rates(documents, rules)
        prompts = as_corpus(documents).prompts
        with self._in_use:
            excluded = self._excluded(documents)
            return self.verdict_maker.classify(
                documents, lambda rows: self.scores([prompts[row] for row in rows]).columns, rules, excluded=excluded
            )

    def verdicts(self, texts: Sequence[str | Document], **rules: Any) -> pd.DataFrame:
        """The table of `classify` by the `Rules` given: N rows, with the score that was chosen on validation."""
        documents = []
        for text in texts:
            document = text if isinstance(text, Document) else Document(text)
            documents.append(document)
        self.check_read_as(documents)
        return self.classify(documents, Rules(**rules)).table


def open_worker(config: Any) -> Worker:
    """What judges the shards of an output folder, each by itself; ranks and selections would be of all texts."""
    classifier = MembershipClassifier(config.adapter, model=config.model, device=config.device, cache="none")
    classifier.calibration.threshold_at(config.fpr)
    rules = Rules(config.fpr, config.fdr, config.storey, config.same_source)

    def table(documents: list[Document]) -> pd.DataFrame:
        verdicts = classifier.classify(documents, rules).table.drop(columns=["rank", "selected"])
        return text_table(documents, "source", "text", "label").join(verdicts)

    made_by = identity(classifier.language_model, classifier.files[CALIBRATION], classifier.files[SETUP])
    return Worker(made_by, table_by_documents(config, table, classifier.check_read_as))


def _audit_in(files: Mapping[str, Path]) -> AuditSummary | None:
    """The summary of the adapter's audit, if it has one; an error if the audit speaks against the adapter."""
    if AUDIT not in files:
        return None
    audit = read_json(AuditSummary, files[AUDIT], "the summary of an audit")
    if audit.void:
        raise UsageError(f"adapter must come from a benchmark that can show membership; {audit.sentence}")
    if audit.state in IN_AUDIT and audit.base is None:
        raise UsageError(
            "adapter must come from an audit in which its base model is a control; this one has none: audit it again "
            "with fsd adapter-audit"
        )
    return audit


def _require(files: Mapping[str, Path], *names: str) -> None:
    for name in names:
        if name not in files:
            raise UsageError(
                f"adapter must come with a calibration ({CALIBRATION}, {SETUP}, {UNSEEN}), which fsd run makes "
                f"from validation texts; this one has no {name}"
            )


def _model_config(
    setup: Setup, table: Path | None, overrides: Mapping[str, Any], template: Path | None = None
) -> ModelConfig:
    """The model settings of the run with the overrides; a base model in a local folder must still exist."""
    changes = {name: value for name, value in overrides.items() if value is not None}
    # the file may come from somebody else, who does not choose which files of this machine are read or written
    of_run = replace(setup.model, cache=None, frequencies=None, chat_template=None)
    config = replace(of_run, **changes)
    is_missing = setup.folder and not Path(config.model).expanduser().is_dir()
    if is_missing and "model" not in changes:
        raise UsageError(
            f"base model must be in the folder {config.model!r}, as when the adapter was trained; there is none in "
            f"{Path.cwd()}: name its location with --model FOLDER, or serving_model when MLflow serves the model"
        )
    if table:
        config = replace(config, frequencies=str(table))
    if template:
        config = replace(config, chat_template=str(template))
    return config


def _ngrams(text: str) -> set[Ngram]:
    """Distinct n-grams of `NGRAM` words; a shorter text is a single n-gram."""
    return ngrams(text, NGRAM) or {tuple(words(text) or [text])}
