"""What the numbers can and cannot support, in plain words: for the terminal, MLflow and the report."""

import json
import math
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from fsd.config import FPR
from fsd.data.knowledge_cutoffs import HOLDING, Labels
from fsd.evaluation.advice import advice
from fsd.evaluation.findings import AGAINST, FOR, Finding, as_findings
from fsd.evaluation.results import CONTRASTS, FAMILIARITY, MEMBERSHIP, WITH_LATER, Contrast, Results
from fsd.scores import BASE, FSD, IN_AUDIT, Score
from fsd.statistics.intervals import Estimate, shortened
from fsd.statistics.metrics import METRICS
from fsd.text_audit.audited import Audit, Leaks, Telling, below_chance, explains

Line = TypeVar("Line")

QUESTION = "Was it in the training data?"
SIGNIFICANT = 0.05
LARGE_FAMILY = 0.2
"""Share of a kind's test texts above which one family is remarked on."""
WITHIN = f"auc_{MEMBERSHIP.name}"
"""Metric that says how well members are told from non-members of their own period."""
REVERSED = "wholly below .5: are labels reversed, in all texts or in some (1 is a member, 0 is none)?"
"""What an interval below .5 asks."""
_WRONG_WAY = "It is right less often than guessing: are labels reversed, in all texts or in some?"
_TEXTS = "a difference of the texts, which the control model shows as well"


def asks_whether_reversed(auc: Estimate | None) -> str:
    """What follows an area under the curve whose interval is below .5; "" for others."""
    return f", {REVERSED}" if below_chance(auc) else ""


class Ground(NamedTuple):
    """What is said of one state of the evidence.

    In braces are the `results`, the `auc` of that kind of evidence, and this AUC in words, `pairs`.
    """

    sign: bool  # whether it speaks for the result or against it
    short: str  # in a few words, for the terminal
    plain: str  # how sure it makes the answer, without terms of the field
    meaning: str = ""  # what follows, at the end of a conclusion


GROUNDS = {
    "texts unknown": Ground(
        AGAINST,
        "no blind classifier, bring more texts: {results.audit.blind.reason}",
        "Nothing is known of what the texts alone show: too few for a classifier that never sees the model.",
    ),
    "texts explain": Ground(
        AGAINST,
        "the texts alone explain it: blind classifier {auc}; bring members and non-members of one kind and period",
        "A classifier that never sees the model {pairs}: the texts alone explain the result.",
        ": {which} benchmark cannot show membership",
    ),
    "texts explain a part": Ground(
        AGAINST,
        "the texts alone explain a part: blind classifier {auc}; bring members and non-members of one kind and period",
        "A classifier that never sees the model {pairs}: the texts alone may explain a part of the result.",
        ": part of the result may be the difference between members and non-members",
    ),
    "texts do not explain": Ground(
        FOR,
        "the texts alone do not explain it: blind classifier {auc}",
        "A classifier that never sees the model {pairs}: the texts alone do not explain the result.",
    ),
    "no control": Ground(
        AGAINST,
        "no control model: name one by --placebo",
        "There was no control model: one that was trained on none of these texts would show what they explain.",
        ": the same procedure on one trained on none of these texts would show how much of the result is not "
        "membership",
    ),
    "control without the score": Ground(
        AGAINST,
        "{results.uncontrolled}: name another control by --placebo",
        "The control model could not compute this score: another one would show what the texts explain.",
        "; a control model that can, trained on none of these texts, would show how much of the result is not "
        "membership",
    ),
    "no lead": Ground(
        AGAINST,
        "a control model reaches {auc.short}: difference {results.lead.signed}; more texts would narrow it",
        "A control model, trained on none of these texts, {pairs}: the difference may be chance.",
        " may be zero: this result is not evidence of membership",
    ),
    "lead": Ground(
        FOR,
        "a control model reaches {auc.short}: difference {results.lead.signed}",
        "A control model, trained on none of these texts, {pairs}: the difference is more than chance.",
        " does not come from the texts alone",
    ),
    "no contemporaries": Ground(
        AGAINST,
        "no contemporaries: it may be familiarity with the members' period; bring non-members of that period",
        "No non-members of the members' own period are known: the model may know the period, not the texts.",
    ),
    "not within the period": Ground(
        AGAINST,
        "within one period: {auc}, as by chance; more texts of it would narrow the range",
        "Among texts of one period, where the period explains nothing, the score {pairs}.",
        "within the period nothing was shown, so this is not evidence of membership",
    ),
    "within the period": Ground(
        FOR,
        "within one period: {auc}",
        "Among texts of one period, where the period explains nothing, the score {pairs}.",
        "what can be due to membership is the separation within the period",
    ),
    "one period": Ground(
        FOR,
        "all texts are of one period",
        "Members and non-members are of one period, so that the period does not explain the result.",
    ),
    "leak": Ground(
        AGAINST,
        "LEAK: {results.audit.leaks.groups} groups of texts are in several parts: use --split grouped",
        "LEAK: {results.audit.leaks.groups} groups of related texts were used for more than one purpose: the numbers "
        "are too good.",
    ),
    "no leak": Ground(
        FOR,
        "nothing is in two parts of the split",
        "No text, and none that is almost the same, was used for two purposes: training, choice and measurement.",
    ),
}
"""What a result can rest on: the texts alone, the control model, the period, and the division of the texts."""


def _texts_alone(blind: Estimate | None, auc: Estimate) -> str:
    """The ground that a blind classifier gives."""
    if blind is None:
        return "texts unknown"
    if explains(blind, auc):
        return "texts explain"
    if blind.low > 0.5:
        return "texts explain a part"
    return "texts do not explain"


def _control(results: Results) -> str:
    """The ground that a control model gives."""
    lead = results.lead
    if lead is None:
        if results.uncontrolled:
            return "control without the score"
        return "no control"
    if lead.low > 0:
        return "lead"
    return "no lead"


def _period(results: Results) -> str:
    """The ground that the periods of the texts give."""
    within = results.number(results.headline, WITHIN)
    if within is None:
        return "no contemporaries"
    if not results.contrasts:
        return "one period"
    if within.low > 0.5:
        return "within the period"
    return "not within the period"


def _grounds(results: Results) -> list[Ground]:
    """What the answer rests on, with its numbers: the texts alone, a control, the period, the division."""
    blind = results.audit.blind.auc
    states = {
        _texts_alone(blind, results.auc): blind,
        _control(results): results.number(results.headline, "placebo_auc"),
        _period(results): results.number(results.headline, WITHIN),
        "leak" if results.audit.leaks.groups else "no leak": None,
    }
    grounds = []
    for state, auc in states.items():
        ground = GROUNDS[state]
        pairs = _pairs(auc) if auc else ""
        short = ground.short.format(auc=auc, results=results)
        plain = ground.plain.format(pairs=pairs, results=results)
        ground = ground._replace(short=short, plain=plain)
        if below_chance(auc):
            ground = ground._replace(sign=AGAINST, short=f"{short}; that is {REVERSED}", plain=f"{plain} {_WRONG_WAY}")
        grounds.append(ground)
    return grounds


def notes(results: Results) -> list[str]:
    """The conclusions, and whatever was left out or replaced along the way, one line each."""
    lines = conclusions(results)
    if contradiction(results):
        lines.append(f"no verdicts: {contradiction(results)}")
    if not results.parts.validation:
        lines.append("no validation texts: the accuracy is at the best threshold on the test texts themselves")
    return lines + advice(results) + caveats(results) + list(results.remarks)


def conclusions(results: Results) -> list[str]:
    """Cautious sentences about the best detector, the most important first."""
    if results.never_saw:
        lines = [
            "this model was trained on none of these texts: the whole run is a control, and any separation here is "
            "not evidence of membership",
            _result(results),
        ]
    else:
        lines = [_result(results), _placebo(results)]
    lines = _with_doubts(lines, results.labels.notes, hold=results.labels.hold)
    return lines + _gain(results) + _contrasts(results) + _gains(results) + _of_texts(results.audit)


def _with_doubts(lines: list[Line], doubts: list[Line], *, hold: bool) -> list[Line]:
    """The lines and the doubts about the labels, which come first if the labels do not hold: then nothing else does."""
    if hold:
        return lines + doubts
    return doubts + lines


def _result(results: Results) -> str:
    auc = results.auc
    blind = results.audit.blind
    line = f"{results.headline_title} {auc}{_choice(results)}"
    # what chance explains needs no other cause: none is sought below
    if below_chance(auc):
        line += f": {REVERSED}"
    elif auc.low <= 0.5:
        line += ": not distinguishable from chance, this shows nothing about membership"
    if blind.auc is None:
        line += f"; no blind classifier could be trained ({blind.reason})"
        if auc.low > 0.5:
            line += ": the cause of the result is open"
        return line
    line += f"; a blind classifier, which never sees the model, reaches {blind.auc} here"
    meaning = _meaning_of_blind(blind.auc, auc, "this")
    if below_chance(blind.auc):
        meaning = f", {REVERSED}"
    elif not meaning:
        meaning = ", no better than chance"
        if not _tells(results.audit.telling):
            meaning += ": without the model, members and non-members were not distinguishable"
    return line + meaning


def _choice(results: Results) -> str:
    """Among how many scores the headline was chosen, and on which texts; empty for a single score."""
    n_scores = _measured(results, "auc")
    if n_scores < 2:
        return ""
    if results.parts.validation:
        return f", the best of {n_scores} scores on the validation texts"
    return f", the best of {n_scores} scores on the test texts themselves, which makes it optimistic"


def _measured(results: Results, metric: str) -> int:
    """Number of scores, or of comparisons, of which a metric was measured."""
    return sum(row.metric == metric for row in results.rows.values())


def _meaning_of_blind(blind: Estimate, auc: Estimate, which: str) -> str:
    """What a blind classifier means for the AUC of a detector; empty if it is no better than chance."""
    return GROUNDS[_texts_alone(blind, auc)].meaning.format(which=which)


def _tells(telling: Telling | None) -> bool:
    """Whether a single word, pair of words or sign separates the two sides significantly."""
    return telling is not None and telling.p < SIGNIFICANT


def _gain(results: Results) -> list[str]:
    """What fine-tuning adds to the best base score, or why it adds nothing."""
    gain = results.gain
    if gain is None:
        return []
    line = (
        f"{results.title(results.best_fsd)}, the best score with fine-tuning, against the best without: "
        f"{gain.estimate.signed}: it is "
    )
    if gain.low > 0:
        return [f"{line}higher"]
    line += "lower" if gain.high < 0 else "not significantly higher"
    if results.has_contemporaries:
        line += "; members and non-members are of one period, where fine-tuning alone has nothing to gain"
    return [line]


def _placebo(results: Results) -> str:
    name = results.headline_title
    control = results.number(results.headline, "placebo_auc")
    lead = results.lead
    state = _control(results)
    meaning = GROUNDS[state].meaning
    if control is None or lead is None:
        # a control model may lack the best score alone
        of_score = f" for {name}" if _measured(results, "placebo_auc") else ""
        return f"{results.uncontrolled or f'no control model{of_score}'}{meaning}"
    if state == "lead":
        if control.low > 0.5:
            meaning = " is the most that can be due to membership"
        if _period(results) == "no contemporaries":
            meaning += "; a control model cannot exclude that it is familiarity with the members' period"
    if below_chance(control):
        meaning += f"; the control model is {REVERSED}"
    return (
        f"control model, trained on none of these texts: {name} reaches {control}; the difference, "
        f"{lead.signed},{meaning}"
    )


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
        "period; neither the blind classifier nor a control model excludes this"
    )
    if WITH_LATER not in missing:
        return [f"{unknown}; {titles} cannot be compared: all non-members are later texts"]
    # without a separation there is nothing that a period could explain
    if results.never_saw or results.auc.low <= 0.5:
        return []
    return [f"{unknown}; a column period, or --cutoff DAY, shows which texts are contemporaries"]


def _three(results: Results) -> str:
    """All three contrasts by the headline's detector: base, FSD and control model, and what they mean together."""
    detector = results.headline.detector
    numbers = ", ".join(_contrast(results, contrast) for contrast in CONTRASTS)
    # a detector that reads both models has no base score
    states = "base → FSD" if results.number(Score(detector, BASE), WITHIN) else "FSD"
    line = f"{detector} {states}: {numbers}"
    # a control has no membership to speak of: its numbers stand alone
    if results.never_saw:
        return line
    within = results.rows[*results.headline, WITHIN]
    ground = GROUNDS["within the period" if within.low > 0.5 else "not within the period"]
    return f"{line}; {_familiarity(results)}; {ground.meaning}"


def _contrast(results: Results, contrast: Contrast) -> str:
    """The numbers of one contrast by the headline's detector: base, FSD, and control model."""
    metric = f"auc_{contrast.name}"
    difference = Score(results.headline.detector, FSD)
    number = str(results.number(difference, metric))
    of_base = results.number(Score(difference.detector, BASE), metric)
    if of_base:
        number = f"{of_base.short} → {number}"
    control = results.number(difference, f"placebo_{metric}")
    if control:
        number += f" (control model {control.short})"
    return f"{contrast.title} {number}"


def _familiarity(results: Results) -> str:
    """What separates contemporaries from later texts by the FSD of the headline's detector, or else of another."""
    separated = "contemporaries, which the model never saw, are separated from later texts by"
    best = results.headline.detector
    metric = f"auc_{FAMILIARITY.name}"
    measured = [row for row in results.rows.values() if row.state == FSD and row.metric == metric]
    familiar = []
    for row in measured:
        if row.low <= 0.5:
            continue
        cause = _cause(results, row.detector)
        if row.detector == best:
            return f"{separated} {cause}"
        if cause != _TEXTS:
            familiar.append(row)
    nothing = f"no familiarity with the period was shown by {best}"
    if not familiar:
        return nothing
    highest = max(familiar, key=lambda row: row.value)
    which = f"{highest.detector}, the highest of {len(measured)}, it is {highest.estimate}"
    return f"{nothing}; by the FSD of {which}: {separated} {_cause(results, highest.detector)}"


def _cause(results: Results, detector: str) -> str:
    """What may separate contemporaries from later texts by the FSD of a detector that does."""
    lead = results.rows.get((detector, FSD, f"placebo_lead_{FAMILIARITY.name}"))
    if lead is None:
        return "familiarity with the period, or by a difference of the texts that a control model would show"
    if lead.low > 0:
        return "familiarity with the period"
    return _TEXTS


def _gains(results: Results) -> list[str]:
    """For which detectors FSD is significantly better or worse than the base score, corrected for their number."""
    n_tested = _measured(results, "auc_gain")
    if not n_tested:
        return []
    better = _significant(results, 1)
    worse = _significant(results, -1)
    parts = []
    if better:
        parts.append(f"better for {', '.join(better)}")
    if worse:
        parts.append(f"worse for {', '.join(worse)}")
    n_open = n_tested - len(better) - len(worse)
    if n_open:
        rest = "the other " if parts else ""
        parts.append(f"no significant difference for {rest}{n_open}")
    return [f"FSD against the base score (p < .05 after Holm's correction): {'; '.join(parts)}"]


def _significant(results: Results, sign: int) -> list[str]:
    """The detectors whose FSD is significantly better than their base score (1), or worse (-1)."""
    gains = [row for row in results.rows.values() if row.metric == "auc_gain" and row.p_holm < SIGNIFICANT]
    return [row.detector for row in gains if sign * row.value > 0]


def _of_texts(audit: Audit) -> list[str]:
    """What distinguishes the texts without the model: a word or sign, leaks, dates and lengths."""
    lines = []
    if audit.telling:
        lines.append(_telling(audit.telling))
    lines.append(_leaks(audit.leaks))
    for name, control in (("date", audit.date), ("length", audit.length)):
        if control.auc is not None and control.auc.low > 0.5:
            lines.append(f"the {name} alone separates members from non-members with AUC {control.auc}")
    return lines


def _telling(telling: Telling) -> str:
    p = f"(p = {shortened(telling.p, '.2g')}, corrected for {telling.looked_at:,} words, pairs and signs)"
    if _tells(telling):
        return (
            f"the most telling word, pair or sign, {telling.phrase}, is in {telling.members:.0%} of the members and "
            f"{telling.nonmembers:.0%} of the non-members {p}"
        )
    return (
        "no single word, pair of words or sign separates members from non-members; the most telling is "
        f"{telling.phrase} {p}"
    )


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
    lacking = [metric for metric in METRICS.values() if nonmembers < metric.needs]
    names = [f"{metric.label} (reliable from about {metric.needs} on)" for metric in lacking]
    if not names:
        return []
    intervals = "interval" if len(names) == 1 else "intervals"
    return [
        f"too few independent non-members, {nonmembers}, for the {intervals} of {', '.join(names)}: it depends on the "
        "few highest of them and is too narrow"
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
    base: Estimate | None = None
    """In an audit, what the base model reaches, which never saw the fine-tuning data."""

    @property
    def explains(self) -> bool:
        """Whether the texts explain the result, or the base model does (see `fsd.text_audit.audited.explains`)."""
        return self.texts_explain or self.base_explains

    @property
    def texts_explain(self) -> bool:
        """Whether a classifier that never sees the model separates the sides as well."""
        return explains(self.blind, self.auc)

    @property
    def base_explains(self) -> bool:
        """Whether the base model separates the sides as well; what it knows is a part of every score by one model."""
        if self.base is None:
            return False
        return explains(self.base, self.auc) or (self.state == IN_AUDIT.single and self.base.low > 0.5)

    @property
    def void(self) -> bool:
        """Whether no verdict can follow: the texts explain the result, or the labels do not hold or are reversed."""
        return self.explains or below_chance(self.auc) or not self.labels.hold

    @property
    def of_one_period(self) -> bool:
        """Whether the period of the texts is no explanation: there are contemporaries, or the texts are of an audit."""
        return self.contemporaries or self.state in IN_AUDIT

    @property
    def clean(self) -> bool:
        """Whether neither the texts alone nor their period may explain a part of the result."""
        controls = [self.blind, self.base] if self.base else [self.blind]
        return self.of_one_period and all(control is not None and control.low <= 0.5 for control in controls)

    @property
    def sentence(self) -> str:
        """The finding in one sentence, and any doubt about the labels."""
        return "; ".join(_with_doubts([self._finding], self.labels.notes, hold=self.labels.hold))

    @property
    def short(self) -> str:
        """Its numbers, and that there are no contemporaries; all of it where the texts or the labels explain more."""
        if self.blind is None or self.void:
            return self.sentence
        numbers = f"blind classifier {self.blind}, {self._score} {self.auc}{self._part_of_base}"
        if self.of_one_period:
            return numbers
        return f"{numbers}; no contemporaries: unread texts of the members' period may be called more often"

    @property
    def _score(self) -> str:
        return Score(self.detector, self.state).title(paired=self.paired)

    @property
    def _part_of_base(self) -> str:
        """What the base means where it separates the sides, and the texts do not explain the result anyway."""
        if self.base is None or self.base.low <= 0.5 or self.explains:
            return ""
        return (
            f"; the base model, which never saw the fine-tuning data, reaches {self.base}: part of the result may be "
            "what it knew before"
        )

    @property
    def _finding(self) -> str:
        if self.base_explains and not self.texts_explain:
            return (
                f"the base model, which never saw the fine-tuning data, reaches {self.base} on the adapter's "
                f"benchmark, {self._score} {self.auc}: the two sides differ before the fine-tuning"
            )
        finding = f"no blind classifier could be trained on the adapter's benchmark ({self.reason})"
        if self.blind is not None:
            meaning = _meaning_of_blind(self.blind, self.auc, "that")
            finding = (
                f"a blind classifier, which never sees the model, reaches {self.blind} on the adapter's benchmark, "
                f"{self._score} {self.auc}{meaning}"
            )
        if below_chance(self.auc):
            return f"{finding}: the score {self.auc} is {REVERSED}"
        finding += self._part_of_base
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
    blind = results.audit.blind
    return AuditSummary(
        detector=score.detector,
        auc=results.rows[*score, "auc"].estimate,
        blind=blind.auc,
        reason=blind.reason,
        contemporaries=results.has_contemporaries,
        state=score.state,
        labels=results.labels,
        paired=results.paired(score.detector),
        base=results.number(score, "base_auc"),
    )


class Judgement(NamedTuple):
    """Whether members can be distinguished from non-members and why, and what would change this answer."""

    answer: str
    change: str


JUDGEMENTS = {
    "labels": Judgement(
        "No answer: the model may have been trained on the non-members as well, so their labels do not hold",
        "non-members that are later than the model's data, or contemporaries that are known not to be in it",
    ),
    "control": Judgement(
        "This run is a control: the model was trained on none of these texts",
        "a model that may have been trained on these texts",
    ),
    "reversed": Judgement(
        "Not shown: the scores of the non-members are higher, as where labels are reversed",
        "labels the right way round: 1 for a member, 0 for a non-member",
    ),
    "chance": Judgement(
        "Not shown: the scores do not distinguish the two kinds of texts better than guessing",
        "more texts, which narrow the interval, or another detector, which has to be chosen on the validation texts",
    ),
    "texts": Judgement(
        "Not shown: a classifier that never sees the model distinguishes these texts about as well",
        "members and non-members of one period and kind, which a classifier without the model cannot distinguish",
    ),
    "unvalidated": Judgement(
        "Open: the scores distinguish the two kinds of texts, but the best of them was chosen on these very texts",
        "validation texts, which choose the score (--validation 0.2)",
    ),
    "unexplained": Judgement(
        "Open: the scores distinguish the two kinds of texts, but nothing shows why",
        "a run with a control model, which was trained on none of these texts",
    ),
    "placebo": Judgement(
        "Not shown: a control model trained on none of these texts distinguishes them about as well",
        "a clearer difference from the control model: more texts, or a detector or adapter that separates better",
    ),
    "period": Judgement(
        "Probably: the scores distinguish them better than a control model, but it may know their period only",
        "contemporaries, non-members of the members' own period: if the difference vanishes on them, it was the period",
    ),
    "lead": Judgement(
        "Yes, as a set: texts of one period are distinguished better than by a control model trained on none of them",
        "a classifier without the model that separates the texts as well, or a control model that does",
    ),
}
"""State of the evidence → the answer."""


def judgement(results: Results) -> str:
    """A key of `JUDGEMENTS`."""
    # the order is that of what a reason rules out: without labels nothing is known, and what chance explains needs no
    # other explanation
    if not results.labels.hold:
        return "labels"
    if results.never_saw:
        return "control"
    if below_chance(results.auc):
        return "reversed"
    if results.auc.low <= 0.5:
        return "chance"
    if _texts_alone(results.audit.blind.auc, results.auc) == "texts explain":
        return "texts"
    control = _control(results)
    if results.lead is None:
        return "unexplained"
    if control == "no lead":
        return "placebo"
    # the best of many scores on the same texts may be so by chance
    if not results.parts.validation:
        return "unvalidated"
    if results.has_contemporaries:
        return "lead"
    return "period"


def barred(results: Results) -> str:
    """Why a registered version must not become champion; empty if it may."""
    if not results.labels.hold:
        return results.labels.doubt
    audit = audit_summary(results)
    if audit.void:
        return audit.sentence
    if not results.parts.validation:
        return "its score was chosen on the texts that measure it: set others aside by --validation 0.2"
    score = results.verdict_score
    controls = {"blind classifier": audit.blind, "control model": results.number(score, "placebo_auc")}
    for name, auc in controls.items():
        if below_chance(auc):
            return f"the {name} reaches {auc}, {REVERSED}"
    lead = results.number(score, "placebo_lead")
    if lead is not None and lead.low <= 0:
        return f"the lead of {score.detector} over the control model, {lead}, may be zero"
    return contradiction(results)


def contradiction(results: Results) -> str:
    """Why the own non-members of a source allow no verdicts at the usual rate; empty if they do, or none are given."""
    calibration = results.calibration
    rate = _supported_rate(results)
    if calibration is None or rate is None:
        return ""
    reasons = [calibration.of(source).contradiction(rate) for source in calibration.judged]
    return next(filter(None, reasons), "")


def verdict_rate(results: Results) -> float | None:
    """The usual false-positive rate of verdicts, or the smallest one that is possible; None if there are none."""
    rate = _supported_rate(results)
    if rate is None or results.calibration is None or not results.calibration.judged_at(rate):
        return None
    return rate


def _supported_rate(results: Results) -> float | None:
    """The rate of `verdict_rate`, even if the own non-members contradict it."""
    if results.calibration is None or audit_summary(results).void:
        return None
    calibration = results.calibration
    finest = [calibration.of(source).finest for source in calibration.judged]
    if not finest:
        return None
    # Rounded up, as a smaller one would be refused.
    return max(FPR, math.ceil(1000 * max(finest)) / 1000)


def headline(results: Results) -> str:
    """The question, the answer, and its numbers, each with its name."""
    verdict, _, _ = JUDGEMENTS[judgement(results)].answer.partition(":")
    line = f"{QUESTION} {verdict}: AUC {results.auc} ({results.headline_title})"
    controls = []
    control = results.number(results.headline, "placebo_auc")
    if control:
        controls.append(f"control model {control.short}")
    blind = results.audit.blind.auc
    if blind:
        controls.append(f"texts alone {blind.short}")
    return "; ".join(filter(None, [line, ", ".join(controls)]))


def description(results: Results) -> str:
    """The headline, the answer and what would change it, in Markdown."""
    verdict, change = JUDGEMENTS[judgement(results)]
    return f"{headline(results)}\n\n{verdict}. The answer would be changed by {change}."


def signs(results: Results) -> list[Finding]:
    """What speaks for the result and against it, each in a few words."""
    texts_alone, control, period, division = [Finding(ground.short, ground.sign) for ground in _grounds(results)]
    lines = []
    if results.never_saw:
        lines.append(
            Finding("a control run, of a model that saw none of these texts: name another by --model", AGAINST)
        )
    lines.append(texts_alone)
    telling = results.audit.telling
    if telling and _tells(telling):
        lines.append(Finding(f"a sign distinguishes the texts: {telling.phrase}; bring texts without it", AGAINST))
    lines += [control, period]
    lines = _with_doubts(lines, as_findings(results.labels.notes, AGAINST), hold=results.labels.hold)
    lines.append(division)
    if results.gain:
        gains = results.gain.low > 0
        line = f"{results.title(results.best_fsd)} against the best base score: {results.gain.estimate.signed}"
        if not gains:
            line += "; read base scores"
        lines.append(Finding(line, gains))
    if contradiction(results):
        lines.append(Finding(f"no verdicts: {contradiction(results)}", AGAINST))
    lines += as_findings(_remarks_with_a_remedy(results), AGAINST)
    if not results.parts.validation:
        lines.append(Finding("chosen on the test texts, which flatters: set others aside by --validation 0.2", AGAINST))
    return lines


def _remarks_with_a_remedy(results: Results) -> list[str]:
    """The remarks on detectors that name a flag by which to avoid them; the report has the others as well."""
    detectors = {str(column).rpartition(".")[0] for column in results.scores}
    on_detectors = [remark for remark in results.remarks if remark.partition(":")[0] in detectors]
    return [remark for remark in on_detectors if "try --" in remark]


def of_model(identity: str) -> str:
    """The model in a sentence."""
    if identity.startswith("embedded"):
        return f"the {identity} model"
    return f"the model “{identity}”"


def sure(results: Results) -> list[str]:
    """What the answer rests on, without terms of the field: the texts alone, a control, the period, the division."""
    texts_alone, control, period, division = [ground.plain for ground in _grounds(results)]
    # the run takes the place of the control model, which it has none of
    if results.never_saw:
        control = "This run is itself the control: whatever it distinguishes, it distinguishes by the texts alone."
    doubts = [f"{doubt[0].upper()}{doubt[1:]}." for doubt in results.labels.notes]
    return _with_doubts([texts_alone, control, period, division], doubts, hold=results.labels.hold)


def _of_hundred(estimate: Estimate) -> list[int]:
    """A share and the ends of its interval in whole percents."""
    return [round(100 * number) for number in estimate]


def _pairs(auc: Estimate) -> str:
    """The AUC in words."""
    value, low, high = _of_hundred(auc)
    return f"is right in {value} of 100 such pairs ({low} to {high})"


def answer(results: Results) -> list[str]:
    """The answer in words and numbers, without terms of the field."""
    verdict = JUDGEMENTS[judgement(results)].answer
    score = results.headline_title
    right, low, high = _of_hundred(results.auc)
    detected, least, most = _of_hundred(results.rows[*results.headline, "tpr_at_5fpr"].estimate)
    return [
        f"{verdict}.",
        "Take one text from the training data and one from outside it. The best score, "
        f"“{score}”, is higher for the former in {right} of 100 such pairs; guessing gets 50. With other texts of the "
        f"same kind it could be {low} to {high} (95 % interval).",
        f"If 5 of 100 outside texts may wrongly be called training texts, {detected} of 100 training texts are found "
        f"({least} to {most}).",
    ]


def changes(results: Results) -> list[str]:
    """What would change the answer, in sentences."""
    change = JUDGEMENTS[judgement(results)].change
    _, low, high = _of_hundred(results.auc)
    members, nonmembers = families_of(results)
    lines = [
        f"The answer would be changed by {change}.",
        f"The range of {low} to {high} rests on {members} independent texts from the training data and {nonmembers} "
        "from outside it; four times as many would about halve it.",
    ]
    if not results.parts.validation:
        lines.append("The detector was chosen on these very texts; on new texts it is likely to do less well.")
    return lines
