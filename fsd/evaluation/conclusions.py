"""What the numbers can and cannot support, in plain words for the terminal, the tracker and the report."""

from collections.abc import Mapping, Sequence

from fsd.evaluation.audit import Audit
from fsd.evaluation.intervals import Estimate
from fsd.evaluation.metrics import Result
from fsd.evaluation.placebo import Placebo

SIGNIFICANT = 0.05


def plain_words(
    audit: Audit,
    results: Sequence[Result],
    placebo: Mapping[str, Placebo] | None = None,
    *,
    never_saw: bool = False,
) -> list[str]:
    """Sober sentences about the detector with the highest FSD AUC, in the order of their weight.

    - The interval holds .5: nothing was shown.
    - The blind classifier is at least as good as the lower end of the interval, and better than chance: the benchmark
      cannot show membership.
    - The blind classifier is better than chance but worse than that: part of the result may be its difference.
    - The lead over the placebo may be none: the result is not evidence of membership.
    - There is a lead, but the placebo is better than chance: only the lead can be membership.

    Args:
        audit: of the same split.
        results: rows of the table; without any, only the benchmark is spoken of.
        placebo: detector → the same job on a model that saw neither side.
        never_saw: whether the model itself is known to have seen none of the texts.
    """
    lines = []
    if never_saw:
        lines.append(
            "this model saw none of these texts: the whole run is a placebo, and whatever it tells apart is not "
            "membership"
        )
    if results:
        best = max(results, key=lambda row: row.fsd.auc.value)
        lines.append(_headline(best, len(results), audit.blind.auc, audit.blind.reason))
        lines.append("" if never_saw else _placebo(best, placebo))
        lines.append(_gains(results))
    elif audit.blind.auc is not None:
        lines.append(f"a blind classifier that never sees the model reaches {audit.blind.auc}")
    return [line for line in (*lines, *_leaks(audit), *_shift(audit)) if line]


def _headline(best: Result, rows: int, blind: Estimate | None, reason: str) -> str:
    found = best.fsd.auc
    highest = f", the highest of {rows} detectors" if rows > 1 else ""
    start = f"{best.detector} FSD {found}{highest}"
    if found.low <= 0.5:
        return f"{start}: not told apart from chance, this shows nothing about membership"
    if blind is None:
        return f"{start}; no blind classifier could be trained ({reason}): what causes the result is open"
    reached = f"a blind classifier that never sees the model reaches {blind} here"
    if blind.low <= 0.5:
        return f"{start}; {reached}, no better than chance: the two sides look alike without the model"
    if blind.value >= found.low:
        return f"{start}; {reached}: this benchmark cannot show membership"
    return f"{start}; {reached}: a part of the result may be the difference between the two sides"


def _gains(results: Sequence[Result]) -> str:
    """For which detectors fine-tuning helped, and for which it did harm, corrected for their number."""
    tested = [(row.detector, row.comparison) for row in results if row.comparison]
    shown = [(name, comparison.gain.value) for name, comparison in tested if comparison.p_holm < SIGNIFICANT]
    better = [name for name, gain in shown if gain > 0]
    worse = [name for name, gain in shown if gain < 0]
    parts = [f"better for {', '.join(better)}"] if better else []
    parts += [f"worse for {', '.join(worse)}"] if worse else []
    rest = len(tested) - len(better) - len(worse)
    if rest:
        parts.append(f"no difference shown for {'the other ' if parts else ''}{rest}")
    return f"FSD against the base score (p < .05 after Holm): {'; '.join(parts)}" if tested else ""


def _placebo(best: Result, placebo: Mapping[str, Placebo] | None) -> str:
    found = (placebo or {}).get(best.detector)
    if found is None:
        return "no placebo: the same job on a model that saw neither side would show how much is not membership"
    lead = found.lead.gain
    value, low, high = (f"{number:+.2f}".replace("0.", ".", 1) for number in lead)
    start = (
        f"placebo: {best.detector} FSD reaches {found.auc} on a model that saw neither side; the lead over it, "
        f"{value} [{low}, {high}],"
    )
    if lead.low <= 0:
        return f"{start} may be none: this result is not evidence of membership"
    if found.auc.low > 0.5:
        return f"{start} is all that can be membership"
    return f"{start} does not come from the texts alone"


def _leaks(audit: Audit) -> list[str]:
    leaks = audit.leaks
    if not leaks.groups:
        return ["no group and no near-duplicate lies in two parts of the split"]
    lines = [f"LEAK: {leaks.groups} groups of texts lie in more than one part of the split"]
    if leaks.tested:
        share = leaks.tested / leaks.test
        lines.append(
            f"LEAK: {leaks.tested} of {leaks.test} test texts ({share:.0%}) belong to a group that was fine-tuned on; "
            "their scores measure the fine-tuning"
        )
    if leaks.calibrated:
        lines.append(
            f"LEAK: {leaks.calibrated} of {leaks.test} test texts belong to a group that thresholds were chosen on"
        )
    return lines


def _shift(audit: Audit) -> list[str]:
    lines = []
    for name, control in (("date", audit.date), ("length", audit.length)):
        if control.auc is not None and control.auc.low > 0.5:
            lines.append(f"the {name} alone tells members from non-members with AUC {control.auc}")
    apart = [
        f"{name} {overlap.value:.0%} (equal sides would show {overlap.chance:.0%})"
        for name, overlap in audit.overlaps.items()
        if overlap.value < 0.9 * overlap.chance
    ]
    return lines + ([f"members and non-members overlap little in {', '.join(apart)}"] if apart else [])
