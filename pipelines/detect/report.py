"""The report of a set of verdicts, for the terminal and for a reader who knows neither the software nor the field."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fsd.data.documents import Documents
from fsd.errors import counted
from fsd.evaluation.findings import AGAINST, FOR, Finding, as_findings
from fsd.reporting import figures
from fsd.reporting.report import Picture, Reader, Report, Section, Table, limits, numbers, p_value, p_words, plain
from fsd.scores import BASE, FSD
from fsd.statistics.intervals import Estimate
from fsd.statistics.power import READ, raised_above
from fsd.verdicts.calibration import Calibration
from fsd.verdicts.dataset_inference import DatasetVerdict
from fsd.verdicts.verdicts import LEARNED, MEMBER, NO_VERDICT, NOT_SHOWN, OUT_OF_DOMAIN, Verdicts
from pipelines.command.output import text_table
from pipelines.detect.classifier import MembershipClassifier
from pipelines.detect.error_rates import DatasetComparison, Measured
from pipelines.experiment.power_sentences import by_times, measured_power, simulated_power
from pipelines.experiment.report import identity_text
from pipelines.experiment.verdict_sentences import (
    GUESTS,
    basis_sentences,
    chance_sentence,
    power_sentences,
    rate_sentences,
)

TERMINAL_ROWS = 10
REPORT_ROWS = 500
TERMINAL_CHARACTERS = 22
"""Length of the beginning of each text in the table of the terminal."""
REPORT_CHARACTERS = 90
"""The same in the report."""
COUNTED = {"members": MEMBER, "not_shown": NOT_SHOWN, "outside": OUT_OF_DOMAIN, "no_verdict": NO_VERDICT}
COUNTED["trained_on"] = LEARNED
"""Name of a metric → the verdict whose texts it counts."""
CAPTION = "Lowest p-values first; texts without a verdict last. Texts called members are highlighted."


@dataclass(frozen=True)
class Findings:
    """What one call found about N texts; `dataset` is None without known non-members, and `doubts` are about these."""

    classifier: MembershipClassifier
    documents: Documents
    verdicts: Verdicts
    measured: Sequence[Measured]
    dataset: DatasetComparison | None = None
    remarks: Sequence[str] = ()
    doubts: Sequence[str] = ()
    owners: Table | None = None

    @property
    def number(self) -> int:
        """How many texts there are."""
        return len(self.documents)

    @cached_property
    def called(self) -> int:
        """How many texts are called members."""
        return self.verdicts.count(MEMBER)

    @cached_property
    def unshown(self) -> int:
        """Of how many texts membership is not shown."""
        return self.verdicts.count(NOT_SHOWN)

    @property
    def data(self) -> str:
        """What the texts may have been part of."""
        if self.classifier.audited:
            return "fine-tuning data"
        return "training data"

    @property
    def fpr(self) -> float:
        """The chosen false-positive rate."""
        return self.verdicts.rules.fpr

    @cached_property
    def calibration(self) -> Calibration:
        """The calibration of the one source on whose texts verdicts are given; of all sources, if there are several."""
        whole = self.classifier.calibration
        if len(self.judged) == 1:
            return whole.of(self.judged[0])
        return whole

    @property
    def judged(self) -> list[str]:
        """The sources on whose texts verdicts are given."""
        return [basis.source for basis in self.verdicts.bases if basis.verdict]

    @property
    def contradicted(self) -> bool:
        """Whether labelled texts contradict the rate, which then explains nothing."""
        return any(measured.contradicts(self.fpr) for measured in self.measured)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The table as written to files: source, text, label if there are labels, and the verdict."""
        columns = ["source", "text"]
        if any(document.member is not None for document in self.documents):
            columns.append("label")
        return text_table(self.documents, *columns).join(self.verdicts.table)

    @property
    def metrics(self) -> dict[str, float]:
        """Counts and rates under the names by which they are tracked, without those that are unknown."""
        verdicts = self.verdicts
        values: dict[str, float | None] = {}
        for name, verdict in COUNTED.items():
            values[name] = verdicts.count(verdict)
        values["texts"] = self.number
        values["selected"] = verdicts.table["selected"].sum()
        tests = [basis.test.p for basis in verdicts.bases if basis.test]
        values["exchangeability_p"] = min(tests, default=None)
        if self.dataset:
            values["corpus_p"] = self.dataset.verdict.p
        for measured in self.measured:
            values[f"{measured.key}_fpr"] = measured.fpr and measured.fpr.value
            values[f"{measured.key}_found"] = measured.tpr and measured.tpr.value
        metrics = {}
        for name, value in values.items():
            if value is not None:
                metrics[f"detect/{name}"] = float(value)
        return metrics


def report(findings: Findings, adapter: str, files: Mapping[str, str]) -> Report:
    """Everything that was found about the texts of files, given with their hashes, by the adapter at an address."""
    classifier = findings.classifier
    texts = counted(findings.number, "text")
    title = f"{texts}, lowest p-values first"
    if findings.number > TERMINAL_ROWS:
        title += f" ({findings.number - TERMINAL_ROWS:,} more)"
    names = ", ".join(Path(file).name for file in files)
    trained = "fine-tuned" if classifier.audited else "trained"
    question = (
        f"Was any of the {texts} in {names} part of the texts on which the model "
        f"{classifier.language_model.identity.id} was {trained}?"
    )
    beginnings = partial(_texts, findings, characters=TERMINAL_CHARACTERS, kept=(4, 3, 1, 5, 2))
    return Report(
        title=f"Were these texts in the {findings.data}?",
        question=question,
        findings=conclusions(findings),
        changes=_changes(findings),
        sections=_sections(findings),
        facts=_facts(findings, adapter, files),
        printed=[beginnings(TERMINAL_ROWS, title=title)],
        brief=beginnings(REPORT_ROWS, reason=_first_words),
        score=f"{findings.called} of {findings.number} called members",
        metrics=findings.metrics,
        numbers=_gate_numbers(findings),
        reader=_reader(findings),
        artifacts={"verdicts.parquet": findings.frame},
    )


def _reader(findings: Findings) -> Reader:
    """The answer for somebody who is no engineer."""
    verdicts = findings.verdicts
    judged = findings.called + findings.unshown
    fpr = findings.fpr
    answer = [
        f"{findings.called} of {counted(findings.number, 'text')} {_are(findings.called)} called {findings.data}.",
        f"For {findings.unshown}, this is not shown, which does not mean that the model was not trained on them.",
    ]
    if judged < findings.number:
        answer.append(f"On {findings.number - judged}, no verdict can be given.")
    errors = [
        f"Of 1,000 texts on which the model was not trained, about {1000 * fpr:.0f} are called {findings.data} all "
        "the same."
    ]
    if judged > 1 and not findings.contradicted:
        chance = chance_sentence(verdicts, findings.classifier.calibration, findings.data, findings.data)
        errors.append(_sentence(chance.text))
    errors += [_sentence(_measurement(measured, fpr).text) for measured in findings.measured]
    calibration = findings.calibration
    rule = (
        f"The score of each text was compared with those of {len(calibration.test.scores)} texts that are known not to "
        f"be in the {findings.data}. A text is called {findings.data} if at most {100 * fpr:g} of 100 of these score "
        "as high."
    )
    compared = [
        _scoring(findings.classifier),
        rule,
        "A text that differs from these in script, length, words or in what the model makes of it gets no verdict, "
        "since the error rate does not apply to it.",
    ]
    return Reader(answer, errors, compared, [findings.owners] if findings.owners else [])


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _gate_numbers(findings: Findings) -> dict[str, float | None]:
    """The numbers of the answer, by the names of a gate."""
    called = findings.called
    judged = called + findings.unshown
    p = findings.dataset.verdict.p if findings.dataset else None
    if not judged:
        # Then nothing was found to be in order.
        return {"found": None, "share": None, "judged": judged, "selected": None, "p": p}
    selected = int(findings.verdicts.table["selected"].sum())
    return {"found": called, "share": called / judged, "judged": judged, "selected": selected, "p": p}


def _sections(findings: Findings) -> list[Section]:
    sections = [
        Section("What was done", paragraphs=_method(findings)),
        Section("How often the answer is wrong", paragraphs=[GUESTS], tables=[_rates(findings)]),
    ]
    # without a text that is judged, a curve of none of them would lie above all non-members
    if findings.verdicts.calls()[1]:
        sections.append(Section("Scores and p-values", pictures=[_picture(findings)]))
    paragraphs = []
    unlisted = findings.number - REPORT_ROWS
    if unlisted > 0:
        paragraphs.append(f"{unlisted:,} more are in the file of verdicts.")
    table = _texts(findings, REPORT_ROWS, REPORT_CHARACTERS, caption=CAPTION, printed=False)
    whole = numbers("verdicts", findings.frame)
    sections.append(Section("The texts", paragraphs=paragraphs, tables=[table, whole]))
    if findings.owners:
        sections.append(Section("By holder", tables=[findings.owners]))
    sections.append(limits(findings.fpr))
    return sections


def _facts(findings: Findings, adapter: str, files: Mapping[str, str]) -> list[tuple[str, str]]:
    classifier = findings.classifier
    calibration = findings.calibration
    score = classifier.score_title
    if calibration.settings:
        settings = ", ".join(f"{key} {value}" for key, value in calibration.settings.items())
        score += f" ({settings})"
    calibrated = f"{len(calibration.test.families)} non-members in {calibration.n_families} groups"
    rate = f"{findings.fpr:g}; the smallest possible here is {calibration.finest:.4g}"
    facts = [
        ("Model", identity_text(classifier.language_model.identity)),
        ("Adapter", adapter),
        ("Score", score),
        ("Calibration", calibrated),
        ("False-positive rate", rate),
    ]
    for file, hashed in files.items():
        facts.append((f"File {Path(file).name}", f"SHA-256 {hashed}"))
    return facts


# Sentences


def conclusions(findings: Findings) -> list[Finding]:
    """The results in sentences, most important first."""
    verdicts = findings.verdicts
    calibration = findings.calibration
    judged = findings.called + findings.unshown
    lines = as_findings(findings.doubts, AGAINST)
    lines.append(Finding(f"{Path(findings.classifier.language_model.identity.id).name}: {_answer(findings)}"))
    if findings.unshown:
        lines.append(_power(findings))
    # if no text was judged, the answer says so already
    if 0 < judged < findings.number:
        lines.append(_unjudged(verdicts))
    lines += basis_sentences(verdicts.bases)
    if judged > 1:
        # beside texts that contradict the rate, nothing is more than it explains
        if not findings.contradicted:
            lines.append(chance_sentence(verdicts, calibration, "training data", "members"))
        lines.append(_selection(verdicts))
    lines += rate_sentences(verdicts, calibration)
    lines += [_measurement(measured, findings.fpr) for measured in findings.measured]
    if not findings.measured:
        lines.append(
            Finding("the share of members that this score finds is unknown: there are no labelled texts", AGAINST)
        )
    if findings.called:
        lines.append(
            Finding("a verdict is evidence about these texts under these conditions, not proof; see docs/security.md")
        )
    lines += power_sentences(calibration.reference)
    audit = findings.classifier.audit
    if audit:
        lines.append(Finding(f"audit: {audit.sentence}", audit.clean, f"audit: {audit.short}"))
    else:
        lines.append(
            Finding("WARNING: no audit of this adapter is known; register it again with fsd run to have one", AGAINST)
        )
    if findings.dataset:
        lines += _dataset(findings.dataset)
    return lines + as_findings(findings.remarks, AGAINST)


def _power(findings: Findings) -> Finding:
    """How many members are called at the rate: as measured on labelled ones, or else by simulation."""
    fpr = findings.fpr
    for measured in findings.measured:
        if measured.tpr:
            return measured_power(measured.tpr, f"the {measured.members:,} known members of {measured.name}", fpr)
    calibration = findings.calibration
    scores = np.array(calibration.test.scores)
    threshold = calibration.threshold_at(fpr)
    groups = list(calibration.test.families)
    powers = by_times(READ, lambda shift: raised_above(scores, threshold, shift, groups))
    return simulated_power("texts of the calibrated kind", powers, f"a rate of {fpr:.1%}")


def _answer(findings: Findings) -> str:
    verdicts = findings.verdicts
    number = findings.number
    called = findings.called
    if not called + findings.unshown:
        answer = "no verdict on the text" if number == 1 else f"no verdict on any of {number:,} texts"
        scored = verdicts.table["score"].count()
        if scored:
            have = "has" if scored == 1 else "have"
            answer += f"; {counted(scored, 'text')} {have} a score and a rank alone"
        return answer
    members = "a member" if called == 1 else "members"
    calls = f"{called} of {counted(number, 'text')} {_are(called)} called {members} of the {findings.data}"
    rate = f"at a false-positive rate of {findings.fpr:.1%}"
    if verdicts.asserted:
        rate += ", if they are of the calibrated kind, which was asserted and not tested"
    return f"{calls} by {findings.classifier.score_title}, {rate}; membership is not shown for {findings.unshown}"


def _unjudged(verdicts: Verdicts) -> Finding:
    """How many texts have no verdict while others have one, and why."""
    trained = verdicts.count(LEARNED)
    outside = verdicts.count(OUT_OF_DOMAIN)
    untested = verdicts.count(NO_VERDICT)
    reasons = []
    if trained:
        reasons.append(f"the adapter itself was trained on {trained}")
    if outside:
        reasons.append(f"{outside} {_are(outside)} outside the calibrated domain")
    if untested:
        reasons.append(f"nothing shows that the rate holds for {untested}")
    return Finding(f"no verdict on {trained + outside + untested}: {', and '.join(reasons)}", AGAINST)


def _selection(verdicts: Verdicts) -> Finding:
    """How many texts are selected at the false discovery rate; without a sign if there was nothing to select from."""
    fdr = verdicts.rules.fdr
    selected = int(verdicts.table["selected"].sum())
    meaning = "no set of these calls is free enough of false ones"
    if selected:
        meaning = f"on average at most {fdr:.0%} of such a selection are non-members (groups count once)"
    result = f"at a false discovery rate of {fdr:.0%}, {counted(selected, 'text')} {_are(selected)} selected"
    return Finding(f"{result}: {meaning}", selected > 0 if verdicts.count(MEMBER) else None, result)


def _measurement(measured: Measured, fpr: float) -> Finding:
    rates = []
    if measured.fpr:
        rates.append(f"{_percent(measured.fpr)} of {measured.nonmembers} known non-members were wrongly called members")
    if measured.tpr:
        rates.append(f"{_percent(measured.tpr)} of {measured.members} known members were found")
    line = f"measured on {measured.name}: {', '.join(rates)}"
    if measured.contradicts(fpr):
        return Finding(f"WARNING: {line}; that is significantly above the nominal rate of {fpr:.1%}", AGAINST)
    # Whose texts these are is in the report, and how many members are found in the sentence on power.
    short = rates[0] if measured.fpr else line
    return Finding(line, FOR, short)


def _dataset(dataset: DatasetComparison) -> list[Finding]:
    """What the comparison of all texts together shows, and what limits it."""
    verdict = dataset.verdict
    result = f"no verdict, since {verdict.reason}"
    if verdict.p is not None:
        result = _dataset_result(verdict, verdict.p)
    comparison = (
        f"all texts together, {verdict.suspect_groups} independent texts against {verdict.known_groups} known "
        f"non-members: {result}"
    )
    lines = [Finding(comparison, verdict.p is not None and verdict.p <= 0.05)]
    for name in ("date", "length"):
        auc = dataset.controls[name].auc
        if auc is not None and auc.low > 0.5:
            text = (
                f"the {name} alone separates the texts from the known non-members with AUC {auc}: the two sets are not "
                "matched"
            )
            lines.append(Finding(text, AGAINST))
    left_out = dataset.left_out
    if left_out:
        text = (
            f"{counted(left_out, 'text')} {_are(left_out)} left out of that comparison: outside the calibrated domain, "
            "or trained on by the adapter itself"
        )
        lines.append(Finding(text, AGAINST))
    return lines


def _dataset_result(verdict: DatasetVerdict, p: float) -> str:
    if p <= 0.01:
        meaning = "the scores are higher than chance explains, as those of texts from the training data are"
    elif p <= 0.05:
        meaning = "weak evidence that some of the texts were in the training data"
    else:
        meaning = "membership is not shown"
    result = f"{p_words(p)}, {meaning}"
    # where nothing is shown, a share would read as if something was
    if verdict.share and p <= 0.05:
        result += f"; the share of them that was used is {verdict.share}, or more"
    if verdict.blind:
        result += f"; a classifier that never sees the model separates the two sets with AUC {verdict.blind}"
    return result


def _changes(findings: Findings) -> list[str]:
    families = findings.calibration.n_families
    changes = [
        f"The error rate rests on {families} independent texts known not to be in the training data; more of them "
        "would narrow its range and allow smaller p-values."
    ]
    if not findings.measured:
        changes.append("Texts whose membership is known (--known) would show how often this score finds a member.")
    if findings.verdicts.count(OUT_OF_DOMAIN):
        changes.append(
            "The texts that cannot be judged need an adapter calibrated on texts of their language, length and subject."
        )
    return changes


def _method(findings: Findings) -> list[str]:
    rules = findings.verdicts.rules
    calibration = findings.calibration
    trained_on = "; nor does a text on which the model was fine-tuned" if calibration.state == FSD else ""
    p_values = (
        f"The p-value of a text is the share of {len(calibration.test.scores)} texts, known not to be in the training "
        "data and not trained on, that score at least as high. A text is called a member if its p-value is at most "
        f"{rules.fpr:g}; otherwise its membership is “not shown”, which does not mean that it was not in the training "
        "data."
    )
    paragraphs = [
        f"{_scoring(findings.classifier)} A higher score is evidence of membership in the training data.",
        p_values,
        "A text that differs from these comparison texts in script, length, words or in what the model makes of it "
        f"gets no verdict, because the error rate does not apply to it{trained_on}. Nor does a text that is too "
        "probable for a model that did not learn it, as texts are that a model wrote; and a score that such texts "
        "reach is no sign of membership. If all texts together differ from "
        "them, as a classifier shows, none gets a verdict. Fewer than five independent texts cannot be compared in "
        "this way: they get a verdict only where somebody asserts that they are of the same source, time and kind, "
        "and the result then says so.",
        "Among many texts, some are called members by chance. The texts marked as selected are chosen such that, on "
        f"average, at most {rules.fdr:.0%} of them were not in the training data.",
    ]
    if findings.dataset:
        paragraphs.append(
            "For the texts as a whole, the scores by several detectors were compared with those of further texts known "
            "not to be in the training data. The p-value is the probability of a difference at least as large if the "
            "texts of the two sets are exchanged at random. No verdict is given if a classifier of the words alone "
            "clearly separates the two sets."
        )
    return paragraphs


def _scoring(classifier: MembershipClassifier) -> str:
    """By which models each text was scored, and why that tells something."""
    model = classifier.language_model.identity.id
    if classifier.audited:
        return (
            f"The model {model} was fine-tuned on texts that are not known here; “training data” means these texts. "
            "Fine-tuning raises the scores of the texts that it is trained on. Each text was scored by the fine-tuned "
            f"model and by {model}, which together give its score ({classifier.score_title})."
        )
    if classifier.calibration.state == BASE:
        return (
            f"Each text was scored by the model {model} as it is ({classifier.score_title}). A model gives texts that "
            "it was trained on higher scores than others."
        )
    return (
        f"The model {model} was fine-tuned very briefly on {len(classifier.unseen)} texts that it cannot have seen "
        "before. This changes the scores of texts that the model already knew only a little, and those of texts "
        "that are new to it more. Each text was scored before and after; the comparison is its score "
        f"({classifier.score_title})."
    )


def _percent(share: Estimate | None) -> str:
    if share is None:
        return "–"
    value, low, high = (f"{100 * number:.1f}" for number in share)
    return f"{value} % [{low}, {high}]"


def _are(number: int) -> str:
    if number == 1:
        return "is"
    return "are"


# Tables, the figure, and facts


def _first_words(row: Any) -> str:
    """Why a text has no verdict, for one screen; the reason of a whole request stands below the table."""
    if row.verdict == NO_VERDICT:
        return ""
    return re.split("[:,] ", row.warning)[0]


def _texts(
    findings: Findings, rows: int, characters: int, reason: Callable[[Any], str] = attrgetter("warning"), **options: Any
) -> Table:
    """The first texts: judged ones by p-value, then those with a score alone, then the rest."""
    table = findings.frame.sort_values(["p_value", "score"], ascending=[True, False], kind="stable").head(rows)
    lines = []
    row: Any
    for row in table.itertuples():
        score = f"{row.score:.4g}" if pd.notna(row.score) else "–"
        verdict = f"{row.verdict}: {reason(row)}".removesuffix(": ")
        selected = "selected" if row.selected else ""
        text = _beginning(row.text, characters)
        lines.append([Path(row.source).name, text, score, p_value(row.p_value), verdict, selected])
    headings = ["from", "text", "score", "p", "verdict", f"FDR {findings.verdicts.rules.fdr:.0%}"]
    # positions in the sorted table, not rows of the file
    members = np.flatnonzero(table["verdict"] == MEMBER).tolist()
    return plain(headings, lines, words=(0, 1, 4, 5), marked=members, **options)


def _beginning(text: str, characters: int) -> str:
    words = " ".join(text.split())
    if len(words) <= characters:
        return words
    return words[: characters - 1].rstrip() + "…"


def _rates(findings: Findings) -> Table:
    calibrations = {"nominal": findings.calibration}
    if len(findings.judged) > 1:
        whole = findings.classifier.calibration
        calibrations = {f"nominal, source {name!r}": whole.of(name) for name in findings.judged}
    rows = []
    for name, calibration in calibrations.items():
        # the range is that of this calibration, the rate in its middle what holds on average over calibrations
        nominal = calibration.rate(findings.fpr)._replace(value=findings.fpr)
        rows.append([name, str(calibration.n_families), _percent(nominal), "–", "–"])
    for measured in findings.measured:
        line = [measured.name, str(measured.nonmembers), _percent(measured.fpr)]
        line += [str(measured.members), _percent(measured.tpr)]
        rows.append(line)
    return plain(
        ["", "Known non-members", "Wrongly called members", "Known members", "Found"],
        rows,
        caption="Wrongly called members: share of texts known not to be in the training data that were called "
        "members. Found: share of texts known to be in it that were called members. Brackets: 95 % intervals.",
        printed=False,
    )


def _picture(findings: Findings) -> Picture:
    calibration = findings.calibration
    fpr = findings.fpr
    table = findings.verdicts.table
    judged = table[table["p_value"].notna()]
    _, judged_families = findings.verdicts.calls()
    threshold = calibration.threshold_at(fpr)
    scores = judged["score"].to_numpy()
    p_values = judged["p_value"].to_numpy()
    figure = figures.verdicts(
        calibration.test.scores,
        scores,
        p_values,
        threshold=threshold,
        fpr=fpr,
        independent=(calibration.n_families, judged_families),
    )
    return Picture(
        figures.png(figure),
        "Left: scores of the texts and of texts known not to be in the training data; texts to the right of the orange "
        "line are called members, as long as the same score is the best one with that text among the non-members. "
        "Right: share of texts with a p-value up to each level. If none of the texts were in the training data, the "
        "whole line would stay in the grey band in 95 of 100 such cases, even if above the diagonal.",
        name="verdicts.png",
    )
