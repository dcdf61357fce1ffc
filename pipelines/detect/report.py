"""What a user is told about their texts: sentences, a table on the terminal, and the report."""

import hashlib
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fsd.errors import UsageError
from fsd.evaluation.intervals import Estimate
from fsd.reporting import figures as plots
from fsd.reporting import html as report
from pipelines.detect.classifier import MEMBER, NOT_SHOWN, OUTSIDE, Detective
from pipelines.detect.verdicts import Case, Corpus, Measured

SHOWN = 10
"""Rows on the terminal."""
LISTED = 500
"""Rows in the report; the file of verdicts holds all."""
BEGINNING = 90
"""Characters of a text that the tables quote."""


def percent(estimate: Estimate) -> str:
    """A share with its interval: 5.7 % [2.1, 12.0]."""
    return f"{estimate.value:.1%} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]".replace("%", " %", 1)


def findings(case: Case) -> list[str]:
    """The answer in sentences, the most important first."""
    calibration, texts = case.calibration, len(case.documents)
    called = case.count(MEMBER)
    lines = [
        f"{called} of {_counted(texts, 'text')} {_are(called)} called members of the training data, at a "
        f"false-positive rate of {case.fpr:.1%}; for {case.count(NOT_SHOWN)} membership is not shown, and "
        f"{case.count(OUTSIDE)} {_are(case.count(OUTSIDE))} outside the calibrated domain, where nothing can be said"
    ]
    if case.inside > 1:
        lines.append(_by_chance(case, called))
    rate = calibration.rate(case.fpr)
    lines.append(
        f"the error rate of {case.fpr:.1%} is a promise kept on average: it rests on {calibration.groups} held-out "
        f"non-members, and the rate of this one threshold lies between {rate.low:.1%} and {rate.high:.1%} with 95 % "
        "confidence"
    )
    lines += [_measured(measured, case.fpr) for measured in case.measured]
    if not case.measured:
        lines.append("how many members this detector finds is not known here: no labelled texts are at hand")
    return lines + (_together(case.corpus) if case.corpus else [])


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _by_chance(case: Case, called: int) -> str:
    expected, most = case.fpr * case.inside, case.calibration.false_alarms(case.fpr, case.inside)
    start = (
        f"if none of the {case.inside:,} texts judged had been in the training data, about "
        f"{expected:.{0 if expected >= 3 else 1}f} would be called members all the same, and in 95 of 100 cases at "
        f"most {most}"
    )
    if called > most:
        return f"{start}: {called} are more than chance explains for texts like the calibration texts"
    return (
        f"{start}: {called} such {'call is' if called == 1 else 'calls are'} no sign of membership taken together"
        if called
        else start
    )


def _measured(measured: Measured, fpr: float) -> str:
    parts = []
    if measured.wrong:
        parts.append(f"of {measured.others} known non-members {percent(measured.wrong)} were called members wrongly")
    if measured.found:
        parts.append(f"of {measured.members} known members {percent(measured.found)} were found")
    line = f"measured on {measured.name}: {', '.join(parts)}"
    if measured.wrong and measured.wrong.low > fpr:
        line = f"WARNING: {line}; that is surely above the promised {fpr:.1%}"
    return line


def _together(corpus: Corpus) -> list[str]:
    verdict = corpus.verdict
    start = f"as a whole, {verdict.suspect_groups} independent texts against {verdict.known_groups} known non-members: "
    blind = f"; a blind classifier that never sees the model tells the two apart with AUC {verdict.blind}"
    controls = [
        f"the {name} alone tells the corpus from the known non-members with AUC {control.auc}: the two are not matched"
        for name, control in (("date", corpus.date), ("length", corpus.length))
        if control.auc is not None and control.auc.low > 0.5
    ]
    if corpus.left_out:
        controls.append(
            f"{_counted(corpus.left_out, 'text')} {_are(corpus.left_out)} left out of that comparison: outside the "
            "calibrated domain, or trained on by the adapter itself"
        )
    if verdict.p is None:
        return [f"{start}no verdict, since {verdict.reason}", *controls]
    shown = report.p_shown(verdict.p)
    if verdict.p <= 0.01:
        meaning = "the corpus scores higher than chance explains, as texts from the training data do"
    elif verdict.p <= 0.05:
        meaning = "a hint that part of the corpus was in the training data, and no more"
    else:
        meaning = "membership of the corpus is not shown"
    return [f"{start}p = {shown.lstrip('= ')}, {meaning}{blind if verdict.blind else ''}", *controls]


def striking(case: Case) -> list[int]:
    """Rows in the order in which a reader wants them: judged ones by p-value, then those outside."""
    table = case.verdicts
    return sorted(
        range(len(table)), key=lambda at: (bool(table["warning"][at]), table["p_value"][at], -table["score"][at], at)
    )


def show(case: Case) -> None:
    """Counts, the most striking rows and the findings on the terminal."""
    order = striking(case)[:SHOWN]
    rest = len(case.documents) - len(order)
    title = f"{_counted(len(case.documents), 'text')}, lowest p-values first" + (f" ({rest:,} more)" if rest else "")
    table = Table(title=title, title_style="")
    for heading, side in (("from", "left"), ("text", "left"), ("score", "right"), ("p", "right"), ("verdict", "left")):
        table.add_column(heading, justify="right" if side == "right" else "left", no_wrap=heading != "verdict")
    for at in order:
        document, row = case.documents[at], case.verdicts.iloc[at]
        verdict = f"{row.verdict}: {row.warning}" if row.warning else str(row.verdict)
        table.add_row(
            _place(document.source),
            _opening(document.text, 34),
            f"{row.score:.4g}",
            report.p_shown(row.p_value),
            verdict,
        )
    console = Console(width=max(110, Console().width))
    console.print(table, markup=False)
    for line in findings(case):
        console.print(f"• {line}", highlight=False, markup=False, soft_wrap=True)


def _opening(text: str, length: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"


def _place(source: str) -> str:
    """File and line without the folders."""
    return Path(source).name


def picture(case: Case) -> bytes:
    """The figure of scores and p-values of the judged texts against the calibration, as PNG."""
    judged = case.verdicts[case.verdicts["warning"] == ""]
    table = judged if len(judged) else case.verdicts
    figure = plots.verdicts(
        case.calibration.scores,
        table["score"].to_numpy(),
        table["p_value"].to_numpy(),
        threshold=case.calibration.threshold_at(case.fpr),
        fpr=case.fpr,
    )
    return plots.png(figure)


def content(case: Case, detective: Detective, adapter: str, files: Sequence[str | Path]) -> report.ReportContent:
    """The report for a reader who knows neither the software nor the field."""
    identity = detective.language_model.identity
    names = ", ".join(Path(file).name for file in files)
    caption = (
        "Left: scores of the texts asked about and of texts known not to be in the training data; what lies to the "
        "right of the black line is called a member. Right: the share of texts with a p-value up to each level; "
        "texts that were not in the training data follow the grey line, members rise above it on the left."
    )
    return report.ReportContent(
        title="Were these texts in the training data?",
        question=f"Was any of the {_counted(len(case.documents), 'text')} in {names} part of the texts that the model "
        f"{identity.id} was trained on?",
        findings=findings(case),
        sections=[
            report.Section("What was done", paragraphs=done(case, detective)),
            report.Section("How often the answer is wrong", tables=[_rates(case)]),
            report.Section("Scores and p-values", pictures=[report.Picture(picture(case), caption)]),
            report.Section("The texts", tables=[_texts(case)]),
            report.limits(case.fpr),
        ],
        facts=facts(case, detective, adapter, files),
    )


def done(case: Case, detective: Detective) -> list[str]:
    """The method in plain words."""
    calibration = case.calibration
    lines = [
        f"The model {detective.language_model.identity.id} was trained further, very briefly, on "
        f"{len(detective.unseen)} texts that it cannot have seen before. Texts that it knew already change little by "
        "that, texts that are new to it change more. Each text was scored before and after; the difference is its "
        f"score (fine-tuned score deviation, by the detector {calibration.detector}). A higher score speaks for "
        "membership in the training data.",
        f"Scores alone mean little, so each was compared with those of {len(calibration.scores)} texts that are known "
        "not to be in the training data, and that nothing was trained on. The p-value of a text is the share of those "
        f"that score at least as high. A text is called a member where its p-value is at most {case.fpr:g}; otherwise "
        "its membership is “not shown”, which does not mean that it was not in the training data.",
        "A text in another language, of another length or about other things than the comparison texts gets no "
        "verdict, because the error rate says nothing about it; nor does a text that the model was trained further on.",
    ]
    if case.corpus:
        lines.append(
            "For the texts as a whole, the scores by several detectors were compared with those of the known "
            "non-members given for that purpose. The p-value is how often the same difference arises when the two "
            "sides are mixed at random. A classifier that sees only the words checks whether the two sides differ "
            "without the model; where they clearly do, no verdict is given."
        )
    return lines


def _rates(case: Case) -> report.Table:
    def cells(measured: Measured) -> list[str]:
        wrong = percent(measured.wrong) if measured.wrong else "–"
        found = percent(measured.found) if measured.found else "–"
        return [measured.name, str(measured.others), wrong, str(measured.members), found]

    rate = case.calibration.rate(case.fpr)
    rows = [["promised", str(case.calibration.groups), percent(Estimate(case.fpr, rate.low, rate.high)), "–", "–"]]
    return report.Table(
        caption="Wrongly called members: share of texts known not to be in the training data that were called "
        "members. Found: share of texts known to be in it that were called members. In brackets the 95 % interval.",
        head=["", "Known non-members", "Wrongly called members", "Known members", "Found"],
        rows=[*rows, *map(cells, case.measured)],
        numeric=frozenset({1, 2, 3, 4}),
    )


def _texts(case: Case) -> report.Table:
    order = striking(case)[:LISTED]
    rest = len(case.documents) - len(order)
    rows = []
    for at in order:
        document, row = case.documents[at], case.verdicts.iloc[at]
        verdict = f"{row.verdict}: {row.warning}" if row.warning else str(row.verdict)
        opening = _opening(document.text, BEGINNING)
        rows.append([_place(document.source), opening, f"{row.score:.4g}", report.p_shown(row.p_value), verdict])
    members = frozenset(place for place, at in enumerate(order) if case.verdicts["verdict"][at] == MEMBER)
    return report.Table(
        caption="Lowest p-values first; texts without a verdict last. Texts called members are highlighted."
        + (f" {rest:,} more are in the file of verdicts." if rest else ""),
        head=["From", "Text begins", "Score", "p", "Verdict"],
        rows=rows,
        numeric=frozenset({2, 3}),
        marked=members,
    )


def facts(case: Case, detective: Detective, adapter: str, files: Sequence[str | Path]) -> list[tuple[str, str]]:
    """What is needed to do it again."""
    identity, calibration = detective.language_model.identity, case.calibration
    settings = ", ".join(f"{key} {value}" for key, value in calibration.settings.items())
    return [
        ("Model", f"{identity.id}, revision {identity.revision or 'local'}, weights {identity.fingerprint}"),
        ("Adapter", adapter),
        ("Detector", calibration.detector + (f" ({settings})" if settings else "")),
        ("Calibration", f"{len(calibration.scores)} non-members in {calibration.groups} groups"),
        ("False-positive rate", f"{case.fpr:g}; the smallest possible here is {calibration.finest:.4g}"),
        *((f"File {Path(file).name}", digest(Path(file))) for file in files),
        ("Program", f"fsd {version('fsd')}, python -m pipelines.detect"),
        ("Date", date.today().isoformat()),
    ]


def digest(path: Path) -> str:
    """SHA-256 of a file, or of the .txt files in a folder, in order."""
    total = hashlib.sha256()
    for file in sorted(path.rglob("*.txt")) if path.is_dir() else [path]:
        try:
            total.update(file.read_bytes())
        except OSError as error:
            raise UsageError(f"{file} must be readable; {error.strerror}") from error
    return f"SHA-256 {total.hexdigest()}"
