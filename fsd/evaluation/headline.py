"""The result of a run in one line, one word of judgement and one sentence of advice.

For names, descriptions and lists, and for the top of the report, whose readers do not read ROC curves.
"""

from dataclasses import dataclass
from typing import NamedTuple

from fsd.evaluation.audit import explains
from fsd.evaluation.intervals import Estimate
from fsd.evaluation.metrics import by_key
from fsd.evaluation.results import Results


class Judgement(NamedTuple):
    """What a result amounts to.

    Attributes:
        answer: to the question whether members can be distinguished from non-members, and why.
        advice: what to do with the result.
        change: what would change the answer.
    """

    answer: str
    advice: str
    change: str


_PLACEBO = "a run with a placebo, a control model trained on none of these texts"
JUDGEMENTS = {
    "control": Judgement(
        "This run is a control: the model was trained on none of these texts",
        "A control run: no separation here is evidence of membership.",
        "a model that may have been trained on these texts",
    ),
    "chance": Judgement(
        "Not shown: the scores do not distinguish the two kinds of texts better than guessing",
        "Shows nothing about membership; more texts would narrow the interval.",
        "more texts, which narrow the interval, or another detector, which has to be chosen on the validation texts",
    ),
    "texts": Judgement(
        "Not shown: a classifier that never sees the model distinguishes these texts about as well",
        "Not evidence of membership: take members and non-members of one period and kind.",
        "members and non-members of one period and kind, which a classifier without the model cannot distinguish",
    ),
    "unexplained": Judgement(
        "Open: the scores distinguish the two kinds of texts, but nothing shows why",
        "Not yet evidence of membership: repeat it with a placebo.",
        _PLACEBO,
    ),
    "placebo": Judgement(
        "Not shown: a control model trained on none of these texts distinguishes them about as well",
        "Not evidence of membership: a model that never saw these texts does about as well.",
        "a clearer lead over the control model, from more texts, or from a detector or adapter that separates better",
    ),
    "period": Judgement(
        "Probably: the scores distinguish them better than a control model, but it may know their period only",
        "Confirm it on contemporaries, non-members of the members' own period, before it is cited.",
        "contemporaries, non-members of the members' own period: if the lead vanishes on them, it was the period",
    ),
    "lead": Judgement(
        "Yes, as a set: texts of one period are distinguished better than by a control model trained on none of them",
        "Evidence about the set as a whole; for single texts use the verdicts of pipelines.detect.",
        "a classifier without the model that separates the texts as well, or a control model that does",
    ),
}


@dataclass(frozen=True)
class Headline:
    """The result of the best detector with its controls.

    Attributes:
        detector: the detector that was chosen.
        auc: AUC of its FSD on the test texts.
        tpr: share of members that its FSD finds at a false-positive rate of 5 %.
        gain: its AUC minus that of the base score; None if it has none.
        lead: its AUC minus that of the placebo; None without a placebo.
        blind: AUC of the classifier that never sees the model; None if there is none.
        kind: a key of `JUDGEMENTS`.
    """

    detector: str
    auc: Estimate
    tpr: Estimate
    gain: Estimate | None
    lead: Estimate | None
    blind: Estimate | None
    kind: str

    @classmethod
    def of(cls, results: Results) -> "Headline":
        """The headline of a run."""
        rows = by_key(results.table)
        gain, lead = rows.get((results.best, "", "auc_gain")), rows.get((results.best, "fsd", "placebo_lead"))
        headline = cls(
            detector=results.best,
            auc=rows[results.best, "fsd", "auc"].estimate,
            tpr=rows[results.best, "fsd", "tpr_at_5fpr"].estimate,
            gain=gain.estimate if gain else None,
            lead=lead.estimate if lead else None,
            blind=results.audit.blind.auc,
            kind="lead",
        )
        return cls(**{**vars(headline), "kind": headline._kind(results)})

    def _kind(self, results: Results) -> str:
        if results.never_saw:
            return "control"
        if self.auc.low <= 0.5:
            return "chance"
        if explains(self.blind, self.auc):
            return "texts"
        if self.lead is None:
            return "unexplained"
        if self.lead.low <= 0:
            return "placebo"
        return "lead" if results.audit_summary.contemporaries else "period"

    @property
    def judgement(self) -> Judgement:
        """What the result amounts to."""
        return JUDGEMENTS[self.kind]

    @property
    def score(self) -> str:
        """The detector and its AUC, for names: perplexity .67."""
        return f"{self.detector} {str(self.auc).partition(' ')[0]}"

    @property
    def line(self) -> str:
        """The detector, its AUC and the controls, for descriptions."""
        lead = "none" if self.lead is None else self.lead.signed
        return f"{self.detector} FSD AUC {self.auc} · placebo lead {lead} · blind AUC {self.blind or 'none'}"

    @property
    def description(self) -> str:
        """The line and the advice, in Markdown."""
        return f"{self.line}\n\n{self.judgement.advice}"

    def metrics(self) -> dict[str, float]:
        """The few numbers by which runs are compared first."""
        numbers = {"fsd_auc": self.auc, "tpr_at_5fpr": self.tpr, "gain": self.gain, "placebo_lead": self.lead}
        numbers["blind_auc"] = self.blind
        return {f"headline/{name}": number.value for name, number in numbers.items() if number is not None}

    def answer(self) -> list[str]:
        """The answer in words and numbers, without terms of the field."""
        right, low, high = (round(100 * number) for number in self.auc)
        found, least, most = (round(100 * number) for number in self.tpr)
        return [
            f"{self.judgement.answer}.",
            f"Given one text from the training data and one from outside it, the best score ({self.detector}, FSD) "
            f"is higher for the former in {right} of 100 such pairs; guessing gets 50. With other texts of the same "
            f"kind it could be {low} to {high} (95 % interval).",
            f"If 5 of 100 outside texts may wrongly be called training texts, {found} of 100 training texts are found "
            f"({least} to {most}).",
        ]

    def changes(self, results: Results) -> list[str]:
        """What would change the answer, in sentences."""
        first = f"The answer would be changed by {self.judgement.change}."
        low, high = (round(100 * end) for end in self.auc[1:])
        test = results.judged
        members, others = (test.loc[test["label"] == side, "group"].nunique() for side in (1, 0))
        lines = [
            first,
            f"The range of {low} to {high} rests on {members} independent texts from the training data and {others} "
            "from outside it; four times as many would about halve it.",
        ]
        if not results.parts.validation:
            lines.append("The detector was chosen on these very texts; on new texts it is likely to do less well.")
        return lines
