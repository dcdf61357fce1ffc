"""What the numbers can and cannot support, in plain words: for the terminal, MLflow and the report."""

import json
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from fsd.data.knowledge_cutoffs import HOLDING, Labels
from fsd.data.splitting import CONTEMPORARY
from fsd.evaluation.advice import advice
from fsd.evaluation.audit import Audit, Leaks, explains
from fsd.evaluation.findings import AGAINST, FOR, Finding, as_findings
from fsd.evaluation.results import CONTRASTS, FAMILIARITY, MEMBERSHIP, WITH_LATER, Results
from fsd.evaluation.rows import Row
from fsd.scores import BASE, FSD, IN_AUDIT, Score
from fsd.statistics.intervals import Estimate, shortened
from fsd.statistics.metrics import METRICS

Line = TypeVar("Line")

SIGNIFICANT = 0.05
LARGE_FAMILY = 0.2
"""Share of a kind's test texts above which one family is remarked on."""
_TEXTS = "a difference of the texts, which the control model shows as well"


def notes(results: Results) -> list[str]:
    """The conclusions, and whatever was left out or replaced along the way, one line each."""
    lines = conclusions(results)
    if not results.parts.validation:
        lines.append("no validation texts: the accuracy is at the best threshold on the test texts themselves")
    return [*lines, *advice(results), *caveats(results), *results.remarks]


def conclusions(results: Results) -> list[str]:
    """Cautious sentences about the best detector, the most important first."""
    if results.never_saw:
        control = (
            "this model was trained on none of these texts: the whole run is a control, and any separation here is "
            "not evidence of membership"
        )
        lines = [control, _result(results)]
    else:
        lines = [_result(results), _placebo(results)]
    lines = _with_doubts(lines, results.labels.notes, hold=results.labels.hold)
    return lines + _gain(results) + _contrasts(results) + _gains(results) + _of_texts(results.audit)


def _with_doubts(lines: list[Line], doubts: list[Line], *, hold: bool) -> list[Line]:
    """The lines and the doubts about the labels, which come first if the labels do not hold: then nothing else does."""
    return lines + doubts if hold else doubts + lines


def _result(results: Results) -> str:
    auc = results.auc
    blind = results.audit.blind
    line = f"{results.title(results.headline)} {auc}"
    n_scores = sum(row.metric == "auc" for row in results.rows.values())
    if n_scores > 1:
        where = "validation texts" if results.parts.validation else "test texts themselves, which makes it optimistic"
        line += f", the best of {n_scores} scores on the {where}"
    # what chance explains needs no other cause: none is sought below
    if auc.low <= 0.5:
        line += ": not distinguishable from chance, this shows nothing about membership"
    if blind.auc is None:
        line += f"; no blind classifier could be trained ({blind.reason})"
        return line if auc.low <= 0.5 else f"{line}: the cause of the result is open"
    line += f"; a blind classifier, which never sees the model, reaches {blind.auc} here"
    meaning = _blind(blind.auc, auc, "this")
    if meaning:
        return line + meaning
    line += ", no better than chance"
    if not _is_telling(results.audit):
        line += ": without the model, members and non-members were not distinguishable"
    return line


def _blind(blind: Estimate, auc: Estimate, which: str) -> str:
    """What a blind classifier means for the AUC of a detector; empty if it is no better than chance."""
    if explains(blind, auc):
        return f": {which} benchmark cannot show membership"
    return ": part of the result may be the difference between members and non-members" if blind.low > 0.5 else ""


def _is_telling(audit: Audit) -> bool:
    """Whether a single word, pair of words or sign separates the two sides significantly."""
    return audit.telling is not None and audit.telling.p < SIGNIFICANT


def _gain(results: Results) -> list[str]:
    """What fine-tuning adds to the best base score, or why it adds nothing."""
    gain = results.gain
    if gain is None:
        return []
    fine_tuned = results.title(results.best_fsd)
    start = f"{fine_tuned}, the best score with fine-tuning, against the best without: {gain.estimate.signed}"
    if gain.low > 0:
        return [f"{start}: it is higher"]
    line = f"{start}: it is {'lower' if gain.high < 0 else 'not significantly higher'}"
    if (results.kind == CONTEMPORARY).any():
        line += "; members and non-members are of one period, where fine-tuning alone has nothing to gain"
    return [line]


def _placebo(results: Results) -> str:
    name = results.title(results.headline)
    control = results.number(results.headline, "placebo_auc")
    lead = results.number(results.headline, "placebo_lead")
    if control is None or lead is None:
        # a control model may lack the best score alone
        some = any(row.metric == "placebo_auc" for row in results.rows.values())
        return (
            f"no placebo{f' for {name}' if some else ''}: the same procedure on a control model trained on none of "
            "these texts would show how much of the result is not membership"
        )
    start = (
        f"placebo: {name} reaches {control} on a control model trained on none of these texts; the difference, "
        f"{lead.signed},"
    )
    if lead.low <= 0:
        return f"{start} may be zero: this result is not evidence of membership"
    most = "is the most that can be due to membership" if control.low > 0.5 else "does not come from the texts alone"
    if results.number(results.headline, f"auc_{MEMBERSHIP.name}"):
        return f"{start} {most}"
    return f"{start} {most}; a placebo cannot exclude that it is familiarity with the members' period"


def _contrasts(results: Results) -> list[str]:
    """The contrasts and what follows from them, or what cannot be said without them."""
    missing = [contrast for contrast in CONTRASTS if not results.number(results.best_fsd, f"auc_{contrast.name}")]
    if not missing:
        return [_three(results)]
    titles = " and ".join(contrast.title for contrast in missing)
    if MEMBERSHIP not in missing:
        return [
            "all non-members are contemporaries, of the members' own period, so that familiarity with the period "
            f"cannot explain the result; {titles} cannot be compared: there are no later texts"
        ]
    unknown = (
        "without contemporaries (non-members of the members' own period) a separation may be familiarity with that "
        "period; neither the blind classifier nor a placebo excludes this"
    )
    if WITH_LATER not in missing:
        return [f"{unknown}; {titles} cannot be compared: all non-members are later texts"]
    # without a separation there is nothing that a period could explain
    if results.never_saw or results.auc.low <= 0.5:
        return []
    return [f"{unknown}; a column period, or --cutoff DAY, shows which texts are contemporaries"]


def _three(results: Results) -> str:
    """All three contrasts by the best detector: base, FSD and control model, and what they mean together."""
    numbers = []
    base = Score(results.best_fsd.detector, BASE)
    for contrast in CONTRASTS:
        number = str(results.number(results.best_fsd, f"auc_{contrast.name}"))
        of_base = results.number(base, f"auc_{contrast.name}")
        if of_base:
            number = f"{of_base.short} → {number}"
        placebo = results.number(results.best_fsd, f"placebo_auc_{contrast.name}")
        if placebo:
            number += f" (placebo {placebo.short})"
        numbers.append(f"{contrast.title} {number}")
    # a detector that reads both models has no base score
    states = "base → FSD" if results.number(base, f"auc_{MEMBERSHIP.name}") else "FSD"
    start = f"{results.best_fsd.detector} {states}: {', '.join(numbers)}"
    # a control has no membership to speak of: its numbers stand alone
    if results.never_saw:
        return start
    if results.rows[*results.best_fsd, f"auc_{MEMBERSHIP.name}"].low > 0.5:
        end = "what can be due to membership is the separation within the period"
    else:
        end = "within the period nothing was shown, so this is not evidence of membership"
    return f"{start}; {_familiarity(results)}; {end}"


def _familiarity(results: Results) -> str:
    """What separates contemporaries from later texts by the FSD of the best detector, or else by that of another."""
    separated = "contemporaries, which the model never saw, are separated from later texts by"
    metric = f"auc_{FAMILIARITY.name}"
    measured = [row for row in results.rows.values() if row.state == FSD and row.metric == metric]
    causes = {row.detector: _cause(results, row.detector) for row in measured if row.low > 0.5}
    if results.best_fsd.detector in causes:
        return f"{separated} {causes[results.best_fsd.detector]}"
    nothing = f"no familiarity with the period was shown by {results.best_fsd.detector}"
    familiar = [row for row in measured if causes.get(row.detector, _TEXTS) != _TEXTS]
    if not familiar:
        return nothing
    highest = max(familiar, key=lambda row: row.value)
    which = f"{highest.detector}, the highest of {len(measured)}, it is {highest.estimate}"
    return f"{nothing}; by the FSD of {which}: {separated} {causes[highest.detector]}"


def _cause(results: Results, detector: str) -> str:
    """What may separate contemporaries from later texts by the FSD of a detector that does."""
    lead = results.rows.get((detector, FSD, f"placebo_lead_{FAMILIARITY.name}"))
    if lead is None:
        return "familiarity with the period, or by a difference of the texts that a placebo would show"
    return "familiarity with the period" if lead.low > 0 else _TEXTS


def _gains(results: Results) -> list[str]:
    """For which detectors FSD is significantly better or worse than the base score, corrected for their number."""
    n_tested = sum(row.metric == "auc_gain" for row in results.rows.values())
    if not n_tested:
        return []
    better = [row.detector for row in _significant_gains(results) if row.value > 0]
    worse = _worse(results)
    parts = []
    if better:
        parts.append(f"better for {', '.join(better)}")
    if worse:
        parts.append(f"worse for {', '.join(worse)}")
    n_open = n_tested - len(better) - len(worse)
    if n_open:
        parts.append(f"no significant difference for {'the other ' if parts else ''}{n_open}")
    return [f"FSD against the base score (p < .05 after Holm's correction): {'; '.join(parts)}"]


def _significant_gains(results: Results) -> list[Row]:
    return [row for row in results.rows.values() if row.metric == "auc_gain" and row.p_holm < SIGNIFICANT]


def _worse(results: Results) -> list[str]:
    """The detectors whose FSD is significantly worse than their base score."""
    return [row.detector for row in _significant_gains(results) if row.value < 0]


def _of_texts(audit: Audit) -> list[str]:
    """What distinguishes the texts without the model: a word or sign, leaks, dates and lengths."""
    lines = []
    telling = audit.telling
    if telling:
        p = f"(p = {shortened(telling.p, '.2g')}, corrected for {telling.looked_at:,} words, pairs and signs)"
        line = (
            "no single word, pair of words or sign separates members from non-members; the most telling is "
            f"{telling.phrase} {p}"
        )
        if _is_telling(audit):
            line = (
                f"the most telling word, pair or sign, {telling.phrase}, is in {telling.members:.0%} of the members "
                f"and {telling.nonmembers:.0%} of the non-members {p}"
            )
        lines.append(line)
    lines.append(_leaks(audit.leaks))
    for name, control in (("date", audit.date), ("length", audit.length)):
        if control.auc is not None and control.auc.low > 0.5:
            lines.append(f"the {name} alone separates members from non-members with AUC {control.auc}")
    apart = [
        f"{name} {overlap.value:.0%} (matched texts would show {overlap.chance:.0%})"
        for name, overlap in audit.overlaps.items()
        if overlap.value < 0.9 * overlap.chance
    ]
    if apart:
        lines.append(f"members and non-members overlap little in {', '.join(apart)}")
    return lines


def _leaks(leaks: Leaks) -> str:
    if not leaks.groups:
        return "no group and no set of near-duplicates spans two parts of the split"
    return (
        f"LEAK: groups of texts that span more than one part of the split: {leaks.groups}; of {leaks.test} test texts, "
        f"{leaks.tested} belong to a group that was used for fine-tuning, which their scores measure, and "
        f"{leaks.calibrated} to one that was used to choose thresholds"
    )


def caveats(results: Results) -> list[str]:
    """What too few families in the test, or one large one, do not support."""
    lines = too_few(families_of(results)[1])
    tested = (results.scores["split"] == "test").to_numpy()
    # kind by kind, since each contrast rests on two of them
    for kind, families in results.scores["group"][tested].groupby(results.kind[tested]):
        sizes = families.value_counts()
        # among few texts a single one may be above the share, but it is no family
        if sizes.iloc[0] > max(1, LARGE_FAMILY * len(families)):
            lines.append(
                f"{sizes.iloc[0]} of the {len(families)} {kind} test texts are one family of related texts, of "
                f"{len(sizes)} families in all: numbers on these texts rest largely on it"
            )
    return lines


def families_of(results: Results) -> tuple[int, int]:
    """Number of families of members, and of non-members, among the judged test texts."""
    n_families = results.judged.groupby("label")["group"].nunique()
    return int(n_families[1]), int(n_families[0])


def too_few(nonmembers: int) -> list[str]:
    """One line for the metrics whose intervals are too narrow with this number of families of non-members."""
    names = [
        f"{metric.label} (reliable from about {metric.needs} on)"
        for metric in METRICS.values()
        if nonmembers < metric.needs
    ]
    if not names:
        return []
    return [
        f"too few independent non-members, {nonmembers}, for the {'interval' if len(names) == 1 else 'intervals'} of "
        f"{', '.join(names)}: it depends on the few highest of them and is too narrow"
    ]


@dataclass(frozen=True)
class AuditSummary:
    """How well a detector and a blind classifier separate the same test texts; it travels with a registered adapter."""

    detector: str
    auc: Estimate
    blind: Estimate | None
    reason: str = ""
    contemporaries: bool = False
    state: str = FSD
    labels: Labels = HOLDING
    paired: bool = False

    @property
    def explains(self) -> bool:
        """Whether the blind classifier explains the result (see `fsd.evaluation.audit.explains`)."""
        return explains(self.blind, self.auc)

    @property
    def of_one_period(self) -> bool:
        """Whether the period of the texts is no explanation: there are contemporaries, or the texts are of an audit."""
        return self.contemporaries or self.state in IN_AUDIT

    @property
    def clean(self) -> bool:
        """Whether neither the texts alone nor their period may explain a part of the result."""
        return self.blind is not None and self.blind.low <= 0.5 and self.of_one_period

    @property
    def sentence(self) -> str:
        """The finding in one sentence, and any doubt about the labels."""
        return "; ".join(_with_doubts([self._finding], self.labels.notes, hold=self.labels.hold))

    @property
    def _finding(self) -> str:
        finding = f"no blind classifier could be trained on the adapter's benchmark ({self.reason})"
        if self.blind is not None:
            meaning = _blind(self.blind, self.auc, "that")
            score = Score(self.detector, self.state).title(paired=self.paired)
            finding = (
                f"a blind classifier, which never sees the model, reaches {self.blind} on the adapter's benchmark, "
                f"{score} {self.auc}{meaning}"
            )
        if self.explains or self.of_one_period:
            return finding
        return (
            f"{finding}; that benchmark has no contemporaries (non-members of the members' own period), so texts "
            "of that period which the model never saw may be called members more often"
        )

    def to_json(self) -> str:
        """The summary as JSON text; `explains` and `sentence` are for readers, and are derived again on reading."""
        # read by people as well, who have no code to derive the sentence by
        values = {**vars(self), "explains": self.explains, "sentence": self.sentence}
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def audit_summary(results: Results) -> AuditSummary:
    """What the audit says about the score by which verdicts are given."""
    score = results.verdict_score
    return AuditSummary(
        detector=score.detector,
        auc=results.rows[*score, "auc"].estimate,
        blind=results.audit.blind.auc,
        reason=results.audit.blind.reason,
        contemporaries=bool((results.kind == CONTEMPORARY).any()),
        state=score.state,
        labels=results.labels,
        paired=results.paired(score.detector),
    )


JUDGEMENTS = {
    "labels": (
        "No answer: the model may have been trained on the non-members as well, so their labels do not hold",
        "non-members that are later than the model's data, or contemporaries that are known not to be in it",
    ),
    "control": (
        "This run is a control: the model was trained on none of these texts",
        "a model that may have been trained on these texts",
    ),
    "chance": (
        "Not shown: the scores do not distinguish the two kinds of texts better than guessing",
        "more texts, which narrow the interval, or another detector, which has to be chosen on the validation texts",
    ),
    "texts": (
        "Not shown: a classifier that never sees the model distinguishes these texts about as well",
        "members and non-members of one period and kind, which a classifier without the model cannot distinguish",
    ),
    "unexplained": (
        "Open: the scores distinguish the two kinds of texts, but nothing shows why",
        "a run with a placebo, a control model trained on none of these texts",
    ),
    "placebo": (
        "Not shown: a control model trained on none of these texts distinguishes them about as well",
        "a clearer difference from the control model: more texts, or a detector or adapter that separates better",
    ),
    "period": (
        "Probably: the scores distinguish them better than a control model, but it may know their period only",
        "contemporaries, non-members of the members' own period: if the difference vanishes on them, it was the period",
    ),
    "lead": (
        "Yes, as a set: texts of one period are distinguished better than by a control model trained on none of them",
        "a classifier without the model that separates the texts as well, or a control model that does",
    ),
}
"""Whether members can be distinguished from non-members and why, and what would change this answer."""


def judgement(results: Results) -> str:
    """A key of `JUDGEMENTS`."""
    # the order is that of what a reason rules out: without labels nothing is known, and what chance explains needs no
    # other explanation
    if not results.labels.hold:
        return "labels"
    if results.never_saw:
        return "control"
    if results.auc.low <= 0.5:
        return "chance"
    if explains(results.audit.blind.auc, results.auc):
        return "texts"
    lead = results.number(results.headline, "placebo_lead")
    if lead is None:
        return "unexplained"
    if lead.low <= 0:
        return "placebo"
    return "lead" if (results.kind == CONTEMPORARY).any() else "period"


def barred(results: Results) -> str:
    """Why a registered version must not become champion; empty if it may."""
    if not results.labels.hold:
        return results.labels.doubt
    audit = audit_summary(results)
    if audit.explains:
        return audit.sentence
    score = results.verdict_score
    lead = results.number(score, "placebo_lead")
    if lead is None or lead.low > 0:
        return ""
    return f"the lead of {score.detector} over the control model, {lead}, may be zero"


def headline(results: Results) -> str:
    """The answer and its numbers in a line."""
    numbers = [f"{results.title(results.headline)} {results.auc}"]
    control = results.number(results.headline, "placebo_auc")
    if control:
        numbers.append(f"control {control.short}")
    if results.audit.blind.auc:
        numbers.append(f"blind {results.audit.blind.auc.short}")
    verdict = JUDGEMENTS[judgement(results)][0].partition(":")[0]
    return f"{verdict}: {' · '.join(numbers)}"


def description(results: Results) -> str:
    """The headline, the answer and what would change it, in Markdown."""
    verdict, change = JUDGEMENTS[judgement(results)]
    return f"{headline(results)}\n\n{verdict}. The answer would be changed by {change}."


class Ground(NamedTuple):
    """One thing that an answer rests on: in a few words with their sign, and in a plain sentence."""

    finding: Finding
    plain: str


def _of_blind(results: Results) -> Ground:
    """Whether the texts alone explain the result."""
    blind = results.audit.blind.auc
    if blind is None:
        return Ground(
            Finding(f"no blind classifier: {results.audit.blind.reason}", AGAINST),
            plain="Nothing is known of what the texts alone show: too few for a classifier that never sees the model.",
        )
    explained = "do not explain"
    sign = "the texts alone do not explain it"
    if explains(blind, results.auc):
        explained = "explain"
        sign = "the texts alone explain it"
    elif blind.low > 0.5:
        explained = "may explain a part of"
        sign = "the texts alone explain a part"
    return Ground(
        Finding(f"{sign}: blind classifier {blind}", blind.low <= 0.5),
        plain=f"A classifier that never sees the model {_pairs(blind)}: the texts alone {explained} the result.",
    )


def _of_control(results: Results) -> Ground:
    """Whether a control model that was trained on none of the texts does as well."""
    control = results.number(results.headline, "placebo_auc")
    lead = results.number(results.headline, "placebo_lead")
    if control is None or lead is None:
        return Ground(
            Finding("no control model: name one by --placebo", AGAINST),
            plain="There was no control model: one that was trained on none of these texts would show what they "
            "explain.",
        )
    meaning = "is more than chance" if lead.low > 0 else "may be chance"
    numbers = f"a control model reaches {control.short}: difference {lead.signed}"
    return Ground(
        Finding(numbers, lead.low > 0),
        plain=f"A control model, trained on none of these texts, {_pairs(control)}: the difference {meaning}.",
    )


def _of_period(results: Results) -> Ground:
    """Whether the members' period alone may explain the result."""
    within = results.number(results.headline, f"auc_{MEMBERSHIP.name}")
    if within is None:
        return Ground(
            Finding("no contemporaries: it may be familiarity with the members' period", AGAINST),
            plain="No non-members of the members' own period are known: the model may know the period, not the texts.",
        )
    if results.contrasts:
        return Ground(
            Finding(f"within one period: {within}", within.low > 0.5),
            plain=f"Among texts of one period, where the period explains nothing, the score {_pairs(within)}.",
        )
    return Ground(
        Finding("all texts are of one period", FOR),
        plain="Members and non-members are of one period, so that the period does not explain the result.",
    )


def _of_division(results: Results) -> Ground:
    """Whether related texts were used for more than one purpose."""
    leaks = results.audit.leaks.groups
    if leaks:
        return Ground(
            Finding(f"LEAK: {leaks} groups of texts are in more than one part of the split", AGAINST),
            plain=f"LEAK: {leaks} groups of related texts were used for more than one purpose: the numbers are too "
            "good.",
        )
    return Ground(
        Finding("nothing is in two parts of the split", FOR),
        plain="No text, and none that is almost the same, was used for two purposes: training, choice and measurement.",
    )


def signs(results: Results) -> list[Finding]:
    """What speaks for the result and against it, each in a few words."""
    lines = []
    if results.never_saw:
        lines.append(Finding("a control run: the model was trained on none of these texts", AGAINST))
    lines.append(_of_blind(results).finding)
    telling = results.audit.telling
    if telling and _is_telling(results.audit):
        lines.append(Finding(f"a sign distinguishes the texts: {telling.phrase}", AGAINST))
    lines += [_of_control(results).finding, _of_period(results).finding]
    doubts = as_findings(results.labels.notes, AGAINST)
    lines = _with_doubts(lines, doubts, hold=results.labels.hold)
    lines.append(_of_division(results).finding)
    if results.gain:
        fine_tuned = results.title(results.best_fsd)
        difference = results.gain.estimate.signed
        lines.append(Finding(f"{fine_tuned} against the best base score: {difference}", results.gain.low > 0))
    worse = _worse(results)
    if worse:
        lines.append(Finding(f"FSD is worse than the base score for {', '.join(worse)}", AGAINST))
    lines += as_findings(_remarks_on_detectors(results), AGAINST)
    if not results.parts.validation:
        lines.append(Finding("chosen on the test texts themselves: on new texts it is likely to do less well", AGAINST))
    return lines


def _remarks_on_detectors(results: Results) -> list[str]:
    """The remarks that begin with the name of a detector, shortened."""
    detectors = {str(column).rpartition(".")[0] for column in results.scores}
    remarks = (remark.removesuffix("; the weaker condition was used") for remark in results.remarks)
    return [remark for remark in remarks if remark.partition(":")[0] in detectors]


def of_model(identity: str) -> str:
    """The model in a sentence."""
    return f"the {identity} model" if identity.startswith("embedded") else f"the model “{identity}”"


def sure(results: Results) -> list[str]:
    """What the answer rests on, without terms of the field: the texts alone, a control, the period, the division."""
    control = _of_control(results).plain
    # the run takes the place of the control model, which it has none of
    if results.never_saw:
        control = "This run is itself the control: whatever it distinguishes, it distinguishes by the texts alone."
    lines = [_of_blind(results).plain, control, _of_period(results).plain, _of_division(results).plain]
    doubts = [f"{doubt[0].upper()}{doubt[1:]}." for doubt in results.labels.notes]
    return _with_doubts(lines, doubts, hold=results.labels.hold)


def _of_hundred(estimate: Estimate) -> list[int]:
    """A share and the ends of its interval in whole percents."""
    return [round(100 * number) for number in estimate]


def _pairs(auc: Estimate) -> str:
    """The AUC in words."""
    value, low, high = _of_hundred(auc)
    return f"is right in {value} of 100 such pairs ({low} to {high})"


def answer(results: Results) -> list[str]:
    """The answer in words and numbers, without terms of the field."""
    right, low, high = _of_hundred(results.auc)
    detected, least, most = _of_hundred(results.rows[*results.headline, "tpr_at_5fpr"].estimate)
    return [
        f"{JUDGEMENTS[judgement(results)][0]}.",
        "Take one text from the training data and one from outside it. The best score, "
        f"“{results.title(results.headline)}”, is higher for the former in {right} of 100 such pairs; guessing gets "
        f"50. With other texts of the same kind it could be {low} to {high} (95 % interval).",
        f"If 5 of 100 outside texts may wrongly be called training texts, {detected} of 100 training texts are found "
        f"({least} to {most}).",
    ]


def changes(results: Results) -> list[str]:
    """What would change the answer, in sentences."""
    _, low, high = _of_hundred(results.auc)
    members, nonmembers = families_of(results)
    lines = [
        f"The answer would be changed by {JUDGEMENTS[judgement(results)][1]}.",
        f"The range of {low} to {high} rests on {members} independent texts from the training data and {nonmembers} "
        "from outside it; four times as many would about halve it.",
    ]
    if not results.parts.validation:
        lines.append("The detector was chosen on these very texts; on new texts it is likely to do less well.")
    return lines
