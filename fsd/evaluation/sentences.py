"""What the numbers can and cannot support, in plain words: for the terminal, MLflow and the report.

`conclusions` are cautious sentences about one detector, `Headline` is the result in a line, a word of judgement and a
sentence of advice, for readers who do not read ROC curves, and `AuditSummary` is what travels with a registered adapter
and is repeated beside its verdicts.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from fsd.errors import UsageError, first_problem
from fsd.evaluation.audit import Audit, explains
from fsd.evaluation.contrasts import CONTRASTS, FAMILIARITY, MEMBERSHIP, WITH_LATER
from fsd.evaluation.metrics import METRICS, Estimate, Row, by_key, shortened
from fsd.evaluation.text_classifiers import Telling

SIGNIFICANT = 0.05
LARGE_FAMILY = 0.2
"""Share of a kind's test texts above which one family is remarked on."""
Rows = Mapping[tuple[str, str, str], Row]
"""(detector, state, metric) → row of the table of results."""
_NEVER_READ = "contemporaries, which the model never saw, are separated from later texts by"
_TEXTS = "a difference of the texts, which the control model shows as well"


# The conclusions


def conclusions(
    audit: Audit, table: pd.DataFrame, best: str, *, on_validation: bool, never_saw: bool = False
) -> list[str]:
    """Cautious sentences about one detector, the most important first.

    What the blind classifier explains is not evidence, nor is a lead over the placebo that may be zero; and without
    contemporaries, no lead is called membership. If the table of results is empty, only the benchmark is described.
    """
    rows = by_key(table)
    lines = []
    if never_saw:
        lines.append(
            "this model was trained on none of these texts: the whole run is a control, and any separation here is not "
            "evidence of membership"
        )
    if rows:
        lines.append(_result(best, rows, audit, on_validation))
        lines.append("" if never_saw else _placebo(best, rows))
        lines.append(_contrasts(best, rows, never_saw=never_saw))
        lines.append(_gains(rows))
    elif audit.blind.auc is not None:
        lines.append(f"a blind classifier, which never sees the model, reaches {audit.blind.auc}")
    lines.append(_telling(audit.telling))
    return [line for line in (*lines, *_leaks(audit), *_shift(audit)) if line]


def _result(best: str, rows: Rows, audit: Audit, on_validation: bool) -> str:
    auc, blind = rows[best, "fsd", "auc"].estimate, audit.blind.auc
    many = sum((state, metric) == ("fsd", "auc") for _, state, metric in rows)
    start = f"{best} FSD {auc}"
    if many > 1:
        where = "validation texts" if on_validation else "test texts themselves, which makes it optimistic"
        start += f", the best of {many} detectors on the {where}"
    if auc.low <= 0.5:
        start += ": not distinguishable from chance, this shows nothing about membership"
    if blind is None:
        cause = "" if auc.low <= 0.5 else ": the cause of the result is open"
        return f"{start}; no blind classifier could be trained ({audit.blind.reason}){cause}"
    reached = f"{start}; a blind classifier, which never sees the model, reaches {blind} here"
    if found := _blind(blind, auc, "this"):
        return reached + found
    if audit.telling and audit.telling.p < SIGNIFICANT:
        return f"{reached}, no better than chance"
    return f"{reached}, no better than chance: without the model, members and non-members were not distinguishable"


def _blind(blind: Estimate, auc: Estimate, which: str) -> str:
    """What a blind classifier means for the AUC of a detector; empty if it is no better than chance."""
    if explains(blind, auc):
        return f": {which} benchmark cannot show membership"
    return ": part of the result may be the difference between members and non-members" if blind.low > 0.5 else ""


def _telling(telling: Telling | None) -> str:
    if telling is None:
        return ""
    corrected = f"p = {shortened(telling.p, '.2g')}, corrected for {telling.looked_at:,} words, pairs and signs"
    if telling.p >= SIGNIFICANT:
        return (
            "no single word, pair of words or sign separates members from non-members; the most telling is "
            f"{telling.phrase} ({corrected})"
        )
    return (
        f"the most telling word, pair or sign, {telling.phrase}, is in {telling.members:.0%} of the members and "
        f"{telling.nonmembers:.0%} of the non-members ({corrected})"
    )


def _gains(rows: Rows) -> str:
    """For which detectors FSD is significantly better or worse than the base score, corrected for their number."""
    tested = [row for row in rows.values() if row.metric == "auc_gain"]
    significant = [row for row in tested if row.p_holm < SIGNIFICANT]
    sides = {
        "better": [row.detector for row in significant if row.value > 0],
        "worse": [row.detector for row in significant if row.value < 0],
    }
    parts = [f"{side} for {', '.join(names)}" for side, names in sides.items() if names]
    rest = len(tested) - sum(map(len, sides.values()))
    if rest:
        parts.append(f"no significant difference for {'the other ' if parts else ''}{rest}")
    return f"FSD against the base score (p < .05 after Holm's correction): {'; '.join(parts)}" if tested else ""


def _placebo(best: str, rows: Rows) -> str:
    control, lead = rows.get((best, "fsd", "placebo_auc")), rows.get((best, "fsd", "placebo_lead"))
    if control is None or lead is None:
        which = f" for {best}" if any(metric == "placebo_auc" for _, _, metric in rows) else ""
        return (
            f"no placebo{which}: the same procedure on a control model trained on none of these texts would show how "
            "much of the result is not membership"
        )
    start = (
        f"placebo: {best} FSD reaches {control.estimate} on a control model trained on none of these texts; the lead "
        f"over it, {lead.estimate.signed},"
    )
    if lead.low <= 0:
        return f"{start} may be zero: this result is not evidence of membership"
    most = "is the most that can be due to membership" if control.low > 0.5 else "does not come from the texts alone"
    if (best, "fsd", f"auc_{MEMBERSHIP.name}") in rows:
        return f"{start} {most}"
    return f"{start} {most}; a placebo cannot exclude that it is familiarity with the members' period"


def _contrasts(best: str, rows: Rows, *, never_saw: bool) -> str:
    """The contrasts and what follows from them, or what cannot be said without them."""
    measured = [one for one in CONTRASTS if (best, "fsd", f"auc_{one.name}") in rows]
    if len(measured) == len(CONTRASTS):
        return _three(best, rows, never_saw=never_saw)
    missing = " and ".join(one.title for one in CONTRASTS if one not in measured)
    if MEMBERSHIP in measured:
        return (
            "all non-members are contemporaries, of the members' own period, so that familiarity with the period "
            f"cannot explain the result; {missing} cannot be compared: there are no later texts"
        )
    unknown = (
        "without contemporaries (non-members of the members' own period) a separation may be familiarity with that "
        "period; neither the blind classifier nor a placebo excludes this"
    )
    if WITH_LATER in measured:
        return f"{unknown}; {missing} cannot be compared: all non-members are later texts"
    if never_saw or rows[best, "fsd", "auc"].low <= 0.5:
        return ""
    return f"{unknown}; a column period, or --cutoff DAY, shows which texts are contemporaries"


def _three(best: str, rows: Rows, *, never_saw: bool) -> str:
    numbers = []
    for one in CONTRASTS:
        base, placebo = rows.get((best, "base", f"auc_{one.name}")), rows.get((best, "fsd", f"placebo_auc_{one.name}"))
        before = f"{base.estimate.short} → " if base else ""
        beside = f" (placebo {placebo.estimate.short})" if placebo else ""
        numbers.append(f"{one.title} {before}{rows[best, 'fsd', f'auc_{one.name}'].estimate}{beside}")
    start = f"{best}{' base →' if before else ''} FSD: {', '.join(numbers)}"
    if never_saw:
        return start
    period = _familiarity(best, rows)
    if rows[best, "fsd", f"auc_{MEMBERSHIP.name}"].low > 0.5:
        return f"{start}; {period}; what can be due to membership is the separation within the period"
    return f"{start}; {period}; within the period nothing was shown, so this is not evidence of membership"


def _familiarity(best: str, rows: Rows) -> str:
    """What separates contemporaries from later texts by the FSD of the best detector, or else by that of another."""
    metric = f"auc_{FAMILIARITY.name}"
    shown = [row for row in rows.values() if (row.state, row.metric) == ("fsd", metric)]
    causes = {row.detector: cause for row in shown if (cause := _cause(row, rows))}
    if best in causes:
        return f"{_NEVER_READ} {causes[best]}"
    none = f"no familiarity with the period was shown by {best}"
    others = [row for row in shown if causes.get(row.detector, _TEXTS) != _TEXTS]
    if not others:
        return none
    most = max(others, key=lambda row: row.value)
    which = f"{most.detector}, the highest of {len(shown)}, it is {most.estimate}"
    return f"{none}; by the FSD of {which}: {_NEVER_READ} {causes[most.detector]}"


def _cause(familiarity: Row, rows: Rows) -> str:
    """What may separate contemporaries from later texts by the FSD of a detector; empty if they are not separated."""
    lead = rows.get((familiarity.detector, "fsd", f"placebo_lead_{FAMILIARITY.name}"))
    if familiarity.low <= 0.5:
        return ""
    if lead is None:
        return "familiarity with the period, or by a difference of the texts that a placebo would show"
    return "familiarity with the period" if lead.low > 0 else _TEXTS


def _leaks(audit: Audit) -> list[str]:
    leaks = audit.leaks
    if not leaks.groups:
        return ["no group and no set of near-duplicates spans two parts of the split"]
    spans = "group of texts spans" if leaks.groups == 1 else "groups of texts span"
    lines = [f"LEAK: {leaks.groups} {spans} more than one part of the split"]
    if leaks.tested:
        measures = "its score measures" if leaks.tested == 1 else "their scores measure"
        lines.append(
            f"LEAK: {_belong(leaks.tested, leaks.test)} ({leaks.tested / leaks.test:.0%}) to a group that was used for "
            f"fine-tuning; {measures} the fine-tuning"
        )
    if leaks.calibrated:
        lines.append(f"LEAK: {_belong(leaks.calibrated, leaks.test)} to a group that was used to choose thresholds")
    return lines


def _belong(number: int, texts: int) -> str:
    return f"{number} of {texts} test text{'' if texts == 1 else 's'} belong{'s' if number == 1 else ''}"


def _shift(audit: Audit) -> list[str]:
    lines = [
        f"the {name} alone separates members from non-members with AUC {control.auc}"
        for name, control in (("date", audit.date), ("length", audit.length))
        if control.auc is not None and control.auc.low > 0.5
    ]
    apart = [
        f"{name} {overlap.value:.0%} (matched texts would show {overlap.chance:.0%})"
        for name, overlap in audit.overlaps.items()
        if overlap.value < 0.9 * overlap.chance
    ]
    return lines + ([f"members and non-members overlap little in {', '.join(apart)}"] if apart else [])


# Remarks


def too_few(nonmembers: int) -> list[str]:
    """One line for the metrics whose intervals are too narrow with this number of families of non-members."""
    narrow = [metric for metric in METRICS.values() if nonmembers < metric.needs]
    if not narrow:
        return []
    names = ", ".join(f"{metric.label} (reliable from about {metric.needs} on)" for metric in narrow)
    return [
        f"too few independent non-members, {nonmembers}, for the {'interval' if len(narrow) == 1 else 'intervals'} of "
        f"{names}: it depends on the few highest of them and is too narrow"
    ]


def large_families(families: pd.Series, kind: NDArray[np.str_]) -> list[str]:
    """One line for each kind of which one family is more than `LARGE_FAMILY`; families and kinds are (N,)."""
    largest = {name: family.value_counts() for name, family in families.groupby(kind)}
    return [
        f"{sizes.iloc[0]} of the {sizes.sum()} {name} test texts are one family of related texts, of {len(sizes)} "
        "families in all: numbers on these texts rest largely on it"
        for name, sizes in largest.items()
        if sizes.iloc[0] > max(1, LARGE_FAMILY * sizes.sum())
    ]


def fallbacks(counts: Mapping[tuple[str, str, str], int], texts: int) -> list[str]:
    """One line for each detector and model of which a score is not the detector's own."""
    return [
        f"{name} fell back to {fallback} on {count} of {texts} texts ({state} model)"
        for (name, state, fallback), count in sorted(counts.items())
    ]


ADVICE = {
    "combined.fsd": "it was best on small targets of our own only; if the reference is an earlier checkpoint or a near "
    "relative of the model, trust reference, base score",
    "min_k_reference.base": "it compares each token with a reference model; fine-tuning would add to it",
    "min_k_pp.base": "no reference model with the same tokenizer is given, which would tell more (--reference-model)",
    "min_k.base": "neither a reference model nor the whole distribution of the next token is given",
    "loss.base": "nothing better can be computed",
}
"""Score to trust within one period, the best first, and the reason to take it.

The order is the one that the laboratory found there, where membership is all that differs (docs/lab.md): a reference
model with the tokenizer of the target helps more than fine-tuning does, and both together help most. It was found on
small targets; on a real model, with its earlier checkpoint as the reference, the plain ratio to the reference was
better (docs/contrasts.md). Against later texts scores differ in more than membership, and none is advised.
"""


def advised(scores: Collection[str]) -> str | None:
    """The score to trust within one period, of those computed (`loss.base`); None if none of those in `ADVICE` was."""
    return next((score for score in ADVICE if score in scores), None)


def advice(scores: Collection[str]) -> list[str]:
    """The advice in one line; none if there is no score to trust."""
    score = advised(scores)
    if score is None:
        return []
    detector, _, state = score.rpartition(".")
    return [
        f"advice without labels, within one period: trust {detector}{' FSD' if state == 'fsd' else ', base score'}: "
        f"{ADVICE[score]}; against later texts no score is advised"
    ]


# The result in short


@dataclass(frozen=True)
class AuditSummary:
    """How well a detector and a blind classifier, which never sees the model, separate the same benchmark."""

    detector: str
    auc: Estimate
    """AUC of its scores in `state` on the test texts."""
    blind: Estimate | None
    """AUC of the blind classifier; None if there is none, which has a `reason`."""
    reason: str = ""
    contemporaries: bool = False
    """Whether the non-members are of the members' own period (see `fsd.evaluation.results`)."""
    state: str = "fsd"
    """"fsd", or "calibrated" for the audit of a fine-tuned model."""

    @property
    def explains(self) -> bool:
        """Whether the blind classifier explains the result (see `fsd.evaluation.audit.explains`)."""
        return explains(self.blind, self.auc)

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        if self.blind is None:
            finding = f"no blind classifier could be trained on the adapter's benchmark ({self.reason})"
        else:
            finding = (
                f"a blind classifier, which never sees the model, reaches {self.blind} on the adapter's benchmark, "
                f"{self.detector} {'FSD' if self.state == 'fsd' else self.state} {self.auc}"
                + _blind(self.blind, self.auc, "that")
            )
        if self.explains or self.contemporaries or self.state != "fsd":
            return finding
        return (
            f"{finding}; that benchmark has no contemporaries (non-members of the members' own period), so texts "
            "of that period which the model never saw may be called members more often"
        )

    def to_json(self) -> str:
        """The summary as JSON text; `explains` and `sentence` are for readers, and are derived again on reading."""
        values = {**vars(self), "explains": self.explains, "sentence": self.sentence}
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "AuditSummary":
        """The inverse of `to_json`; a UsageError if the text is not a summary."""
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            raise UsageError(f"audit must be JSON written by this program; got {first_problem(error)}") from error


class Judgement(NamedTuple):
    """Whether members can be distinguished from non-members and why, what to do with that, what would change it."""

    answer: str
    advice: str
    change: str


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
        "a run with a placebo, a control model trained on none of these texts",
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
    """The result of the best detector with its controls; `Results.headline` makes it."""

    audit: AuditSummary
    rows: Rows
    never_saw: bool
    families: tuple[int, int]
    """Number of families of members and of non-members among the judged test texts."""
    on_validation: bool
    """Whether the detector was chosen on validation texts."""

    def _estimate(self, state: str, metric: str) -> Estimate | None:
        row = self.rows.get((self.audit.detector, state, metric))
        return row.estimate if row else None

    @property
    def kind(self) -> str:
        """A key of `JUDGEMENTS`."""
        lead = self._estimate("fsd", "placebo_lead")
        if self.never_saw:
            return "control"
        if self.audit.auc.low <= 0.5:
            return "chance"
        if self.audit.explains:
            return "texts"
        if lead is None:
            return "unexplained"
        if lead.low <= 0:
            return "placebo"
        return "lead" if self.audit.contemporaries else "period"

    @property
    def barred(self) -> str:
        """Why a registered version must not become champion; empty if it may.

        Its result must neither be explained by a blind classifier nor be one that the control model may have as well.
        Without a control model nothing is known of the latter.
        """
        if self.audit.explains:
            return self.audit.sentence
        lead = self._estimate("fsd", "placebo_lead")
        if lead and not lead.low > 0:
            return f"the lead of {self.audit.detector} over the control model, {lead}, may be zero"
        return ""

    @property
    def score(self) -> str:
        """The detector and its AUC, for names: perplexity .67."""
        return f"{self.audit.detector} {self.audit.auc.short}"

    @property
    def description(self) -> str:
        """The detector, its AUC, the controls and the advice, in Markdown."""
        lead, blind = self._estimate("fsd", "placebo_lead"), self.audit.blind or "none"
        shown = lead.signed if lead else "none"
        line = f"{self.audit.detector} FSD AUC {self.audit.auc} · placebo lead {shown} · blind AUC {blind}"
        return f"{line}\n\n{JUDGEMENTS[self.kind].advice}"

    def metrics(self) -> dict[str, float]:
        """The few numbers by which runs are compared first."""
        numbers = {
            "fsd_auc": self.audit.auc,
            "tpr_at_5fpr": self._estimate("fsd", "tpr_at_5fpr"),
            "gain": self._estimate("", "auc_gain"),
            "placebo_lead": self._estimate("fsd", "placebo_lead"),
            "blind_auc": self.audit.blind,
        }
        return {f"headline/{name}": number.value for name, number in numbers.items() if number is not None}

    def answer(self) -> list[str]:
        """The answer in words and numbers, without terms of the field."""
        tpr = self.rows[self.audit.detector, "fsd", "tpr_at_5fpr"].estimate
        (right, low, high), (found, least, most) = (
            [round(100 * number) for number in estimate] for estimate in (self.audit.auc, tpr)
        )
        return [
            f"{JUDGEMENTS[self.kind].answer}.",
            f"Given one text from the training data and one from outside it, the best score ({self.audit.detector}, "
            f"FSD) is higher for the former in {right} of 100 such pairs; guessing gets 50. With other texts of the "
            f"same kind it could be {low} to {high} (95 % interval).",
            f"If 5 of 100 outside texts may wrongly be called training texts, {found} of 100 training texts are found "
            f"({least} to {most}).",
        ]

    def changes(self) -> list[str]:
        """What would change the answer, in sentences."""
        low, high = (round(100 * end) for end in self.audit.auc[1:])
        members, others = self.families
        lines = [
            f"The answer would be changed by {JUDGEMENTS[self.kind].change}.",
            f"The range of {low} to {high} rests on {members} independent texts from the training data and {others} "
            "from outside it; four times as many would about halve it.",
        ]
        if not self.on_validation:
            lines.append("The detector was chosen on these very texts; on new texts it is likely to do less well.")
        return lines
