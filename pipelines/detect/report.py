"""The report of a set of verdicts, for the terminal and for a reader who knows neither the software nor the field."""

import hashlib
import math
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fsd.errors import UsageError
from fsd.evaluation.metrics import Estimate
from fsd.evaluation.verdicts import ASSERTED, MEMBER, NO_VERDICT, NOT_SHOWN, OUT_OF_DOMAIN, Basis
from fsd.reporting import figures
from fsd.reporting.report import Picture, Report, Section, Table, limits, numbers, p_value, plain
from pipelines.common.adapter_files import AUDITED
from pipelines.common.run_log import identity_text
from pipelines.detect.classifier import MembershipClassifier
from pipelines.detect.verdicts import DatasetComparison, Measured, Verdicts

TERMINAL_ROWS, REPORT_ROWS = 10, 500
TERMINAL_CHARACTERS, REPORT_CHARACTERS = 34, 90
"""Length of the beginning of each text in the tables."""


def report(verdicts: Verdicts, classifier: MembershipClassifier, adapter: str, files: Sequence[str]) -> Report:
    """Everything that was found about the texts of the files by the adapter at an address."""
    audited, number, fdr = verdicts.calibration.state == AUDITED, len(verdicts.documents), verdicts.rules.fdr
    model, names = classifier.language_model.identity.id, ", ".join(Path(file).name for file in files)
    more = {shown: f"{number - shown:,} more" if number > shown else "" for shown in (TERMINAL_ROWS, REPORT_ROWS)}
    printed = _texts(
        verdicts,
        ("from", "text", "score", "p", "verdict", f"FDR {fdr:.0%}"),
        (TERMINAL_ROWS, TERMINAL_CHARACTERS),
        title=f"{_count(number, 'text')}, lowest p-values first{more[TERMINAL_ROWS] and f' ({more[TERMINAL_ROWS]})'}",
        kept=(4, 3, 1, 5, 2),
    )
    page = _texts(
        verdicts,
        ("From", "Beginning of the text", "Score", "p", "Verdict", f"FDR {fdr:.0%}"),
        (REPORT_ROWS, REPORT_CHARACTERS),
        caption="Lowest p-values first; texts without a verdict last. Texts called members are highlighted."
        + (more[REPORT_ROWS] and f" {more[REPORT_ROWS]} are in the file of verdicts."),
        printed=False,
    )
    return Report(
        title=f"Were these texts in the {_data(verdicts)}?",
        question=f"Was any of the {_count(number, 'text')} in {names} part of the texts on which the model {model} was "
        f"{'fine-tuned' if audited else 'trained'}?",
        findings=conclusions(verdicts),
        changes=_changes(verdicts),
        sections=[
            Section("What was done", paragraphs=_method(verdicts, model, len(classifier.unseen))),
            Section("How often the answer is wrong", tables=[_rates(verdicts)]),
            Section("Scores and p-values", pictures=[_picture(verdicts)]),
            Section("The texts", tables=[page, numbers("verdicts", verdicts.frame())]),
            limits(verdicts.rules.fpr),
        ],
        facts=_facts(verdicts, classifier, adapter, files),
        printed=[printed],
        score=f"{verdicts.count(MEMBER)} of {number} called members",
        metrics=verdicts.metrics(),
        artifacts={"verdicts.parquet": verdicts.frame()},
    )


# Sentences


def conclusions(verdicts: Verdicts) -> list[str]:
    """The results in sentences, most important first."""
    judged, fpr, bases = verdicts.in_domain, verdicts.rules.fpr, verdicts.classified.bases
    lines = [_answer(verdicts)]
    if judged and judged < len(verdicts.documents):
        outside, untested = verdicts.count(OUT_OF_DOMAIN), verdicts.count(NO_VERDICT)
        reasons = [f"{outside} {_are(outside)} outside the calibrated domain"] if outside else []
        reasons += [f"nothing shows that the rate holds for {untested}"] if untested else []
        lines.append(f"no verdict on {len(verdicts.documents) - judged}: {', and '.join(reasons)}")
    lines += [line for basis in bases if (line := _basis(basis, named=len(bases) > 1))]
    if judged > 1:
        lines += [_chance(verdicts), _selected(verdicts)]
    for basis in (basis for basis in bases if basis.verdict):
        calibration = verdicts.calibration.of(basis.collection)
        rate = calibration.rate(fpr)
        lines.append(
            f"{_source(basis)}the false-positive rate of {fpr:.1%} holds on average over calibration sets: this "
            f"calibration rests on {calibration.groups} held-out non-members, and the rate of its threshold is "
            f"between {rate.low:.1%} and {rate.high:.1%} with 95 % confidence"
        )
    lines += [_measurement(measured, fpr) for measured in verdicts.measured]
    if not verdicts.measured:
        lines.append("the share of members that this detector finds is unknown: there are no labelled texts")
    if verdicts.count(MEMBER):
        lines.append("a verdict is evidence about these texts under these conditions, not proof; see docs/security.md")
    power = verdicts.calibration.reference.power.items()
    found = ", ".join(f"{share:.0%} of {kind}" for kind, share in power)
    lines.append(
        f"domain check: {'' if power else 'not '}tried on texts of other kinds{', it found ' if power else ''}{found}"
    )
    lines.append(
        f"audit: {verdicts.audit.sentence}"
        if verdicts.audit
        else "WARNING: no audit of this adapter is known; register it again with python -m pipelines.fsd to have one"
    )
    return [*lines, *(_dataset(verdicts.dataset) if verdicts.dataset else []), *verdicts.remarks]


def _answer(verdicts: Verdicts) -> str:
    called, texts = verdicts.count(MEMBER), len(verdicts.documents)
    if not verdicts.in_domain:
        scored = int(verdicts.table["score"].notna().sum())
        has = "has" if scored == 1 else "have"
        left = f"; {_count(scored, 'text')} {has} a score and a rank alone" if scored else ""
        return f"no verdict on {'the text' if texts == 1 else f'any of {texts:,} texts'}{left}"
    kind = ", if they are of the calibrated kind, which was asserted and not tested" if verdicts.asserted else ""
    return (
        f"{called} of {_count(texts, 'text')} {_are(called)} called members of the {_data(verdicts)}, at a "
        f"false-positive rate of {verdicts.rules.fpr:.1%}{kind}; membership is not shown for "
        f"{verdicts.count(NOT_SHOWN)}"
    )


def _basis(basis: Basis, *, named: bool) -> str:
    """What the verdicts on a source rest on, where it is not a test that was passed without more to say."""
    of = _source(basis) if named else ""
    if basis.verdict == ASSERTED:
        return f"WARNING: {of}asserted, not tested: the texts are said to be of the calibrated kind (--same-source)"
    if not basis.reason:
        return ""
    apart = ""
    if basis.test and basis.test.rejected:
        if basis.test.auc is not None:
            apart = f"; a classifier distinguishes the two with AUC {basis.test.auc:.2f}"
        apart += ": judge texts of one kind at a time, by an adapter whose non-members are of that kind"
    return f"WARNING: {of}no verdict, since {basis.reason}{apart}"


def _chance(verdicts: Verdicts) -> str:
    """The number of families called, compared with that among texts none of which is a member."""
    called, judged = verdicts.calls()
    sources = {basis.collection for basis in verdicts.classified.bases if basis.verdict}
    if len(sources) > 1:
        return f"{called} of {judged} independent texts are called; each source has a rate of its own"
    fpr = verdicts.rules.fpr
    expected, most = fpr * judged, verdicts.calibration.of(*sources).false_alarms(fpr, judged)
    start = (
        f"if none of the {judged:,} independent texts judged had been in the training data, about "
        f"{expected:.{0 if expected >= 3 else 1}f} would still be called members, and in 95 of 100 cases at most {most}"
    )
    if not called:
        return start
    if called > most and not verdicts.asserted:
        return f"{start}: {called} are more than chance explains for texts of the calibrated kind"
    if called > most:
        return f"{start}; {called} are called, which other texts than the calibrated kind would explain as well"
    return f"{start}: {called} such {'call is' if called == 1 else 'calls together are'} no evidence of membership"


def _selected(verdicts: Verdicts) -> str:
    selected, fdr = int(verdicts.table["selected"].sum()), verdicts.rules.fdr
    start = f"at a false discovery rate of {fdr:.0%}, {_count(selected, 'text')} {_are(selected)} selected"
    if not selected:
        return f"{start}: no set of these calls is free enough of false ones"
    return f"{start}: on average at most {fdr:.0%} of such a selection are non-members (groups count once)"


def _measurement(measured: Measured, fpr: float) -> str:
    parts = []
    if measured.fpr:
        parts.append(f"{_percent(measured.fpr)} of {measured.nonmembers} known non-members were wrongly called members")
    if measured.tpr:
        parts.append(f"{_percent(measured.tpr)} of {measured.members} known members were found")
    line = f"measured on {measured.name}: {', '.join(parts)}"
    if measured.fpr and measured.fpr.low > fpr:
        return f"WARNING: {line}; that is significantly above the nominal rate of {fpr:.1%}"
    return line


def _dataset(dataset: DatasetComparison) -> list[str]:
    verdict = dataset.verdict
    result = (
        f"all texts together, {verdict.suspect_groups} independent texts against {verdict.known_groups} known "
        "non-members: "
    )
    if verdict.p is None:
        result += f"no verdict, since {verdict.reason}"
    else:
        if verdict.p <= 0.01:
            meaning = "the scores are higher than chance explains, as those of texts from the training data are"
        elif verdict.p <= 0.05:
            meaning = "weak evidence that some of the texts were in the training data"
        else:
            meaning = "membership is not shown"
        shown = p_value(verdict.p)
        result += f"p {shown if shown.startswith('<') else f'= {shown}'}, {meaning}"
        if verdict.blind:
            result += f"; a classifier that never sees the model separates the two sets with AUC {verdict.blind}"
    lines = [result]
    for name in ("date", "length"):
        auc = dataset.controls[name].auc
        if auc is not None and auc.low > 0.5:
            lines.append(
                f"the {name} alone separates the texts from the known non-members with AUC {auc}: the two sets are not "
                "matched"
            )
    if dataset.left_out:
        lines.append(
            f"{_count(dataset.left_out, 'text')} {_are(dataset.left_out)} left out of that comparison: outside the "
            "calibrated domain, or trained on by the adapter itself"
        )
    return lines


def _changes(verdicts: Verdicts) -> list[str]:
    lines = [
        f"The error rate rests on {verdicts.calibration.groups} independent texts known not to be in the training "
        "data; more of them would narrow its range and allow smaller p-values."
    ]
    if not verdicts.measured:
        lines.append("Texts whose membership is known (--known) would show how often this detector finds a member.")
    if verdicts.count(OUT_OF_DOMAIN):
        lines.append(
            "The texts that cannot be judged need an adapter that was calibrated on texts of their language, length "
            "and subject."
        )
    return lines


def _method(verdicts: Verdicts, model: str, unseen: int) -> list[str]:
    calibration, audited = verdicts.calibration, verdicts.calibration.state == AUDITED
    how = (
        f"The model {model} was fine-tuned on texts that are not known here; “training data” means these texts. "
        "Fine-tuning raises the scores of the texts that it is trained on. Each text was scored by the fine-tuned "
        f"model and by {model}; the difference is its score (by the detector {calibration.detector})."
        if audited
        else f"The model {model} was fine-tuned very briefly on {unseen} texts that it cannot have seen before. "
        "Fine-tuning changes the scores of texts that the model already knew only a little, and those of texts that "
        "are new to it more. Each text was scored before and after; the difference is its score (fine-tuned score "
        f"deviation, by the detector {calibration.detector})."
    )
    paragraphs = [
        f"{how} A higher score is evidence of membership in the training data.",
        "Scores have no meaning by themselves, so each was compared with those of "
        f"{len(calibration.families)} texts that are known not to be in the training data and that nothing was trained "
        "on. The p-value of a text is the share of those texts that score at least as high. A text is called a member "
        f"if its p-value is at most {verdicts.rules.fpr:g}; otherwise its membership is “not shown”, which does not "
        "mean that it was not in the training data.",
        "A text that differs from the comparison texts in script, length, words or in what the model makes of it gets "
        "no verdict, because the error rate does not apply to it"
        + ("" if audited else "; nor does a text on which the model was fine-tuned")
        + ". If the texts together differ from the comparison texts, as a classifier shows, none gets a verdict. "
        "Fewer than five independent texts cannot be compared in this way: they get a verdict only where somebody "
        "asserts that they are of the same source, time and kind, and the result then says so.",
        "Among many texts, some are called members by chance. The texts marked as selected are chosen such that, on "
        f"average, at most {verdicts.rules.fdr:.0%} of them were not in the training data.",
    ]
    if verdicts.dataset:
        paragraphs.append(
            "For the texts as a whole, the scores by several detectors were compared with those of further texts known "
            "not to be in the training data. The p-value is the probability of a difference at least as large if the "
            "texts of the two sets are exchanged at random. A classifier that uses only the words of the texts checks "
            "whether the two sets differ without the model; if they clearly do, no verdict is given."
        )
    return paragraphs


def _data(verdicts: Verdicts) -> str:
    return "fine-tuning data" if verdicts.calibration.state == AUDITED else "training data"


def _source(basis: Basis) -> str:
    return f"source {basis.collection!r}: " if basis.collection else ""


def _percent(share: Estimate) -> str:
    return f"{100 * share.value:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


# Tables, the figure, and facts


def _texts(verdicts: Verdicts, headings: Sequence[str], size: tuple[int, int], **how: Any) -> Table:
    """The first texts with their scores and verdicts: judged ones by p-value, then those with a score alone, the rest.

    `size` is the number of texts and of characters of each.
    """
    table = verdicts.table.fillna({"p_value": 2.0, "score": -math.inf})
    ordered = np.lexsort((-table["score"].to_numpy(), table["p_value"].to_numpy()))
    rows = []
    for at in ordered[: size[0]].tolist():
        document, row = verdicts.documents[at], verdicts.table.iloc[at]
        text = " ".join(document.text.split())
        beginning = text if len(text) <= size[1] else text[: size[1] - 1].rstrip() + "…"
        score = "–" if math.isnan(row.score) else f"{row.score:.4g}"
        verdict = f"{row.verdict}: {row.warning}" if row.warning else str(row.verdict)
        selected = "selected" if row.selected else ""
        rows.append([Path(document.source).name, beginning, score, p_value(row.p_value), verdict, selected])
    marked = [at for at, row in enumerate(rows) if row[4] == MEMBER]
    return plain(headings, rows, words=(0, 1, 4, 5), marked=marked, **how)


def _rates(verdicts: Verdicts) -> Table:
    rate = verdicts.calibration.rate(verdicts.rules.fpr)
    nominal = _percent(rate._replace(value=verdicts.rules.fpr))
    rows = [["nominal", str(verdicts.calibration.groups), nominal, "–", "–"]]
    for measured in verdicts.measured:
        fpr, tpr = (_percent(share) if share else "–" for share in (measured.fpr, measured.tpr))
        rows.append([measured.name, str(measured.nonmembers), fpr, str(measured.members), tpr])
    return plain(
        ["", "Known non-members", "Wrongly called members", "Known members", "Found"],
        rows,
        caption="Wrongly called members: share of texts known not to be in the training data that were called "
        "members. Found: share of texts known to be in it that were called members. Brackets: 95 % intervals.",
        printed=False,
    )


def _picture(verdicts: Verdicts) -> Picture:
    table, calibration = verdicts.table[verdicts.table["p_value"].notna()], verdicts.calibration
    figure = figures.verdicts(
        calibration.chosen.scores,
        table["score"].to_numpy(),
        table["p_value"].to_numpy(),
        threshold=calibration.threshold_at(verdicts.rules.fpr),
        fpr=verdicts.rules.fpr,
        independent=(calibration.groups, verdicts.calls()[1]),
    )
    return Picture(
        figures.png(figure),
        "Left: scores of the texts to be judged and of texts known not to be in the training data; texts to the right "
        "of the black line are called members, as long as the same detector is the best one with that text among the "
        "non-members. Right: share of texts with a p-value up to each level. If none of the texts were in the training "
        "data, the whole line would stay in the grey band in 95 of 100 such cases, even if above the diagonal; only a "
        "line that leaves the band upwards shows more low p-values than chance explains.",
        name="verdicts.png",
    )


def _facts(
    verdicts: Verdicts, classifier: MembershipClassifier, adapter: str, files: Sequence[str]
) -> list[tuple[str, str]]:
    """Label and value of everything needed to reproduce the verdicts."""
    calibration = verdicts.calibration
    settings = ", ".join(f"{key} {value}" for key, value in calibration.settings.items())
    return [
        ("Model", identity_text(classifier.language_model.identity)),
        ("Adapter", adapter),
        ("Detector", calibration.detector + (f" ({settings})" if settings else "")),
        ("Calibration", f"{len(calibration.families)} non-members in {calibration.groups} groups"),
        ("False-positive rate", f"{verdicts.rules.fpr:g}; the smallest possible here is {calibration.finest:.4g}"),
        *((f"File {Path(file).name}", f"SHA-256 {_sha256(Path(file))}") for file in files),
        ("Program", f"fsd {version('fsd')}, python -m pipelines.detect"),
    ]


def _sha256(path: Path) -> str:
    """SHA-256 of a file, or of the .txt files in a folder in sorted order."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*.txt")) if path.is_dir() else [path]:
        try:
            digest.update(file.read_bytes())
        except OSError as error:
            raise UsageError(f"{file} must be readable; {error.strerror}") from error
    return digest.hexdigest()
