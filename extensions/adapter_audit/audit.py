"""The audit of a fine-tuned model: its scores beside those of the base, measured, calibrated and registered."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from extensions.adapter_audit.preferences import DETECTORS, Pair, are_pairs, prompts_of, read_pairs, score_pairs
from extensions.adapter_audit.settings import AuditConfig
from fsd import tracking
from fsd.config import AdapterConfig, CleaningConfig, DetectorConfig, ModelConfig
from fsd.data.corpus import Corpus, Split
from fsd.data.documents import Document, Documents, digest
from fsd.data.embedded import corpus
from fsd.data.near_duplicates import refuse_contradictions
from fsd.data.readers import parse_columns, read_files, read_rows
from fsd.data.reading import read_otherwise
from fsd.data.splitting import split_labelled
from fsd.errors import UsageError
from fsd.evaluation import results
from fsd.evaluation.answer import Answer, AuditSummary, asks_whether_reversed
from fsd.evaluation.findings import AGAINST, FOR, Finding, as_findings
from fsd.evaluation.results import Results, charted
from fsd.models.adapters import copy_adapter, on_your_word
from fsd.models.finetuning import finetune
from fsd.models.language_model import BaseIdentity
from fsd.reporting import figures
from fsd.reporting.report import Picture, Reader, Report, Section, Table, limits, numbers, p_value, plain, shown
from fsd.scores import BASE, IN_AUDIT, columns_of, of_state
from fsd.scoring.deviation import ScoreTable
from fsd.scoring.model import Model, open_model, outline
from fsd.scoring.model_scorer import hidden_states
from fsd.scoring.plan import ScoringPlan
from fsd.scoring.sampling import own_texts
from fsd.scoring.scorers import STATES
from fsd.statistics.intervals import observed_rate
from fsd.token_stats import Prompt
from fsd.tracking import Run, Version
from fsd.verdicts.calibration import Calibration
from fsd.verdicts.domain_check import Earlier, trial
from fsd.verdicts.domain_measures import Read
from fsd.verdicts.verdicts import MEMBER, NOT_SHOWN, OUT_OF_DOMAIN, Rules, VerdictMaker, Verdicts
from fsd.views import Detector
from pipelines.command import context, deliver, job
from pipelines.command.job import Job
from pipelines.command.output import check_table_path, write_table
from pipelines.experiment import adapter_files
from pipelines.experiment.detector_settings import calibrated_scores, for_adapter_audit, load_detectors, shots_of
from pipelines.experiment.examination import examination, show_demonstration
from pipelines.experiment.inputs import read_side
from pipelines.experiment.power_sentences import measured_power
from pipelines.experiment.verdict_sentences import basis_sentences, chance_sentence, power_sentences, rate_sentences

CONTROL = "the control is the base itself in place of the fine-tuned model: the same texts and labels, no training"
FOUND = "in the fine-tuning data"
# Asks the base alone, where none of the detectors that are asked for does.
BASE_DETECTOR = "loss"
HEADINGS = (
    "detector",
    "fine-tuned AUC\n[95 % CI]",
    "calibrated AUC\n[95 % CI]",
    "gain",
    "p (Holm)",
    "TPR@5%FPR",
    "TPR@1%FPR",
)


DEMO_TEXTS = job.Stated("100 embedded abstracts", {"texts": 100})


def prepare(config: AuditConfig) -> Job:
    """Read the texts, and check the settings: every text is scored by the base and by the fine-tuned model."""
    if config.demo:
        return Job(partial(demo, config.seed), {"texts": DEMO_TEXTS})
    parts, judged = texts_of(config)
    check_table_path(config.out, config.places)
    documents = parts.judged + judged
    texts = Corpus(documents).texts
    detectors = DETECTORS[:1] if _are_pairs(documents) else for_adapter_audit(_with_control(config.detection))
    plan = outline(config.model).plan(detectors, prompts_of(documents))
    sizes = {"validation": len(parts.validation), "test": len(parts.test), "to be judged": len(judged)}
    words = ", ".join(f"{size:,} {name}" for name, size in sizes.items())
    reads: dict[str, str] = {"texts": job.files(config.places, len(texts), f": {words}", **sizes)}
    reads["fine-tuned model"] = str(config.adapter or config.tuned)
    registered = None
    if config.adapter and not _are_pairs(documents):
        registered = "a registered adapter"
    work = partial(run, config, parts, judged)
    further = {}
    if config.tuned:
        further["tuned"] = config.tuned
    experiment = f"fsd-{config.domain}"
    return Job(
        work,
        reads,
        config.model,
        texts=texts,
        passes=plan.passes,
        writes=[registered, config.out],
        experiment=experiment,
        notes=[] if _are_pairs(documents) else [job.OWN_TEXTS],
        adapter=config.adapter,
        further=further,
        read=read_otherwise(documents),
    )


def texts_of(config: AuditConfig) -> tuple[Split, Corpus]:
    """The labelled texts in two parts, by family, and the texts to be judged."""
    _check(config)
    documents = _read(config)
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
    nonmembers = parts.test.take(~parts.test.members)
    groups = len(set(nonmembers.family.tolist()))
    lowest = 1 / (groups + 1)
    if judged and config.fpr < lowest:
        raise UsageError(
            f"fpr must be at least {lowest:.4g} = 1/({groups}+1), with {groups} families of other texts in "
            f"the test; got {config.fpr:g}"
        )
    return parts, judged


def _read(config: AuditConfig) -> Sequence[Document]:
    """The texts, or the pairs of preference data."""
    columns = parse_columns(config.columns, answers=True)
    if config.members or config.nonmembers:
        sides = [("members", config.members), ("nonmembers", config.nonmembers)]
        documents: list[Document] = []
        for side, files in sides:
            documents += read_side(side, files, config.columns, CleaningConfig())[0]
        # Rows without a label are judged.
        return documents + (read_files(config.data, columns, answers=True) if config.data else [])
    rows = read_rows(config.data)
    if not are_pairs(rows):
        return read_files(config.data, columns, answers=True)
    if config.detection.named:
        raise UsageError(
            "detectors must not be named for preference data, which are scored by the ratios of their answers; got "
            f"{config.detection.detectors}"
        )
    return list(read_pairs(rows, columns))


def _are_pairs(documents: Documents) -> bool:
    return all(isinstance(document, Pair) for document in documents)


def _check(config: AuditConfig) -> None:
    if not config.places:
        raise UsageError("data must be given, files with labelled texts (or --demo); got none")
    if (config.adapter is None) == (config.tuned is None):
        named = "both" if config.adapter else "none"
        raise UsageError(f"the fine-tuned model must be given by either --adapter or --tuned; got {named}")
    for name, share in (("validation", config.validation), ("fpr", config.fpr)):
        if not 0 < share < 1:
            raise UsageError(f"{name} must be above 0 and below 1; got {share:g}")


def run(config: AuditConfig, parts: Split, judged: Documents) -> None:
    """Load the models, score, judge, write, track and print."""
    with context.stage("model"):
        # Before the base is loaded, so that a wrong name is refused within a second.
        adapter = adapter_files.fetched(config.adapter)
        model = open_model(config.model, adapter=adapter, tuned=config.tuned).audited()
    name = str(config.adapter or config.tuned)
    with examination(config, "adapter audit", config.places, adapter=name) as tracked:
        with context.stage("scoring"):
            audit = measure(parts, judged, model, config)
        with context.stage("recording"):
            identity = model.language_model.identity
            result = _with_base(report(audit, config, name), identity, adapter)
            deliver.publish(result, tracked)
            write_table(audit.scores, config.out)
            # A model that was tuned as a whole is no adapter that could be registered, and `detect` reads no pairs.
            registered = config.adapter and not _are_pairs(parts.judged)
            version = register(tracked, audit, config, identity) if registered else None
        deliver.show(result, tracked, version)


@dataclass(frozen=True)
class Audit:
    """What an audit measured; its scores are of the fine-tuned model, and calibrated ones: fine-tuned minus base."""

    results: Results
    calibration: Calibration
    found: pd.DataFrame  # fine-tuning texts of the test, and whether each is called
    scores: pd.DataFrame
    detectors: Sequence[Detector]
    verdicts: Verdicts | None  # on the texts without a label; None without such texts
    remarks: Sequence[str]

    @property
    def table(self) -> pd.DataFrame:
        """One row per number."""
        table = self.results.table[~self.results.table["metric"].isin(("accuracy", "validation_auc"))]
        return table.reset_index(drop=True)

    @property
    def summary(self) -> AuditSummary:
        """How well the best detector and a blind classifier separate the labelled texts."""
        return Answer(self.results).audit


def measure(parts: Split, judged: Documents, model: Model, config: AuditConfig) -> Audit:
    """Score all texts by both models, choose on validation, measure and calibrate on test, judge the others.

    The model is an audited one, see `fsd.scoring.model.Model.audited`.
    """
    documents = [*parts.judged, *judged]
    labelled = len(documents) - len(judged)
    if _are_pairs(documents):
        detectors = DETECTORS
        scored, remarks = score_pairs(model, documents)
    else:
        plan = _plan(Corpus(documents).prompts, model, config.detection)
        detectors = _asked(plan.detectors, config.detection)
        scored = _without_control(plan.score(), detectors)
        remarks = plan.remarks
    measured = results.compute_results(parts, scored.take(slice(labelled)), None, detectors, seed=config.seed)
    assert measured.calibration is not None  # the share of validation is above 0
    states = partial(hidden_states, model.language_model)
    typicality = None
    calibration = measured.calibration
    # Pairs are two texts each, of which a model is asked for the difference.
    if not _are_pairs(documents):
        typicality = model.typicality
        calibration = _beside_base(calibration, model, parts, scored.take(slice(labelled)))
    calibration = _tried(calibration, model, states, typicality)
    summary = Answer(measured).audit
    # as `detect` refuses the version that is registered of such an audit
    maker = VerdictMaker(calibration, states, typicality, refusal=summary.sentence if summary.void else "")
    verdicts = None
    if judged:
        of_judged = scored.take(slice(labelled, None))
        verdicts = maker.classify(
            judged, lambda rows: of_judged.take(rows).columns, Rules(config.fpr, same_source=config.same_source)
        )
    table = results.score_table(parts.replace(test=tuple(parts.test) + tuple(judged)), scored)
    # After their contexts, as verdicts read them.
    whole = table.assign(text=Corpus(documents).wholes)
    trained_on = whole[(table["split"] == "test") & (table["label"] == 1)]
    # By the same rules as verdicts: what is said to be found would be called.
    found = maker.called(trained_on, config.fpr)
    return Audit(
        results=measured,
        calibration=calibration,
        found=found,
        scores=_with_verdicts(table, labelled, verdicts),
        detectors=detectors,
        verdicts=verdicts,
        remarks=remarks,
    )


def _beside_base(calibration: Calibration, model: Model, parts: Split, scored: ScoreTable) -> Calibration:
    """The calibration with what the base makes of its non-members, and their scores."""
    reference = calibration.reference
    scores = dict(zip(parts.judged.texts, scored.columns[calibration.score].tolist(), strict=False))
    typicality = map(tuple, model.typicality(reference.texts).tolist())
    earlier = Earlier(model.earlier, tuple(typicality), tuple(scores[text] for text in reference.texts))
    return replace(calibration, reference=replace(reference, earlier=earlier))


def _tried(calibration: Calibration, model: Model, states: Read, typicality: Read | None) -> Calibration:
    """The calibration whose domain check was tried, also on texts that the fine-tuned model writes."""
    write = partial(own_texts, model.fine_tuned, tuned=model.fine_tuned.adapted) if typicality else None
    reference = calibration.reference
    reference = trial(reference, states=states, typicality=typicality, write=write).added_to(reference)
    return replace(calibration, reference=reference.with_own_scores(partial(calibrated_scores, model, calibration)))


def _plan(texts: Sequence[Prompt], model: Model, detection: DetectorConfig) -> ScoringPlan:
    """The scoring by the detectors that compare two models on these texts."""
    requested = _with_control(detection)
    comparable = {detector.name: detector for detector in for_adapter_audit(requested)}
    detectors = []
    excluded = {}
    for detector in requested:
        name = detector.name
        detectors.append(comparable.get(name, detector))
        if name not in comparable:
            excluded[name] = "an audit compares plain scores"
    return model.plan(detectors, texts, excluded=excluded, strict=detection.named, use="used in an audit")


def _with_control(detection: DetectorConfig) -> list[Detector]:
    """The detectors that are asked for, and where all of them compare the models, one that reads the base alone."""
    requested = load_detectors(detection)
    if all(detector.paired for detector in for_adapter_audit(requested)):
        requested += load_detectors(DetectorConfig(detectors=BASE_DETECTOR))
    return requested


def _asked(detectors: Sequence[Detector], detection: DetectorConfig) -> list[Detector]:
    """The detectors that are asked for, without the control."""
    names = {detector.name for detector in load_detectors(detection)}
    return [detector for detector in detectors if detector.name in names]


def _without_control(scored: ScoreTable, detectors: Sequence[Detector]) -> ScoreTable:
    """The scores by these detectors, and all that the base gives."""
    names = [detector.name for detector in detectors]
    columns = scored.columns.items()
    return replace(scored, columns={s: column for s, column in columns if s.state == BASE or s.detector in names})


def _with_verdicts(table: pd.DataFrame, labelled: int, verdicts: Verdicts | None) -> pd.DataFrame:
    """The table of scores with p-values and verdicts of the texts after the labelled ones."""
    is_judged = np.arange(len(table)) >= labelled
    # a table of scores has labelled texts alone: it took those without a label for non-members of the test
    table["label"] = table["label"].astype("Int64").mask(is_judged)
    table["split"] = table["split"].mask(is_judged, "judged")
    table["p_value"] = np.nan
    table["verdict"] = pd.array([None] * len(table), "string")
    table["warning"] = ""
    if verdicts is not None:
        named = verdicts.table.replace({"verdict": {MEMBER: FOUND}})
        for name in ("p_value", "verdict", "warning"):
            table.loc[is_judged, name] = named[name].to_numpy()
    return table


def detectors_table(audit: Audit) -> Table:
    """One line per detector; the best on validation first, the others by their AUC."""
    aucs = {}
    for (detector, state, metric), row in audit.results.rows.items():
        if metric == "auc" and state == IN_AUDIT.difference:
            aucs[detector] = row.value
    best = audit.calibration.detector
    # The best one gives the verdicts, whatever the others reach on the test texts.
    detectors = sorted(aucs, key=lambda detector: (detector != best, -aucs[detector]))
    return plain(
        HEADINGS,
        [_detector_line(audit.results, detector) for detector in detectors],
        caption="AUC of the fine-tuned model's scores alone, and of their difference from the base model's; 95 % "
        "intervals by groups of related texts. TPR@5%FPR is the share of fine-tuning texts found when 5 of 100 others "
        "are called fine-tuning texts. A detector without a fine-tuned AUC compares the two models itself.",
        title=f"{len(audit.results.parts.test)} test texts",
        name="results",
        frame=audit.table,
        marked=(0,),
        kept=(0, 2, 1, 3, 4),
    )


def _detector_line(measured: Results, detector: str) -> list[str]:
    """The cells under `HEADINGS`."""
    rows = measured.rows
    single, difference = IN_AUDIT
    cells = [detector, shown(rows.get((detector, single, "auc"))), shown(rows[detector, difference, "auc"])]
    gain = rows.get((detector, "", "auc_gain"))
    # A detector that reads both models has no score of one of them, over which it could gain.
    if gain is None:
        cells += ["–", "–"]
    else:
        cells += [f"{gain.value:+z.2f}", p_value(gain.p_holm)]
    for metric in ("tpr_at_5fpr", "tpr_at_1fpr"):
        cells.append(f"{rows[detector, difference, metric].value:.2f}")
    return cells


def conclusions(audit: Audit, fpr: float) -> list[Finding]:
    """The results in sentences, most important first; `fpr` is the rate at which texts are called."""
    summary = audit.summary
    title = audit.results.title(audit.calibration.score)
    start = f"{title}, best on validation: AUC {summary.auc} on {len(audit.results.parts.test)} test texts"
    blind = f"no blind classifier could be trained: {summary.reason}"
    if summary.blind is not None:
        blind = f"a blind classifier, which never sees the model, reaches {summary.blind}"
    blind += asks_whether_reversed(summary.blind)
    in_order = summary.blind is not None and summary.blind.low <= 0.5 <= summary.blind.high
    findings = [Finding(f"{start}{_meaning(summary)}"), Finding(blind, in_order)]
    if summary.base is not None:
        sentence = f"the base model, which never saw the fine-tuning data, reaches {summary.base}"
        findings.append(Finding(sentence, summary.base.low <= 0.5))
    if summary.auc.low <= 0.5 or (audit.verdicts is not None and audit.verdicts.count(NOT_SHOWN)):
        findings += _power(audit, fpr)
    if audit.verdicts is not None:
        findings += verdict_sentences(audit.verdicts, audit.calibration)
    elif Answer(audit.results).contradiction:
        findings.append(Finding(f"no verdicts: {Answer(audit.results).contradiction}", AGAINST))
    return findings + as_findings(audit.remarks)


def _meaning(summary: AuditSummary) -> str:
    """What the AUC of an audit means."""
    reversed_labels = asks_whether_reversed(summary.auc)
    if reversed_labels:
        return reversed_labels
    if summary.auc.low <= 0.5:
        return ": not distinguishable from chance"
    if summary.texts_explain:
        return f"; a blind classifier reaches {summary.blind}: the two sides differ without the model"
    if summary.base_explains:
        return f"; the base model reaches {summary.base}: the two sides differ before the fine-tuning"
    return ": texts of the fine-tuning data can be distinguished from others"


def _power(audit: Audit, fpr: float) -> list[Finding]:
    """How many of the fine-tuning texts of the test are called at a rate, if any are of a source that is judged."""
    found = audit.found
    if found.empty:
        return []
    share = observed_rate(found["called"].to_numpy(), found["group"].tolist())
    texts = f"the {len(found):,} texts of the fine-tuning data in the test"
    return [measured_power(share, texts, fpr)]


def verdict_sentences(verdicts: Verdicts, calibration: Calibration) -> list[Finding]:
    """How many of the texts without a label are called, what that rests on, and what chance explains."""
    number = len(verdicts.table)
    called = verdicts.count(MEMBER)
    judged = called + verdicts.count(NOT_SHOWN)
    answer = f"no verdict on any of the {number} texts without a label"
    if judged:
        answer = (
            f"{called} of the {number} texts without a label are called fine-tuning data at a false-positive rate of "
            f"{verdicts.rules.fpr:.1%}; it holds for texts of the kind of the labelled ones"
        )
    findings = [Finding(answer, called > 0)]
    outside = verdicts.count(OUT_OF_DOMAIN)
    if outside:
        reasons = verdicts.table.loc[verdicts.table["verdict"] == OUT_OF_DOMAIN, "warning"]
        findings.append(
            Finding(f"{outside} of them are outside the calibrated domain, such as: {reasons.iloc[0]}", AGAINST)
        )
    findings += basis_sentences(verdicts.bases)
    if judged > 1:
        findings.append(chance_sentence(verdicts, calibration, "fine-tuning data", "fine-tuning data"))
    return findings + rate_sentences(verdicts, calibration) + power_sentences(calibration.reference)


def report(audit: Audit, config: AuditConfig, name: str) -> Report:
    """The report; `name` is the fine-tuned model's."""
    base = config.model.model
    summary = audit.summary
    judged = audit.scores[audit.scores["split"] == "judged"]
    section = Section("Results", tables=[detectors_table(audit), numbers("verdicts", judged)], pictures=[_roc(audit)])
    facts = [("Base", base), ("Fine-tuned model", name), ("Texts", ", ".join(config.data)), ("Seed", str(config.seed))]
    return Report(
        title="Was it in the fine-tuning data?",
        question=f"Can texts that {name} was fine-tuned on be distinguished from others, given the base {base}?",
        findings=conclusions(audit, config.fpr),
        sections=[section, limits()],
        facts=facts,
        changes=[
            "Texts of both labels from one period and kind, if a classifier without the model separates these.",
            "More labelled texts, which narrow the intervals.",
        ],
        score=f"{summary.detector} {summary.auc.short}",
        metrics=audit.results.audit.metrics() | charted(audit.table),
        numbers=gate_numbers(audit),
        rate=Answer(audit.results).rate,
        reader=reader(audit, base, name),
        artifacts={
            "scores.parquet": audit.scores,
            "summary.csv": audit.table,
            "calibration.json": audit.calibration.to_json(),
        },
        files={"scores": config.out} if config.out else {},
    )


def _with_base(report: Report, identity: BaseIdentity, adapter: Path | None) -> Report:
    """The report with the hash of the base's weights, and with what is taken on the user's word of it."""
    findings = list(report.findings)
    word = adapter and on_your_word(adapter, identity.id, identity.revision or None)
    if word:
        findings.append(Finding(word, AGAINST))
    facts = list(report.facts)
    facts.append(("Base weights", identity.fingerprint))
    return replace(report, findings=findings, facts=facts)


def reader(audit: Audit, base: str, name: str) -> Reader:
    """The answer for somebody who is no engineer."""
    summary = audit.summary
    right, low, high = (round(100 * number) for number in summary.auc)
    verdict = "The texts of the fine-tuning data can be distinguished from others."
    if asks_whether_reversed(summary.auc):
        verdict = "No answer: the other texts score higher, as where labels are reversed."
    elif summary.auc.low <= 0.5:
        verdict = "Not shown: guessing distinguishes the texts of the fine-tuning data from others as well."
    elif summary.texts_explain:
        verdict = "No answer: the two groups of texts differ without the model."
    elif summary.base_explains:
        verdict = "No answer: the two groups of texts differ for the model before its fine-tuning, too."
    answer = [
        verdict,
        "Take one text from the fine-tuning data and one from outside it. The score is higher for the former in "
        f"{right} of 100 such pairs ({low} to {high}); guessing gets 50.",
    ]
    wrong = []
    if audit.verdicts is not None:
        called = audit.verdicts.count(MEMBER)
        judged = called + audit.verdicts.count(NOT_SHOWN)
        answer.append(f"Of {judged} texts in question that can be judged, {called} are called fine-tuning data.")
        wrongly = round(1000 * audit.verdicts.rules.fpr)
        wrong.append(f"Of 1,000 texts outside the fine-tuning data, about {wrongly} are called so all the same.")
    rate = audit.results.rows[audit.calibration.detector, audit.calibration.state, "tpr_at_5fpr"].value
    wrong.append(
        f"If 5 of 100 outside texts may wrongly be called so, {round(100 * rate)} of 100 fine-tuning texts are found."
    )
    compared = (
        f"The model {name} is the model {base} after fine-tuning. Each of the {len(audit.scores)} texts was scored by "
        "both; the difference can come from the fine-tuning alone. The score was chosen on one half of the texts whose "
        "origin is known, and measured on the other."
    )
    return Reader(answer, wrong, [compared])


def gate_numbers(audit: Audit) -> dict[str, float | None]:
    """The numbers of the answer, by the names of a gate."""
    summary = audit.summary
    rate = audit.results.rows[audit.calibration.detector, audit.calibration.state, "tpr_at_5fpr"]
    answer = {
        "auc": summary.auc.value,
        "low": summary.auc.low,
        "high": summary.auc.high,
        "blind": summary.blind and summary.blind.value,
        "base": summary.base and summary.base.value,
        "found": rate.value,
    }
    if audit.verdicts is not None:
        called = audit.verdicts.count(MEMBER)
        judged = called + audit.verdicts.count(NOT_SHOWN)
        # Where nothing was judged, nothing was found to be in order.
        answer |= {"called": called if judged else None, "share": called / judged if judged else None}
    return answer


def _roc(audit: Audit) -> Picture:
    """The curves of all detectors on the test texts, by the fine-tuned model alone and beside the base."""
    test = audit.scores[audit.scores["split"] == "test"]
    scores = columns_of(test, IN_AUDIT)
    labels = test["label"].to_numpy(bool)
    figure = figures.roc(
        labels,
        of_state(scores, IN_AUDIT.single),
        of_state(scores, IN_AUDIT.difference),
        names=("fine-tuned", "calibrated score"),
    )
    return Picture(
        figures.png(figure),
        "Share of fine-tuning texts found against share of other texts wrongly called so.",
        name="roc.png",
    )


def register(run: Run, audit: Audit, config: AuditConfig, identity: BaseIdentity) -> Version | None:
    """Register the adapter with the calibration as a version of fsd-<domain>, for `fsd detect` and MLflow.

    None of the texts that it was trained on, which are the question, travels with it. It does not become champion if a
    blind classifier explains the result, nor in place of an audit of another adapter.
    """
    # It loads PyTorch, for which a dry run need not wait.
    from pipelines.experiment.registration import judged_words

    summary = audit.summary
    parts = audit.results.parts
    adapter = str(config.adapter)
    shots = shots_of(config.detection, config.model.model)
    files = adapter_files.contents(
        config.model, shots, audit.detectors, summary, audit.calibration, domain=config.domain, seed=config.seed
    )
    tags = {"base_model": identity.id, "adapter": adapter, "detector": summary.detector, "state": summary.state}
    benchmark = f"validation {digest(parts.validation)}, test {digest(parts.test)}"
    digests = {
        "benchmark": benchmark,
        "base_fingerprint": identity.fingerprint,
        "judging": f"audit of {adapter}, seed {config.seed}, by the best score of any state",
    }
    validation_auc = audit.results.validation_auc
    judged = judged_words(parts, f"audit of {adapter}", config.seed)
    barred = summary.sentence if summary.void else Answer(audit.results).contradiction
    rows = adapter_files.served_rows(parts, audit.calibration)
    model = f"fsd-{config.domain}"
    with tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
        folder = Path(scratch)
        # Peft records the name of the base alone: what is registered has its hash.
        copy_adapter(tracking.fetch_adapter(adapter), identity, folder)
        return tracking.register(
            run,
            model,
            folder,
            adapter_files.SERVING,
            validation_score=validation_auc,
            files=files,
            tags=tags,
            judged_on=judged,
            digests=digests,
            barred=barred,
            rows=rows,
        )


def split_by_training(trained_on: Documents, unread: Documents, config: AuditConfig) -> Split:
    """Texts of the fine-tuning and others in two parts, labelled as such whatever labels they have."""
    labelled = [replace(document, member=True) for document in trained_on]
    labelled += [replace(document, member=False) for document in unread]
    return split_labelled(labelled, validation=config.validation, seed=config.seed)


def demo(seed: int) -> None:
    """Fine-tune the embedded model on some abstracts, and distinguish them from others, with the base and without."""
    with context.stage("model"):
        config = AuditConfig(
            model=ModelConfig(cache="none"), detection=DetectorConfig(detectors="loss,min_k,zlib"), seed=seed
        )
        nonmembers = [document for document in corpus() if not document.member][:100]
        half = len(nonmembers) // 2
        trained_on = Corpus(nonmembers[:half])
        parts = split_by_training(trained_on, nonmembers[half:], config)
        # with the tuned state, of the adapter that is trained below
        model = open_model(config.model, states=STATES)
        training = AdapterConfig(epochs=8, learning_rate=3e-3, batch_size=4)
        finetune(model.language_model, trained_on.texts, training, seed=seed)
        # the base compared with itself: every difference is 0, as without fine-tuning
        untouched = replace(model, scorers={**model.scorers, "tuned": model.scorers["base"]})
    with context.stage("scoring"):
        tuned = detectors_table(measure(parts, [], model.audited(), config))
        control = detectors_table(measure(parts, [], untouched.audited(), config))
    lines = [["fine-tuned on half", *row] for row in tuned.rows]
    lines += [["control, not fine-tuned", *row] for row in control.rows]
    count = len(parts.test)
    table = plain(
        ["model", *HEADINGS],
        lines,
        words=(0, 1),
        title=f"{count} test texts, half of them fine-tuning data",
        name="results",
        kept=(0, 1, 3, 2),
        source="--json",
    )
    detector, _, auc, *_ = tuned.rows[0]
    show_demonstration(
        [
            Finding(f"{detector}, fine-tuned minus base: AUC {auc}; the control: {control.rows[0][2]}"),
            Finding(CONTROL, FOR),
        ],
        table,
        "fsd adapter-audit --model BASE --adapter DIR --data FILE",
    )
