"""What the numbers can and cannot support, in plain words for the terminal, MLflow and the report."""

from collections.abc import Mapping

import pandas as pd

from fsd.evaluation.audit import Audit, explains
from fsd.evaluation.intervals import Estimate
from fsd.evaluation.metrics import Row, by_key

SIGNIFICANT = 0.05

Rows = Mapping[tuple[str, str, str], Row]


def conclusions(
    audit: Audit, table: pd.DataFrame, best: str, *, on_validation: bool, never_saw: bool = False
) -> list[str]:
    """Cautious sentences about one detector, the most important first.

    - The interval contains .5: nothing was shown.
    - The blind classifier explains the result (see `explains`): the benchmark cannot show membership.
    - The blind classifier is better than chance but clearly worse than the detector: part of the result may be the
      difference between members and non-members that it sees.
    - The lead over the placebo may be zero: the result is not evidence of membership.
    - There is a lead, but the placebo is better than chance: only the lead can be due to membership.

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
        lines.append(_headline(best, rows, audit.blind.auc, audit.blind.reason, on_validation))
        lines.append("" if never_saw else _placebo(best, rows))
        lines.append(_gains(rows))
    elif audit.blind.auc is not None:
        lines.append(f"a blind classifier, which never sees the model, reaches {audit.blind.auc}")
    return [line for line in (*lines, *_leaks(audit), *_shift(audit)) if line]


def _headline(best: str, rows: Rows, blind: Estimate | None, reason: str, on_validation: bool) -> str:
    auc = rows[best, "fsd", "auc"].estimate
    many = len({detector for detector, state, _ in rows if state == "fsd"})
    start = f"{best} FSD {auc}"
    if many > 1:
        start += f", the best of {many} detectors on the " + (
            "validation texts" if on_validation else "test texts themselves, which makes it optimistic"
        )
    if auc.low <= 0.5:
        return f"{start}: not distinguishable from chance, this shows nothing about membership"
    if blind is None:
        return f"{start}; no blind classifier could be trained ({reason}): the cause of the result is open"
    reached = f"a blind classifier, which never sees the model, reaches {blind} here"
    if blind.low <= 0.5:
        return f"{start}; {reached}, no better than chance: without the model, members and non-members look alike"
    if explains(blind, auc):
        return f"{start}; {reached}: this benchmark cannot show membership"
    return f"{start}; {reached}: part of the result may be the difference between members and non-members"


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
        return (
            "no placebo: the same procedure on a control model trained on none of these texts would show how much of "
            "the result is not membership"
        )
    value, low, high = (f"{number:+.2f}".replace("0.", ".", 1) for number in lead.estimate)
    start = (
        f"placebo: {best} FSD reaches {control.estimate} on a control model trained on none of these texts; the lead "
        f"over it, {value} [{low}, {high}],"
    )
    if lead.low <= 0:
        return f"{start} may be zero: this result is not evidence of membership"
    if control.low > 0.5:
        return f"{start} is the most that can be due to membership"
    return f"{start} does not come from the texts alone"


def _leaks(audit: Audit) -> list[str]:
    leaks = audit.leaks
    if not leaks.groups:
        return ["no group and no set of near-duplicates spans two parts of the split"]
    lines = [f"LEAK: {leaks.groups} groups of texts span more than one part of the split"]
    if leaks.tested:
        share = leaks.tested / leaks.test
        lines.append(
            f"LEAK: {leaks.tested} of {leaks.test} test texts ({share:.0%}) belong to a group that was used for "
            "fine-tuning; their scores measure the fine-tuning"
        )
    if leaks.calibrated:
        lines.append(
            f"LEAK: {leaks.calibrated} of {leaks.test} test texts belong to a group that was used to choose thresholds"
        )
    return lines


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
