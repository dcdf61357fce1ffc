"""What the numbers can and cannot support, in plain words: for the terminal, MLflow and the report."""

import json
from collections.abc import Collection
from dataclasses import dataclass

from fsd.data.knowledge_cutoffs import HOLDING, Labels
from fsd.data.splitting import CONTEMPORARY
from fsd.evaluation.audit import Audit, explains
from fsd.evaluation.metrics import METRICS, Estimate, Row, shortened
from fsd.evaluation.results import CONTRASTS, FAMILIARITY, MEMBERSHIP, WITH_LATER, Results, Score

SIGNIFICANT = 0.05
LARGE_FAMILY = 0.2
"""Share of a kind's test texts above which one family is remarked on."""
_TEXTS = "a difference of the texts, which the control model shows as well"


def notes(results: Results) -> list[str]:
    """The conclusions, and whatever was left out or replaced along the way, one line each."""
    lines = conclusions(results)
    if not results.parts.validation:
        lines.append("no validation texts: the accuracy is at the best threshold on the test texts themselves")
    return [*lines, *advice(list(map(str, results.scores))), *caveats(results), *results.remarks]


def conclusions(results: Results) -> list[str]:
    """Cautious sentences about the best detector, the most important first."""
    control = (
        "this model was trained on none of these texts: the whole run is a control, and any separation here is not "
        "evidence of membership"
    )
    return [
        *([] if results.labels.hold else results.labels.said),
        *([control, _result(results)] if results.never_saw else [_result(results), _placebo(results)]),
        *(results.labels.said if results.labels.hold else []),
        *_gain(results),
        *_contrasts(results),
        *_gains(results),
        *_of_texts(results.audit),
    ]


def _result(results: Results) -> str:
    auc, blind, audit = results.top_auc, results.audit.blind.auc, results.audit
    many = sum(metric == "auc" for _, _, metric in results.rows)
    start = f"{results.named(results.top)} {auc}"
    if many > 1:
        where = "validation texts" if results.parts.validation else "test texts themselves, which makes it optimistic"
        start += f", the best of {many} scores on the {where}"
    if auc.low <= 0.5:
        start += ": not distinguishable from chance, this shows nothing about membership"
    if blind is None:
        cause = "" if auc.low <= 0.5 else ": the cause of the result is open"
        return f"{start}; no blind classifier could be trained ({audit.blind.reason}){cause}"
    found = _blind(blind, auc, "this")
    if not found:
        found = ", no better than chance"
        if not audit.telling or audit.telling.p >= SIGNIFICANT:
            found += ": without the model, members and non-members were not distinguishable"
    return f"{start}; a blind classifier, which never sees the model, reaches {blind} here{found}"


def _blind(blind: Estimate, auc: Estimate, which: str) -> str:
    """What a blind classifier means for the AUC of a detector; empty if it is no better than chance."""
    if explains(blind, auc):
        return f": {which} benchmark cannot show membership"
    return ": part of the result may be the difference between members and non-members" if blind.low > 0.5 else ""


def _gain(results: Results) -> list[str]:
    """What fine-tuning adds to the best base score, or why it adds nothing."""
    gain = results.gain
    if gain is None:
        return []
    fine_tuned = results.named(Score(results.best, "fsd"))
    start = f"{fine_tuned}, the best score with fine-tuning, against the best without: {gain.estimate.signed}"
    if gain.low > 0:
        return [f"{start}: it is higher"]
    why = ""
    if (results.kind == CONTEMPORARY).any():
        why = "; members and non-members are of one period, where fine-tuning alone has nothing to gain"
    return [f"{start}: it is {'lower' if gain.high < 0 else 'not significantly higher'}{why}"]


def _placebo(results: Results) -> str:
    name, control, lead = results.named(results.top), results.of_top("placebo_auc"), results.of_top("placebo_lead")
    if control is None or lead is None:
        which = f" for {name}" if any(metric == "placebo_auc" for _, _, metric in results.rows) else ""
        return (
            f"no placebo{which}: the same procedure on a control model trained on none of these texts would show how "
            "much of the result is not membership"
        )
    start = (
        f"placebo: {name} reaches {control} on a control model trained on none of these texts; the difference, "
        f"{lead.signed},"
    )
    if lead.low <= 0:
        return f"{start} may be zero: this result is not evidence of membership"
    most = "is the most that can be due to membership" if control.low > 0.5 else "does not come from the texts alone"
    within = results.of_top(f"auc_{MEMBERSHIP.name}")
    period = "" if within else "; a placebo cannot exclude that it is familiarity with the members' period"
    return f"{start} {most}{period}"


def _contrasts(results: Results) -> list[str]:
    """The contrasts and what follows from them, or what cannot be said without them."""
    measured = [one for one in CONTRASTS if results.estimate(f"auc_{one.name}")]
    if len(measured) == len(CONTRASTS):
        return [_three(results)]
    missing = " and ".join(one.title for one in CONTRASTS if one not in measured)
    if MEMBERSHIP in measured:
        return [
            "all non-members are contemporaries, of the members' own period, so that familiarity with the period "
            f"cannot explain the result; {missing} cannot be compared: there are no later texts"
        ]
    unknown = (
        "without contemporaries (non-members of the members' own period) a separation may be familiarity with that "
        "period; neither the blind classifier nor a placebo excludes this"
    )
    if WITH_LATER in measured:
        return [f"{unknown}; {missing} cannot be compared: all non-members are later texts"]
    if results.never_saw or results.top_auc.low <= 0.5:
        return []
    return [f"{unknown}; a column period, or --cutoff DAY, shows which texts are contemporaries"]


def _three(results: Results) -> str:
    numbers, arrow = [], ""
    for one in CONTRASTS:
        base, placebo = results.estimate(f"auc_{one.name}", "base"), results.estimate(f"placebo_auc_{one.name}")
        before, arrow = (f"{base.short} → ", " base →") if base else ("", "")
        beside = f" (placebo {placebo.short})" if placebo else ""
        numbers.append(f"{one.title} {before}{results.estimate(f'auc_{one.name}')}{beside}")
    start = f"{results.best}{arrow} FSD: {', '.join(numbers)}"
    if results.never_saw:
        return start
    if results.rows[results.best, "fsd", f"auc_{MEMBERSHIP.name}"].low > 0.5:
        end = "what can be due to membership is the separation within the period"
    else:
        end = "within the period nothing was shown, so this is not evidence of membership"
    return f"{start}; {_familiarity(results)}; {end}"


def _familiarity(results: Results) -> str:
    """What separates contemporaries from later texts by the FSD of the best detector, or else by that of another."""
    metric, separated = f"auc_{FAMILIARITY.name}", "contemporaries, which the model never saw, are separated from later"
    shown = [row for row in results.rows.values() if (row.state, row.metric) == ("fsd", metric)]
    causes = {row.detector: _cause(results, row.detector) for row in shown if row.low > 0.5}
    if results.best in causes:
        return f"{separated} texts by {causes[results.best]}"
    none = f"no familiarity with the period was shown by {results.best}"
    others = [row for row in shown if causes.get(row.detector, _TEXTS) != _TEXTS]
    if not others:
        return none
    most = max(others, key=lambda row: row.value)
    which = f"{most.detector}, the highest of {len(shown)}, it is {most.estimate}"
    return f"{none}; by the FSD of {which}: {separated} texts by {causes[most.detector]}"


def _cause(results: Results, detector: str) -> str:
    """What may separate contemporaries from later texts by the FSD of a detector that does."""
    lead = results.rows.get((detector, "fsd", f"placebo_lead_{FAMILIARITY.name}"))
    if lead is None:
        return "familiarity with the period, or by a difference of the texts that a placebo would show"
    return "familiarity with the period" if lead.low > 0 else _TEXTS


def _gains(results: Results) -> list[str]:
    """For which detectors FSD is significantly better or worse than the base score, corrected for their number."""
    tested = _tested(results)
    found = {name: row.value for name, row in tested.items() if row.p_holm < SIGNIFICANT and row.value}
    sides = {
        "better": [name for name, value in found.items() if value > 0],
        "worse": [name for name, value in found.items() if value < 0],
    }
    parts = [f"{side} for {', '.join(names)}" for side, names in sides.items() if names]
    if len(tested) > len(found):
        parts.append(f"no significant difference for {'the other ' if found else ''}{len(tested) - len(found)}")
    return [f"FSD against the base score (p < .05 after Holm's correction): {'; '.join(parts)}"] if tested else []


def _tested(results: Results) -> dict[str, Row]:
    return {detector: row for (detector, _, metric), row in results.rows.items() if metric == "auc_gain"}


def _of_texts(audit: Audit) -> list[str]:
    """What distinguishes the texts without the model: a word or sign, leaks, dates and lengths."""
    lines, telling, leaks = [], audit.telling, audit.leaks
    if telling:
        p = f"(p = {shortened(telling.p, '.2g')}, corrected for {telling.looked_at:,} words, pairs and signs)"
        lines.append(
            "no single word, pair of words or sign separates members from non-members; the most telling is "
            f"{telling.phrase} {p}"
            if telling.p >= SIGNIFICANT
            else f"the most telling word, pair or sign, {telling.phrase}, is in {telling.members:.0%} of the members "
            f"and {telling.nonmembers:.0%} of the non-members {p}"
        )
    lines.append(
        f"LEAK: groups of texts that span more than one part of the split: {leaks.groups}; of {leaks.test} test texts, "
        f"{leaks.tested} belong to a group that was used for fine-tuning, which their scores measure, and "
        f"{leaks.calibrated} to one that was used to choose thresholds"
        if leaks.groups
        else "no group and no set of near-duplicates spans two parts of the split"
    )
    lines += [
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


def caveats(results: Results) -> list[str]:
    """What too few families in the test, or one large one, do not support."""
    tested = (results.scores["split"] == "test").to_numpy()
    sizes = {
        kind: families.value_counts()
        for kind, families in results.scores["group"][tested].groupby(results.kind[tested])
    }
    return too_few(families_of(results)[1]) + [
        f"{of.iloc[0]} of the {of.sum()} {kind} test texts are one family of related texts, of {len(of)} families in "
        "all: numbers on these texts rest largely on it"
        for kind, of in sizes.items()
        if of.iloc[0] > max(1, LARGE_FAMILY * of.sum())
    ]


def families_of(results: Results) -> tuple[int, int]:
    """Number of families of members, and of non-members, among the judged test texts."""
    sides = results.judged.groupby("label")["group"].nunique()
    return int(sides[1]), int(sides[0])


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


ADVICE = {
    "wbc.base": "windows of tokens vote between the model and its reference",
    "min_k_reference.base": "it compares each token with a reference model",
    "min_k_pp.base": "no detector in use compares with a reference model of the same tokenizer, which would tell more",
    "min_k.base": "no detector in use compares with a reference model or the whole distribution of the next token",
    "loss.base": "no better detector is in use",
}
"""Score to trust within one period, the best first, and the reason to take it.

Where membership is all that differs, `wbc`, and without a reference `min_k_pp`, lose least to the best score in
hindsight on the worse of two kinds of target, small ones and a real model (docs/lab.md, "Regret of the advice").
Against later texts scores differ in more than membership, and none is advised.
"""


def advised(scores: Collection[str]) -> str | None:
    """The score to trust within one period, of those computed (`loss.base`); None if none of those in `ADVICE` was."""
    return next((score for score in ADVICE if score in scores), None)


def advice(scores: Collection[str]) -> list[str]:
    """The advice in one line; none if there is no score to trust."""
    score = advised(scores)
    if score is None:
        return []
    return [
        f"advice without labels, within one period: trust {score.removesuffix('.base')}, base score: "
        f"{ADVICE[score]}; against later texts no score is advised"
    ]


@dataclass(frozen=True)
class AuditSummary:
    """How well a detector and a blind classifier separate the same test texts; it travels with a registered adapter."""

    detector: str
    auc: Estimate
    blind: Estimate | None
    reason: str = ""
    contemporaries: bool = False
    state: str = "fsd"
    labels: Labels = HOLDING

    @property
    def explains(self) -> bool:
        """Whether the blind classifier explains the result (see `fsd.evaluation.audit.explains`)."""
        return explains(self.blind, self.auc)

    @property
    def clean(self) -> bool:
        """Whether neither the texts alone nor their period may explain a part of the result."""
        return self.blind is not None and self.blind.low <= 0.5 and (self.contemporaries or self.state != "fsd")

    @property
    def sentence(self) -> str:
        """The finding in one sentence, and any doubt about the labels."""
        parts = [self._finding, *self.labels.said]
        return "; ".join(parts if self.labels.hold else reversed(parts))

    @property
    def _finding(self) -> str:
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


def audit_summary(results: Results, state: str = "fsd") -> AuditSummary:
    """What the audit says about the best detector."""
    blind, contemporaries = results.audit.blind, bool((results.kind == CONTEMPORARY).any())
    return AuditSummary(results.best, results.auc, blind.auc, blind.reason, contemporaries, state, results.labels)


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
    lead = results.of_top("placebo_lead")
    if not results.labels.hold:
        return "labels"
    if results.never_saw:
        return "control"
    if results.top_auc.low <= 0.5:
        return "chance"
    if explains(results.audit.blind.auc, results.top_auc):
        return "texts"
    if lead is None:
        return "unexplained"
    if lead.low <= 0:
        return "placebo"
    return "lead" if (results.kind == CONTEMPORARY).any() else "period"


def barred(results: Results) -> str:
    """Why a registered version must not become champion; empty if it may."""
    audit, lead = audit_summary(results), results.estimate("placebo_lead")
    if not results.labels.hold:
        return results.labels.doubt
    if audit.explains:
        return audit.sentence
    return f"the lead of {results.best} over the control model, {lead}, may be zero" if lead and lead.low <= 0 else ""


def headline(results: Results) -> str:
    """The answer and its numbers in a line."""
    control, blind = results.of_top("placebo_auc"), results.audit.blind.auc
    parts = [f"{results.named(results.top)} {results.top_auc}"]
    parts += [f"control {control.short}"] if control else []
    parts += [f"blind {blind.short}"] if blind else []
    return f"{JUDGEMENTS[judgement(results)][0].partition(':')[0]}: {' · '.join(parts)}"


def description(results: Results) -> str:
    """The headline, the answer and what would change it, in Markdown."""
    said, change = JUDGEMENTS[judgement(results)]
    return f"{headline(results)}\n\n{said}. The answer would be changed by {change}."


def signs(results: Results) -> list[tuple[bool, str]]:
    """What speaks for the result (True) and against it (False), each in a few words."""
    telling, leaks, gain = results.audit.telling, results.audit.leaks.groups, results.gain
    doubts = [(False, doubt) for doubt in results.labels.said]
    found = [] if results.labels.hold else doubts
    if results.never_saw:
        found.append((False, "a control run: the model was trained on none of these texts"))
    found.append(_sign_of_texts(results))
    if telling and telling.p < SIGNIFICANT:
        found.append((False, f"a sign distinguishes the texts: {telling.phrase}"))
    found += [_sign_of_control(results), _sign_of_period(results)]
    found += doubts if results.labels.hold else []
    found.append(
        (False, f"LEAK: {leaks} groups of texts are in more than one part of the split")
        if leaks
        else (True, "nothing is in two parts of the split")
    )
    if gain:
        fine_tuned = results.named(Score(results.best, "fsd"))
        found.append((gain.low > 0, f"{fine_tuned} against the best base score: {gain.estimate.signed}"))
    worse = [name for name, row in _tested(results).items() if row.p_holm < SIGNIFICANT and row.value < 0]
    if worse:
        found.append((False, f"FSD is worse than the base score for {', '.join(worse)}"))
    names = {str(column).rpartition(".")[0] for column in results.scores}
    short = (remark.removesuffix("; the weaker condition was used") for remark in results.remarks)
    found += [(False, remark) for remark in short if remark.partition(":")[0] in names]
    if not results.parts.validation:
        found.append((False, "chosen on the test texts themselves: on new texts it is likely to do less well"))
    return found


def _sign_of_texts(results: Results) -> tuple[bool, str]:
    blind = results.audit.blind.auc
    if blind is None:
        return False, f"no blind classifier: {results.audit.blind.reason}"
    if explains(blind, results.top_auc):
        return False, f"the texts alone explain it: blind classifier {blind}"
    if blind.low > 0.5:
        return False, f"the texts alone explain a part: blind classifier {blind}"
    return True, f"the texts alone do not explain it: blind classifier {blind}"


def _sign_of_control(results: Results) -> tuple[bool, str]:
    control, lead = results.of_top("placebo_auc"), results.of_top("placebo_lead")
    if control is None or lead is None:
        return False, "no control model: name one by --placebo"
    return lead.low > 0, f"a control model reaches {control.short}: difference {lead.signed}"


def _sign_of_period(results: Results) -> tuple[bool, str]:
    within = results.of_top(f"auc_{MEMBERSHIP.name}")
    if within is None:
        return False, "no contemporaries: it may be familiarity with the members' period"
    if results.contrasts:
        return within.low > 0.5, f"within one period: {within}"
    return True, "all texts are of one period"


def of_model(identity: str) -> str:
    """The model in a sentence."""
    return f"the {identity} model" if identity.startswith("embedded") else f"the model “{identity}”"


def sure(results: Results) -> list[str]:
    """What the answer rests on, without terms of the field: the texts alone, a control, the period, the division."""
    blind, control, lead = results.audit.blind.auc, results.of_top("placebo_auc"), results.of_top("placebo_lead")
    leaks, within = results.audit.leaks.groups, results.of_top(f"auc_{MEMBERSHIP.name}")
    if blind is None:
        texts = "Nothing is known of what the texts alone show: too few for a classifier that never sees the model."
    elif explains(blind, results.top_auc):
        texts = f"A classifier that never sees the model {_pairs(blind)}: the texts alone explain the result."
    else:
        part = "may explain a part of" if blind.low > 0.5 else "do not explain"
        texts = f"A classifier that never sees the model {_pairs(blind)}: the texts alone {part} the result."
    if results.never_saw:
        beside = "This run is itself the control: whatever it distinguishes, it distinguishes by the texts alone."
    elif control is None or lead is None:
        beside = "There was no control model: one that was trained on none of these texts would show what they explain."
    else:
        meaning = "the difference may be chance" if lead.low <= 0 else "the difference is more than chance"
        beside = f"A control model, trained on none of these texts, {_pairs(control)}: {meaning}."
    if within is None:
        period = "No non-members of the members' own period are known: the model may know the period, not the texts."
    elif results.contrasts:
        period = f"Among texts of one period, where the period explains nothing, the score {_pairs(within)}."
    else:
        period = "Members and non-members are of one period, so that the period does not explain the result."
    divided = "No text, and none that is almost the same, was used for two purposes: training, choice and measurement."
    if leaks:
        divided = (
            f"LEAK: {leaks} groups of related texts were used for more than one purpose: the numbers are too good."
        )
    doubts = [f"{doubt[0].upper()}{doubt[1:]}." for doubt in results.labels.said]
    four = [texts, beside, period, divided]
    return [*four, *doubts] if results.labels.hold else [*doubts, *four]


def _pairs(auc: Estimate) -> str:
    """The AUC in words."""
    value, low, high = (round(100 * number) for number in auc)
    return f"is right in {value} of 100 such pairs ({low} to {high})"


def answer(results: Results) -> list[str]:
    """The answer in words and numbers, without terms of the field."""
    tpr = results.rows[*results.top, "tpr_at_5fpr"].estimate
    (right, low, high), (found, least, most) = (
        [round(100 * number) for number in one] for one in (results.top_auc, tpr)
    )
    name = results.named(results.top)
    return [
        f"{JUDGEMENTS[judgement(results)][0]}.",
        f"Take one text from the training data and one from outside it. The best score, “{name}”, is higher for the "
        f"former in {right} of 100 such pairs; guessing gets 50. With other texts of the same kind it could be {low} "
        f"to {high} (95 % interval).",
        f"If 5 of 100 outside texts may wrongly be called training texts, {found} of 100 training texts are found "
        f"({least} to {most}).",
    ]


def changes(results: Results) -> list[str]:
    """What would change the answer, in sentences."""
    low, high = (round(100 * end) for end in results.top_auc[1:])
    members, others = families_of(results)
    lines = [
        f"The answer would be changed by {JUDGEMENTS[judgement(results)][1]}.",
        f"The range of {low} to {high} rests on {members} independent texts from the training data and {others} "
        "from outside it; four times as many would about halve it.",
    ]
    if not results.parts.validation:
        lines.append("The detector was chosen on these very texts; on new texts it is likely to do less well.")
    return lines
