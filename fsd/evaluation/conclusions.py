"""What the numbers can and cannot support, in plain words for the terminal, MLflow and the report."""

from collections.abc import Mapping

import pandas as pd

from fsd.evaluation.audit import Audit, explains
from fsd.evaluation.contrasts import CONTRASTS, FAMILIARITY, MEMBERSHIP, WITH_LATER
from fsd.evaluation.intervals import shortened
from fsd.evaluation.metrics import Row, by_key
from fsd.evaluation.text_classifiers import Telling

SIGNIFICANT = 0.05

_NEVER_READ = "contemporaries, which the model never read, are separated from later texts by"
_TEXTS = "a difference of the texts, which the control model shows as well"

Rows = Mapping[tuple[str, str, str], Row]


def conclusions(
    audit: Audit, table: pd.DataFrame, best: str, *, on_validation: bool, never_saw: bool = False
) -> list[str]:
    """Cautious sentences about one detector, the most important first.

    - The interval contains .5: nothing was shown. The blind classifier is given all the same.
    - The blind classifier explains the result (see `explains`): the benchmark cannot show membership.
    - The blind classifier is better than chance but clearly worse than the detector: part of the result may be the
      difference between members and non-members that it sees.
    - The lead over the placebo may be zero: the result is not evidence of membership.
    - The most telling word or sign is named with its corrected p-value.
    - There is a lead, but the placebo is better than chance: only the lead can be due to membership.
    - Without contemporaries, no lead is called membership; with them, the contrasts state what is familiarity with the
      period and what is membership (see `fsd.evaluation.contrasts`).

    Args:
        audit: of the same split.
        table: of results (see `fsd.evaluation.results.evaluate`); if it is empty, only the benchmark is described.
        best: the detector to describe.
        on_validation: whether it was chosen on validation texts, otherwise on the test texts themselves.
        never_saw: whether the model is known to have been trained on none of these texts.
    """
    rows = by_key(table)
    lines = []
    if never_saw:
        lines.append(
            "this model was trained on none of these texts: the whole run is a control, and any separation here is not "
            "evidence of membership"
        )
    if rows:
        lines.append(_headline(best, rows, audit, on_validation))
        lines.append("" if never_saw else _placebo(best, rows))
        lines.append(_contrasts(best, rows, never_saw=never_saw))
        lines.append(_gains(rows))
    elif audit.blind.auc is not None:
        lines.append(f"a blind classifier, which never sees the model, reaches {audit.blind.auc}")
    lines.append(_telling(audit.telling))
    return [line for line in (*lines, *_leaks(audit), *_shift(audit)) if line]


def _headline(best: str, rows: Rows, audit: Audit, on_validation: bool) -> str:
    auc = rows[best, "fsd", "auc"].estimate
    many = len({detector for detector, state, _ in rows if state == "fsd"})
    start = f"{best} FSD {auc}"
    if many > 1:
        start += f", the best of {many} detectors on the " + (
            "validation texts" if on_validation else "test texts themselves, which makes it optimistic"
        )
    if auc.low <= 0.5:
        start += ": not distinguishable from chance, this shows nothing about membership"
    blind = audit.blind.auc
    if blind is None:
        cause = "" if auc.low <= 0.5 else ": the cause of the result is open"
        return f"{start}; no blind classifier could be trained ({audit.blind.reason}){cause}"
    reached = f"{start}; a blind classifier, which never sees the model, reaches {blind} here"
    if explains(blind, auc):
        return f"{reached}: this benchmark cannot show membership"
    if blind.low > 0.5:
        return f"{reached}: part of the result may be the difference between members and non-members"
    reached += ", no better than chance"
    if audit.telling and audit.telling.p < SIGNIFICANT:
        return reached
    return f"{reached}: without the model, members and non-members were not distinguishable"


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
    better = [row.detector for row in significant if row.value > 0]
    worse = [row.detector for row in significant if row.value < 0]
    parts = [f"better for {', '.join(better)}"] if better else []
    parts += [f"worse for {', '.join(worse)}"] if worse else []
    rest = len(tested) - len(better) - len(worse)
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
    if _within_period(best, rows):
        return f"{start} {most}"
    return f"{start} {most}; a placebo cannot exclude that it is familiarity with the members' period"


def _within_period(best: str, rows: Rows) -> bool:
    """Whether the non-members are contemporaries."""
    return (best, "fsd", f"auc_{MEMBERSHIP.name}") in rows


def _contrasts(best: str, rows: Rows, *, never_saw: bool) -> str:
    """The contrasts and what follows from them, or what cannot be said without them."""
    fsd = {one.name: row for one in CONTRASTS if (row := rows.get((best, "fsd", f"auc_{one.name}")))}
    if len(fsd) == len(CONTRASTS):
        return _three(best, rows, never_saw=never_saw)
    missing = " and ".join(one.title for one in CONTRASTS if one.name not in fsd)
    if MEMBERSHIP.name in fsd:
        return (
            "all non-members are contemporaries, of the members' own period, so that familiarity with the period "
            f"cannot explain the result; {missing} cannot be compared: there are no later texts"
        )
    unknown = (
        "without contemporaries (non-members of the members' own period) a separation may be familiarity with that "
        "period; neither the blind classifier nor a placebo excludes this"
    )
    if WITH_LATER.name in fsd:
        return f"{unknown}; {missing} cannot be compared: all non-members are later texts"
    if never_saw or rows[best, "fsd", "auc"].low <= 0.5:
        return ""
    return f"{unknown}; a column period, or --cutoff DAY, shows which texts are contemporaries"


def _three(best: str, rows: Rows, *, never_saw: bool) -> str:
    numbers, fsd = [], {}
    for one in CONTRASTS:
        row = fsd[one] = rows[best, "fsd", f"auc_{one.name}"]
        base = rows.get((best, "base", f"auc_{one.name}"))
        before = f"{base.estimate}".partition(" ")[0] + " → " if base else ""
        placebo = rows.get((best, "fsd", f"placebo_auc_{one.name}"))
        beside = f" (placebo {placebo.estimate}".partition(" [")[0] + ")" if placebo else ""
        numbers.append(f"{one.title} {before}{row.estimate}{beside}")
    start = f"{best}{' base →' if before else ''} FSD: {', '.join(numbers)}"
    if never_saw:
        return start
    period = _familiarity(best, rows)
    if fsd[MEMBERSHIP].low > 0.5:
        return f"{start}; {period}; what can be due to membership is the separation within the period"
    return f"{start}; {period}; within the period nothing was shown, so this is not evidence of membership"


def _familiarity(best: str, rows: Rows) -> str:
    """What separates contemporaries from later texts by the FSD of the best detector, or else by that of another."""
    metric = f"auc_{FAMILIARITY.name}"
    shown = [name for name, state, measured in rows if (state, measured) == ("fsd", metric)]
    causes = {name: cause for name in shown if (cause := _cause(name, rows))}
    if best in causes:
        return f"{_NEVER_READ} {causes[best]}"
    none = f"no familiarity with the period was shown by {best}"
    others = [rows[name, "fsd", metric] for name, cause in causes.items() if cause != _TEXTS]
    if not others:
        return none
    most = max(others, key=lambda row: row.value)
    which = f"{most.detector}, the highest of {len(shown)}, it is {most.estimate}"
    return f"{none}; by the FSD of {which}: {_NEVER_READ} {causes[most.detector]}"


def _cause(detector: str, rows: Rows) -> str:
    """What may separate contemporaries from later texts by the FSD of a detector; empty if they are not separated."""
    lead = rows.get((detector, "fsd", f"placebo_lead_{FAMILIARITY.name}"))
    if rows[detector, "fsd", f"auc_{FAMILIARITY.name}"].low <= 0.5:
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
        share = leaks.tested / leaks.test
        lines.append(
            f"LEAK: {_belong(leaks.tested, leaks.test)} ({share:.0%}) to a group that was used for fine-tuning; "
            f"{'its score measures' if leaks.tested == 1 else 'their scores measure'} the fine-tuning"
        )
    if leaks.calibrated:
        lines.append(f"LEAK: {_belong(leaks.calibrated, leaks.test)} to a group that was used to choose thresholds")
    return lines


def _belong(number: int, texts: int) -> str:
    return f"{number} of {texts} test text{'' if texts == 1 else 's'} belong{'s' if number == 1 else ''}"


def _shift(audit: Audit) -> list[str]:
    lines = []
    for name, control in (("date", audit.date), ("length", audit.length)):
        if control.auc is not None and control.auc.low > 0.5:
            lines.append(f"the {name} alone separates members from non-members with AUC {control.auc}")
    apart = [
        f"{name} {overlap.value:.0%} (matched texts would show {overlap.chance:.0%})"
        for name, overlap in audit.overlaps.items()
        if overlap.value < 0.9 * overlap.chance
    ]
    return lines + ([f"members and non-members overlap little in {', '.join(apart)}"] if apart else [])
