"""Gains of tuned settings over the defaults, on validation and on the test texts."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fsd.evaluation.intervals import Bootstrap, Estimate
from fsd.evaluation.metrics import compare, estimates
from fsd.token_stats import Scores
from fsd.tuning.objective import Winner

HEADINGS = ("tuned", "winner", "validation", "cross-val.", "test [95 % CI]", "gain", "p")


@dataclass(frozen=True)
class Gain:
    """The winner of one task against the default settings, by their objectives on the test texts.

    `gain` has a paired interval; `p` is DeLong's by group for the AUC, otherwise the bootstrap's, and two-sided;
    `p_holm` is corrected for the number of tasks.
    """

    winner: Winner
    default: Estimate
    tuned: Estimate
    gain: Estimate
    p: float
    p_holm: float

    @property
    def gap(self) -> float:
        """Value of the winner on validation minus that on the test texts: optimism of the selection, and chance."""
        return self.winner.value - self.tuned.value


def compare_on_test(
    winners: Sequence[Winner],
    labels: Sequence[bool],
    groups: Sequence[int],
    default: Scores,
    tuned: Scores,
    *,
    objective: str = "auc",
    seed: int = 0,
) -> list[Gain]:
    """Compare the winners' settings with the default settings on the N test texts, by their scores with either."""
    bootstrap = Bootstrap.draw(labels, groups, seed=seed)
    comparisons = compare(bootstrap, default, tuned, metric=objective)
    gains = []
    for winner in winners:
        before, after = (estimates(bootstrap, scores[winner.label])[objective] for scores in (default, tuned))
        comparison = comparisons[winner.label]
        gain = comparison.gain._replace(value=after.value - before.value)
        gains.append(Gain(winner, before, after, gain, comparison.p, comparison.p_holm))
    return gains


def frame(gains: Sequence[Gain]) -> pd.DataFrame:
    """One row per task for tuning.csv: settings, and values on validation and test with the ends of the intervals."""
    rows: list[dict[str, Any]] = []
    for g in gains:
        row: dict[str, Any] = {
            "task": g.winner.label,
            "default": json.dumps(g.winner.default),
            "tuned": json.dumps(g.winner.settings),
            "settings_tried": g.winner.tried,
            "validation_default": g.winner.default_value,
            "validation_tuned": g.winner.value,
            "validation_chosen_elsewhere": g.winner.cross_validated,
        }
        for name, estimate in (("test_default", g.default), ("test_tuned", g.tuned), ("test_gain", g.gain)):
            row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        rows.append(row | {"p": g.p, "p_holm": g.p_holm, "validation_test_gap": g.gap})
    return pd.DataFrame(rows)


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
"""Column of `frame` → prefix of its metrics in MLflow."""


def metrics(gains: Sequence[Gain]) -> dict[str, float]:
    """The numbers of `frame` as MLflow metrics."""
    rows = frame(gains).set_index("task")
    return {f"{METRICS[column]}/{label}": float(rows.loc[label, column]) for label in rows.index for column in METRICS}


def rows(gains: Sequence[Gain]) -> list[list[str]]:
    """One row per task for the terminal, under `HEADINGS`."""
    return [
        [
            g.winner.label,
            "default" if g.winner.settings == g.winner.default else _shown(g.winner.settings),
            f"{g.winner.default_value:.3f} → {g.winner.value:.3f}",
            "–" if math.isnan(g.winner.cross_validated) else f"{g.winner.cross_validated:.3f}",
            f"{g.default}\n→ {g.tuned}",
            f"{g.gain.value:+.3f}\n[{g.gain.low:+.3f}, {g.gain.high:+.3f}]",
            f"{g.p:.3f}",
        ]
        for g in gains
    ]


def remarks(gains: Sequence[Gain]) -> list[str]:
    """Conclusions about tuning itself, one line each."""
    above = [g.winner.label for g in gains if g.gain.low > 0]
    below = [g.winner.label for g in gains if g.gain.high < 0]
    gap = float(np.mean([g.gap for g in gains]))
    optimism = [g.winner.value - g.winner.cross_validated for g in gains if not math.isnan(g.winner.cross_validated)]
    lines = [
        f"gain on test texts with an interval above 0: {', '.join(above) or 'none'}"
        + (f"; below 0: {', '.join(below)}" if below else ""),
        f"on average, winners have {gap:+.3f} more on validation than on the test texts",
    ]
    if optimism:
        lines.append(f"optimism of the selection: {np.mean(optimism):+.3f} compared with the cross-validated choice")
    return lines


def _shown(settings: Mapping[str, Any]) -> str:
    """`entropy=2 k=40`."""
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in settings.items()
    )
