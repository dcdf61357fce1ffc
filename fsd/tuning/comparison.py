"""Gains of tuned settings over the defaults, on validation and on the test texts."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fsd.evaluation.intervals import Bootstrap, Estimate
from fsd.evaluation.metrics import compare, estimates
from fsd.token_stats import Scores
from fsd.tuning.objective import Winner

HEADINGS = ("tuned", "winner", "validation", "cross-val.", "test [95 % CI]", "gain", "p")
METRICS = {
    "validation_default": "tuning_validation_default",
    "validation_tuned": "tuning_validation_tuned",
    "validation_chosen_elsewhere": "tuning_validation_chosen_elsewhere",
    "test_default": "tuning_test_default",
    "test_tuned": "tuning_test_tuned",
    "test_gain": "tuning_test_gain",
    "p": "tuning_test_gain_p",
    "validation_test_gap": "tuning_gap",
}
"""Column of the table of gains → prefix of its metrics in MLflow."""


def compare_on_test(
    winners: Sequence[Winner],
    labels: Sequence[bool],
    groups: Sequence[int],
    default: Scores,
    tuned: Scores,
    *,
    objective: str = "auc",
    seed: int = 0,
) -> pd.DataFrame:
    """Compare the winners' settings with the default settings on the N test texts, by their scores with either.

    Returns the table of gains, one row per task: settings, and the objective on validation and on the test texts with
    the ends of its intervals. The gain has a paired interval, and a two-sided p: DeLong's by group for the AUC,
    otherwise the bootstrap's. The gap between validation and test is the optimism of the selection, and chance.
    """
    bootstrap = Bootstrap.draw(labels, groups, seed=seed)
    comparisons = compare(bootstrap, default, tuned, metric=objective)
    rows = []
    for winner in winners:
        before, after = (estimates(bootstrap, scores[winner.label])[objective] for scores in (default, tuned))
        comparison = comparisons[winner.label]
        gain = comparison.gain._replace(value=after.value - before.value)
        row: dict[str, Any] = {
            "task": winner.label,
            "default": json.dumps(winner.default),
            "tuned": json.dumps(winner.settings),
            "settings_tried": winner.tried,
            "validation_default": winner.default_value,
            "validation_tuned": winner.value,
            "validation_chosen_elsewhere": winner.cross_validated,
        }
        for name, estimate in (("test_default", before), ("test_tuned", after), ("test_gain", gain)):
            row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        p = {"p": comparison.p, "p_holm": comparison.p_holm}
        rows.append(row | p | {"validation_test_gap": winner.value - after.value})
    return pd.DataFrame(rows)


def metrics(gains: pd.DataFrame) -> dict[str, float]:
    """The numbers of the gains as MLflow metrics."""
    rows = gains.to_dict("records")
    return {f"{prefix}/{row['task']}": float(row[column]) for row in rows for column, prefix in METRICS.items()}


def rows(gains: pd.DataFrame) -> list[list[str]]:
    """One row per task for the terminal, under `HEADINGS`."""

    def interval(row: Mapping[Any, Any], name: str) -> Estimate:
        return Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"])

    return [
        [
            g["task"],
            "default" if g["tuned"] == g["default"] else _shown(json.loads(g["tuned"])),
            f"{g['validation_default']:.3f} → {g['validation_tuned']:.3f}",
            "–" if math.isnan(g["validation_chosen_elsewhere"]) else f"{g['validation_chosen_elsewhere']:.3f}",
            f"{interval(g, 'test_default')}\n→ {interval(g, 'test_tuned')}",
            "{:+.3f}\n[{:+.3f}, {:+.3f}]".format(*interval(g, "test_gain")),
            f"{g['p']:.3f}",
        ]
        for g in gains.to_dict("records")
    ]


def remarks(gains: pd.DataFrame) -> list[str]:
    """Conclusions about tuning itself, one line each."""
    above, below = gains.task[gains.test_gain_low > 0], gains.task[gains.test_gain_high < 0]
    optimism = (gains.validation_tuned - gains.validation_chosen_elsewhere).dropna()
    lines = [
        f"gain on test texts with an interval above 0: {', '.join(above) or 'none'}"
        + (f"; below 0: {', '.join(below)}" if len(below) else ""),
        f"on average, winners have {gains.validation_test_gap.mean():+.3f} more on validation than on the test texts",
    ]
    if len(optimism):
        lines.append(f"optimism of the selection: {optimism.mean():+.3f} compared with the cross-validated choice")
    return lines


def _shown(settings: Mapping[str, Any]) -> str:
    """`entropy=2 k=40`."""
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in settings.items()
    )
