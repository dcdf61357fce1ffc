"""The answer of a run: its state and its numbers, worked out once for whoever says something of it."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from fsd.config import FPR
from fsd.data.knowledge_cutoffs import HOLDING, Labels
from fsd.evaluation.findings import AGAINST, FOR
from fsd.evaluation.results import MEMBERSHIP, WITH_LATER, Results, charted
from fsd.scores import FSD, IN_AUDIT, Score
from fsd.statistics.intervals import Estimate
from fsd.text_audit.audited import below_chance, explains

WITHIN = f"auc_{MEMBERSHIP.name}"
"""Metric that says how well members are told from non-members of their own period."""
REVERSED = "wholly below .5: are labels reversed, in all texts or in some (1 is a member, 0 is none)?"
"""What an interval below .5 asks."""
_WRONG_WAY = "It is right less often than guessing: are labels reversed, in all texts or in some?"
Line = TypeVar("Line")


def asks_whether_reversed(auc: Estimate | None) -> str:
    """What follows an area under the curve whose interval is below .5; "" for others."""
    return f", {REVERSED}" if below_chance(auc) else ""


def percents(estimate: Estimate) -> list[int]:
    """A share and the ends of its interval in whole percents."""
    return [round(100 * number) for number in estimate]


def with_doubts(lines: list[Line], labels: Labels, say: Callable[[str], Line]) -> list[Line]:
    """The lines and the doubts about the labels, which come first if the labels do not hold: then nothing else does."""
    doubts = list(map(say, labels.notes))
    if labels.hold:
        return lines + doubts
    return doubts + lines


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


def texts_alone(blind: Estimate | None, auc: Estimate) -> str:
    """The ground that a blind classifier gives."""
    if blind is None:
        return "texts unknown"
    if explains(blind, auc):
        return "texts explain"
    if blind.low > 0.5:
        return "texts explain a part"
    return "texts do not explain"


def meaning_of_blind(blind: Estimate, auc: Estimate, which: str) -> str:
    """What a blind classifier means for the AUC of a detector; empty if it is no better than chance."""
    return GROUNDS[texts_alone(blind, auc)].meaning.format(which=which)


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
        return "; ".join(with_doubts([self._finding], self.labels, str))

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
            meaning = meaning_of_blind(self.blind, self.auc, "that")
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


@dataclass(frozen=True)
class Answer:
    """What the results of a run say: the state of each kind of evidence, what follows from them, and the numbers."""

    results: Results

    @property
    def blind(self) -> Estimate | None:
        """AUC of the classifier that never sees the model."""
        return self.results.audit.blind.auc

    @property
    def of_control(self) -> Estimate | None:
        """AUC of the headline score on the control model."""
        return self.results.number(self.results.headline, "placebo_auc")

    @property
    def within(self) -> Estimate | None:
        """AUC of the headline score within the members' own period."""
        return self.results.number(self.results.headline, WITHIN)

    @property
    def found(self) -> Estimate:
        """Share of the members that the headline score finds at a false-positive rate of 5 %."""
        return self.results.rows[*self.results.headline, "tpr_at_5fpr"].estimate

    @cached_property
    def texts(self) -> str:
        """The ground that the texts alone give."""
        return texts_alone(self.blind, self.results.auc)

    @cached_property
    def control(self) -> str:
        """The ground that a control model gives."""
        lead = self.results.lead
        if lead is None:
            if self.results.uncontrolled:
                return "control without the score"
            return "no control"
        if lead.low > 0:
            return "lead"
        return "no lead"

    @cached_property
    def period(self) -> str:
        """The ground that the periods of the texts give."""
        if self.within is None:
            return "no contemporaries"
        # Without later texts the period is no difference.
        if self.results.number(self.results.headline, f"auc_{WITH_LATER.name}") is None:
            return "one period"
        if self.within.low > 0.5:
            return "within the period"
        return "not within the period"

    @cached_property
    def grounds(self) -> list[Ground]:
        """What the answer rests on, with its numbers: the texts alone, a control, the period, the division."""
        division = "leak" if self.results.audit.leaks.groups else "no leak"
        states = {self.texts: self.blind, self.control: self.of_control, self.period: self.within, division: None}
        return [self._ground(GROUNDS[state], auc) for state, auc in states.items()]

    def _ground(self, ground: Ground, auc: Estimate | None) -> Ground:
        pairs = ""
        if auc:
            value, low, high = percents(auc)
            pairs = f"is right in {value} of 100 such pairs ({low} to {high})"
        short = ground.short.format(auc=auc, results=self.results)
        plain = ground.plain.format(pairs=pairs, results=self.results)
        if below_chance(auc):
            return Ground(AGAINST, f"{short}; that is {REVERSED}", f"{plain} {_WRONG_WAY}")
        return ground._replace(short=short, plain=plain)

    @cached_property
    def state(self) -> str:
        """The state of the evidence, a key of `JUDGEMENTS`."""
        results = self.results
        # The order is that of what a reason rules out: without labels nothing is known, and what chance explains needs
        # no other explanation.
        if not results.labels.hold:
            return "labels"
        if results.never_saw:
            return "control"
        if below_chance(results.auc):
            return "reversed"
        if results.auc.low <= 0.5:
            return "chance"
        if self.texts == "texts explain":
            return "texts"
        if results.lead is None:
            return "unexplained"
        if self.control == "no lead":
            return "placebo"
        # The best of many scores on the same texts may be so by chance.
        if not results.parts.validation:
            return "unvalidated"
        if results.has_contemporaries:
            return "lead"
        return "period"

    @property
    def judgement(self) -> Judgement:
        """The answer in words, and what would change it."""
        return JUDGEMENTS[self.state]

    @cached_property
    def audit(self) -> AuditSummary:
        """What the audit says about the score by which verdicts are given."""
        results = self.results
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

    @cached_property
    def _supported_rate(self) -> float | None:
        """The usual rate of verdicts, or the smallest possible one, even if the own non-members contradict it."""
        calibration = self.results.calibration
        if calibration is None or self.audit.void:
            return None
        finest = [calibration.of(source).finest for source in calibration.judged]
        if not finest:
            return None
        # Rounded up, as a smaller one would be refused.
        return max(FPR, math.ceil(1000 * max(finest)) / 1000)

    @cached_property
    def rate(self) -> float | None:
        """The usual false-positive rate of verdicts, or the smallest possible one; None if none are given."""
        calibration = self.results.calibration
        rate = self._supported_rate
        if rate is None or calibration is None or not calibration.judged_at(rate):
            return None
        return rate

    @cached_property
    def contradiction(self) -> str:
        """Why the own non-members of a source allow no verdicts at the rate; empty if they do, or none are given."""
        calibration = self.results.calibration
        rate = self._supported_rate
        if calibration is None or rate is None:
            return ""
        reasons = [calibration.of(source).contradiction(rate) for source in calibration.judged]
        return next(filter(None, reasons), "")

    @property
    def barred(self) -> str:
        """Why a registered version must not become champion; empty if it may."""
        results = self.results
        if not results.labels.hold:
            return results.labels.doubt
        if self.audit.void:
            return self.audit.sentence
        if not results.parts.validation:
            return "its score was chosen on the texts that measure it: set others aside by --validation 0.2"
        score = results.verdict_score
        controls = {"blind classifier": self.blind, "control model": results.number(score, "placebo_auc")}
        for name, auc in controls.items():
            if below_chance(auc):
                return f"the {name} reaches {auc}, {REVERSED}"
        lead = results.number(score, "placebo_lead")
        if lead is not None and lead.low <= 0:
            return f"the lead of {score.detector} over the control model, {lead}, may be zero"
        return self.contradiction

    @cached_property
    def families(self) -> tuple[int, int]:
        """Number of families of members, and of non-members, among the judged test texts."""
        n_families = self.results.judged.groupby("label")["group"].nunique()
        return int(n_families[1]), int(n_families[0])

    @property
    def for_gate(self) -> dict[str, float | None]:
        """The numbers by the names of a gate."""
        auc = self.results.auc
        blind = self.blind and self.blind.value
        control = self.of_control and self.of_control.value
        return {
            "auc": auc.value,
            "low": auc.low,
            "high": auc.high,
            "blind": blind,
            "control": control,
            "found": self.found.value,
        }

    def metrics(self) -> dict[str, float]:
        """The numbers under the names that all runs share, with the few by which runs are compared first."""
        results = self.results
        numbers = {"auc": results.auc, "blind": self.blind, "control": self.of_control, "tpr5": self.found}
        numbers["lead"] = results.lead
        numbers["gain"] = results.number(Score(results.headline.detector, ""), "auc_gain")
        numbers["fsd_over_base"] = results.gain and results.gain.estimate
        headline = {}
        for name, number in numbers.items():
            if number:
                headline[f"headline/{name}"] = round(number.value, 4)
        compared = []
        if results.has_contemporaries:
            compared = [
                results.headline,
                Score("loss", results.states.single),
                Score("loss", results.states.difference),
            ]
        return headline | results.audit.metrics() | charted(results.table, compared)
