"""The report of a set of verdicts, for the terminal and for a reader who knows neither the software nor the field."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fsd.data.documents import Document
from fsd.evaluation.metrics import Estimate
from fsd.evaluation.verdicts import ASSERTED, MEMBER, NO_VERDICT, NOT_SHOWN, OUT_OF_DOMAIN, Basis, Verdicts
from fsd.files import digest
from fsd.reporting import figures
from fsd.reporting.report import (
    Against,
    Column,
    For,
    Picture,
    Report,
    Section,
    Table,
    limits,
    marked,
    numbers,
    p_value,
    plain,
)
from pipelines.common.output import described
from pipelines.common.run_log import identity_text
from pipelines.detect.classifier import MembershipClassifier
from pipelines.detect.verdicts import DatasetComparison, Measured

TERMINAL_ROWS, REPORT_ROWS = 10, 500
TERMINAL_CHARACTERS, REPORT_CHARACTERS = 22, 90
"""Length of the beginning of each text in the tables."""
CAPTION = "Lowest p-values first; texts without a verdict last. Texts called members are highlighted."


@dataclass(frozen=True)
class Findings:
    """What one call found about N texts; `dataset` is None without known non-members, and `doubts` are about these."""

    classifier: MembershipClassifier
    documents: Sequence[Document]
    verdicts: Verdicts
    measured: Sequence[Measured]
    dataset: DatasetComparison | None = None
    remarks: Sequence[str] = ()
    doubts: Sequence[str] = ()

    @property
    def data(self) -> str:
        """What the texts may have been part of."""
        return "fine-tuning data" if self.classifier.audited else "training data"

    @property
    def frame(self) -> pd.DataFrame:
        """The table as written to files: source, text, label if there are labels, and the verdict."""
        labelled = any(document.member is not None for document in self.documents)
        texts = described(self.documents, "source", "text", *(["label"] if labelled else []))
        return texts.join(self.verdicts.table)

    @property
    def metrics(self) -> dict[str, float]:
        """Counts and rates under the names by which they are tracked."""
        verdicts = {"members": MEMBER, "not_shown": NOT_SHOWN, "outside": OUT_OF_DOMAIN, "no_verdict": NO_VERDICT}
        values: dict[str, float | None] = {name: self.verdicts.count(verdict) for name, verdict in verdicts.items()}
        values |= {"texts": len(self.documents), "selected": self.verdicts.table["selected"].sum()}
        values["exchangeability_p"] = min((one.test.p for one in self.verdicts.bases if one.test), default=None)
        values["corpus_p"] = self.dataset.verdict.p if self.dataset else None
        for one in self.measured:
            values |= {f"{one.key}_fpr": one.fpr and one.fpr.value, f"{one.key}_found": one.tpr and one.tpr.value}
        return {f"detect/{name}": float(value) for name, value in values.items() if value is not None}


def report(found: Findings, adapter: str, files: Sequence[str]) -> Report:
    """Everything that was found about the texts of the files by the adapter at an address."""
    identity, number, fpr = found.classifier.language_model.identity, len(found.documents), found.verdicts.rules.fpr
    calibration, texts = found.classifier.calibration, _count(number, "text")
    settings = ", ".join(f"{key} {value}" for key, value in calibration.settings.items())
    more, unlisted = (f"{number - shown:,} more" if number > shown else "" for shown in (TERMINAL_ROWS, REPORT_ROWS))
    return Report(
        title=f"Were these texts in the {found.data}?",
        question=f"Was any of the {texts} in {', '.join(Path(file).name for file in files)} part of the texts on which "
        f"the model {identity.id} was {'fine-tuned' if found.classifier.audited else 'trained'}?",
        findings=conclusions(found),
        changes=_changes(found),
        sections=[
            Section("What was done", paragraphs=_method(found)),
            Section("How often the answer is wrong", tables=[_rates(found)]),
            *_scores(found),
            Section(
                "The texts",
                paragraphs=[f"{unlisted} are in the file of verdicts."] if unlisted else [],
                tables=[
                    _texts(found, REPORT_ROWS, REPORT_CHARACTERS, caption=CAPTION, printed=False),
                    numbers("verdicts", found.frame),
                ],
            ),
            limits(fpr),
        ],
        facts=[
            ("Model", identity_text(identity)),
            ("Adapter", adapter),
            ("Detector", calibration.detector + (f" ({settings})" if settings else "")),
            ("Calibration", f"{len(calibration.families)} non-members in {calibration.groups} groups"),
            ("False-positive rate", f"{fpr:g}; the smallest possible here is {calibration.finest:.4g}"),
            *((f"File {Path(file).name}", f"SHA-256 {_sha256(Path(file))}") for file in files),
        ],
        next=[] if found.dataset else [f"fsd detect {' '.join(files)} --adapter {adapter} --known FILE"],
        printed=[
            _texts(
                found,
                TERMINAL_ROWS,
                TERMINAL_CHARACTERS,
                title=f"{texts}, lowest p-values first{more and f' ({more})'}",
                kept=(4, 3, 1, 5, 2),
            )
        ],
        score=f"{found.verdicts.count(MEMBER)} of {number} called members",
        metrics=found.metrics,
        artifacts={"verdicts.parquet": found.frame},
    )


# Sentences


def conclusions(found: Findings) -> list[str]:
    """The results in sentences, most important first."""
    verdicts, calibration, audit = found.verdicts, found.classifier.calibration, found.classifier.audit
    fpr, fdr, count, number = verdicts.rules.fpr, verdicts.rules.fdr, verdicts.count, len(found.documents)
    judged, outside, untested = count(MEMBER, NOT_SHOWN), count(OUT_OF_DOMAIN), count(NO_VERDICT)
    lines = [*map(Against, found.doubts), _answer(found)]
    if 0 < judged < number:
        reasons = [f"{outside} {_are(outside)} outside the calibrated domain"] if outside else []
        reasons += [f"nothing shows that the rate holds for {untested}"] if untested else []
        lines.append(Against(f"no verdict on {number - judged}: {', and '.join(reasons)}"))
    lines += [_basis(basis, _source(basis) if len(verdicts.bases) > 1 else "") for basis in verdicts.bases]
    if judged > 1:
        selected = int(verdicts.table["selected"].sum())
        meaning = f"on average at most {fdr:.0%} of such a selection are non-members (groups count once)"
        chosen = f"at a false discovery rate of {fdr:.0%}, {_count(selected, 'text')} {_are(selected)} selected: " + (
            meaning if selected else "no set of these calls is free enough of false ones"
        )
        lines += [_chance(found), marked(bool(selected) if count(MEMBER) else None, chosen)]
    for basis in (basis for basis in verdicts.bases if basis.verdict):
        own = calibration.of(basis.collection)
        rate = own.rate(fpr)
        lines.append(
            f"{_source(basis)}the false-positive rate of {fpr:.1%} holds on average over calibration sets: this "
            f"calibration rests on {own.groups} held-out non-members, and the rate of its threshold is between "
            f"{rate.low:.1%} and {rate.high:.1%} with 95 % confidence"
        )
    unmeasured = Against("the share of members that this detector finds is unknown: there are no labelled texts")
    lines += [_measurement(measured, fpr) for measured in found.measured] or [unmeasured]
    if count(MEMBER):
        lines.append("a verdict is evidence about these texts under these conditions, not proof; see docs/security.md")
    power = ", ".join(f"{share:.0%} of {kind}" for kind, share in calibration.reference.power.items())
    tried = f"domain check: {'' if power else 'not '}tried on texts of other kinds{power and f', it found {power}'}"
    lines.append(marked(None if power else False, tried))
    unaudited = "WARNING: no audit of this adapter is known; register it again with fsd run to have one"
    lines.append(marked(audit.clean, f"audit: {audit.sentence}") if audit else Against(unaudited))
    return [line for line in (*lines, *_dataset(found.dataset), *map(Against, found.remarks)) if line]


def _answer(found: Findings) -> str:
    verdicts, texts = found.verdicts, len(found.documents)
    called, unshown = verdicts.count(MEMBER), verdicts.count(NOT_SHOWN)
    if not called + unshown:
        scored = int(verdicts.table["score"].notna().sum())
        has = "has" if scored == 1 else "have"
        left = f"; {_count(scored, 'text')} {has} a score and a rank alone" if scored else ""
        return f"no verdict on {'the text' if texts == 1 else f'any of {texts:,} texts'}{left}"
    kind = ", if they are of the calibrated kind, which was asserted and not tested" if verdicts.asserted else ""
    as_what = "a member" if called == 1 else "members"
    return (
        f"{called} of {_count(texts, 'text')} {_are(called)} called {as_what} of the {found.data}, at a "
        f"false-positive rate of {verdicts.rules.fpr:.1%}{kind}; membership is not shown for {unshown}"
    )


def _basis(basis: Basis, of: str) -> str:
    """What the verdicts on a source rest on, where it is not a test that was passed without more to say."""
    if basis.verdict == ASSERTED:
        return Against(
            f"WARNING: {of}asserted, not tested: the texts are said to be of the calibrated kind (--same-source)"
        )
    if not basis.reason:
        return ""
    apart, test = "", basis.test
    if test and test.rejected:
        apart = "; more of them are outside the calibrated domain than chance explains"
        if test.classifier_p is not None and test.classifier_p <= test.outside_p:
            apart = f"; a classifier distinguishes the two with AUC {test.auc:.2f}"
        apart += ": judge texts of one kind at a time, by an adapter whose non-members are of that kind"
    return Against(f"WARNING: {of}no verdict, since {basis.reason}{apart}")


def _chance(found: Findings) -> str:
    """The number of families called, compared with that among texts none of which is a member."""
    verdicts, fpr = found.verdicts, found.verdicts.rules.fpr
    called, judged = verdicts.calls()
    sources = [basis.collection for basis in verdicts.bases if basis.verdict]
    if len(sources) > 1:
        return f"{called} of {judged} independent texts are called; each source has a rate of its own"
    expected, most = fpr * judged, found.classifier.calibration.of(*sources).false_alarms(fpr, judged)
    start = (
        f"if none of the {judged:,} independent texts judged had been in the training data, about "
        f"{expected:.{0 if expected >= 3 else 1}f} would still be called members, and in 95 of 100 cases at most {most}"
    )
    if not called:
        return start
    if called > most:
        kind = ", if they are of the calibrated kind" if verdicts.asserted else " for texts of the calibrated kind"
        return marked(not verdicts.asserted, f"{start}: {called} are more than chance explains{kind}")
    return Against(
        f"{start}: {called} such {'call is' if called == 1 else 'calls together are'} no evidence of membership"
    )


def _measurement(measured: Measured, fpr: float) -> str:
    rates = (
        (measured.fpr, f"of {measured.nonmembers} known non-members were wrongly called members"),
        (measured.tpr, f"of {measured.members} known members were found"),
    )
    line = f"measured on {measured.name}: {', '.join(f'{_percent(rate)} {what}' for rate, what in rates if rate)}"
    if measured.fpr and measured.fpr.low > fpr:
        return Against(f"WARNING: {line}; that is significantly above the nominal rate of {fpr:.1%}")
    return For(line)


def _dataset(dataset: DatasetComparison | None) -> list[str]:
    if dataset is None:
        return []
    verdict, result = dataset.verdict, f"no verdict, since {dataset.verdict.reason}"
    if verdict.p is not None:
        meanings = {
            0.01: "the scores are higher than chance explains, as those of texts from the training data are",
            0.05: "weak evidence that some of the texts were in the training data",
            1.0: "membership is not shown",
        }
        meaning = next(meaning for level, meaning in meanings.items() if verdict.p <= level)
        shown = p_value(verdict.p)
        result = f"p {shown if shown.startswith('<') else f'= {shown}'}, {meaning}"
        if verdict.share and verdict.p <= 0.05:
            result += f"; the share of them that was used is {verdict.share}, or more"
        if verdict.blind:
            result += f"; a classifier that never sees the model separates the two sets with AUC {verdict.blind}"
    separated = [(name, dataset.controls[name].auc) for name in ("date", "length")]
    left = dataset.left_out
    return [
        marked(
            verdict.p is not None and verdict.p <= 0.05,
            f"all texts together, {verdict.suspect_groups} independent texts against {verdict.known_groups} known "
            f"non-members: {result}",
        ),
        *(
            Against(
                f"the {name} alone separates the texts from the known non-members with AUC {auc}: the two sets are not "
                "matched"
            )
            for name, auc in separated
            if auc is not None and auc.low > 0.5
        ),
        Against(
            f"{_count(left, 'text')} {_are(left)} left out of that comparison: outside the calibrated domain, or "
            "trained on by the adapter itself"
            if left
            else ""
        ),
    ]


def _changes(found: Findings) -> list[str]:
    known = "Texts whose membership is known (--known) would show how often this detector finds a member."
    other = "The texts that cannot be judged need an adapter calibrated on texts of their language, length and subject."
    return [
        f"The error rate rests on {found.classifier.calibration.groups} independent texts known not to be in the "
        "training data; more of them would narrow its range and allow smaller p-values.",
        *([] if found.measured else [known]),
        *([other] if found.verdicts.count(OUT_OF_DOMAIN) else []),
    ]


def _method(found: Findings) -> list[str]:
    calibration, audited, rules = found.classifier.calibration, found.classifier.audited, found.verdicts.rules
    model = found.classifier.language_model.identity.id
    how = (
        f"The model {model} was fine-tuned on texts that are not known here; “training data” means these texts. "
        "Fine-tuning raises the scores of the texts that it is trained on. Each text was scored by the fine-tuned "
        f"model and by {model}; the difference is its score (by the detector {calibration.detector})."
        if audited
        else f"The model {model} was fine-tuned very briefly on {len(found.classifier.unseen)} texts that it cannot "
        "have seen before. This changes the scores of texts that the model already knew only a little, and those of "
        "texts that are new to it more. Each text was scored before and after; the difference is its score "
        f"(fine-tuned score deviation, by the detector {calibration.detector})."
    )
    paragraphs = [
        f"{how} A higher score is evidence of membership in the training data.",
        f"The p-value of a text is the share of {len(calibration.families)} texts, known not to be in the training "
        "data and not trained on, that score at least as high. A text is called a member if its p-value is at most "
        f"{rules.fpr:g}; otherwise its membership is “not shown”, which does not mean that it was not in the training "
        "data.",
        "A text that differs from these comparison texts in script, length, words or in what the model makes of it "
        "gets no verdict, because the error rate does not apply to it"
        + ("" if audited else "; nor does a text on which the model was fine-tuned")
        + ". If all texts together differ from them, as a classifier shows, none gets a verdict. Fewer than five "
        "independent texts cannot be compared in this way: they get a verdict only where somebody asserts that they "
        "are of the same source, time and kind, and the result then says so.",
        "Among many texts, some are called members by chance. The texts marked as selected are chosen such that, on "
        f"average, at most {rules.fdr:.0%} of them were not in the training data.",
    ]
    if found.dataset:
        paragraphs.append(
            "For the texts as a whole, the scores by several detectors were compared with those of further texts known "
            "not to be in the training data. The p-value is the probability of a difference at least as large if the "
            "texts of the two sets are exchanged at random. No verdict is given if a classifier of the words alone "
            "clearly separates the two sets."
        )
    return paragraphs


def _source(basis: Basis) -> str:
    return f"source {basis.collection!r}: " if basis.collection else ""


def _percent(share: Estimate | None) -> str:
    return f"{100 * share.value:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]" if share else "–"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


# Tables, the figure, and facts


def _texts(found: Findings, rows: int, characters: int, **how: Any) -> Table:
    """The first texts: judged ones by p-value, then those with a score alone, then the rest."""
    first = found.frame.sort_values(["p_value", "score"], ascending=[True, False], kind="stable").head(rows)

    def beginning(row: pd.Series) -> str:
        text = " ".join(row.text.split())
        return text if len(text) <= characters else text[: characters - 1].rstrip() + "…"

    columns = [
        Column("from", lambda row: Path(row.source).name, words=True),
        Column("text", beginning, words=True),
        Column("score", lambda row: f"{row.score:.4g}" if row.score == row.score else "–"),
        Column("p", lambda row: p_value(row.p_value)),
        Column("verdict", lambda row: f"{row.verdict}: {row.warning}" if row.warning else row.verdict, words=True),
        Column(f"FDR {found.verdicts.rules.fdr:.0%}", lambda row: "selected" if row.selected else "", words=True),
    ]
    return Table(first, columns, marked=[at for at, verdict in enumerate(first["verdict"]) if verdict == MEMBER], **how)


def _rates(found: Findings) -> Table:
    calibration, fpr = found.classifier.calibration, found.verdicts.rules.fpr
    rows = [["nominal", str(calibration.groups), _percent(calibration.rate(fpr)._replace(value=fpr)), "–", "–"]]
    rows += [[m.name, str(m.nonmembers), _percent(m.fpr), str(m.members), _percent(m.tpr)] for m in found.measured]
    return plain(
        ["", "Known non-members", "Wrongly called members", "Known members", "Found"],
        rows,
        caption="Wrongly called members: share of texts known not to be in the training data that were called "
        "members. Found: share of texts known to be in it that were called members. Brackets: 95 % intervals.",
        printed=False,
    )


def _scores(found: Findings) -> list[Section]:
    """The figure; without a text that is judged, a curve of none of them would lie above all non-members."""
    return [Section("Scores and p-values", pictures=[_picture(found)])] if found.verdicts.calls()[1] else []


def _picture(found: Findings) -> Picture:
    calibration, rules, table = found.classifier.calibration, found.verdicts.rules, found.verdicts.table
    judged = table[table["p_value"].notna()]
    figure = figures.verdicts(
        calibration.chosen.scores,
        judged["score"].to_numpy(),
        judged["p_value"].to_numpy(),
        threshold=calibration.threshold_at(rules.fpr),
        fpr=rules.fpr,
        independent=(calibration.groups, found.verdicts.calls()[1]),
    )
    return Picture(
        figures.png(figure),
        "Left: scores of the texts and of texts known not to be in the training data; texts to the right of the orange "
        "line are called members, as long as the same detector is the best one with that text among the non-members. "
        "Right: share of texts with a p-value up to each level. If none of the texts were in the training data, the "
        "whole line would stay in the grey band in 95 of 100 such cases, even if above the diagonal.",
        name="verdicts.png",
    )


def _sha256(path: Path) -> str:
    """SHA-256 of a file, or of the .txt files in a folder in sorted order."""
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    return digest(*files)
