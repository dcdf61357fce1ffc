"""What tuning was worth: winners against defaults, on validation and once on the test texts."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from fsd.evaluation.intervals import Bootstrap, Estimate
from fsd.evaluation.metrics import compare, estimates
from fsd.token_stats import Scores
from fsd.tuning.objective import Winner


@dataclass(frozen=True)
class Gain:
    """One task: what validation promised and what the test texts say.

    Attributes:
        winner: as chosen on validation.
        default: of the default settings, on the test texts.
        tuned: of the winner's, on the test texts.
        gain: tuned minus default in the objective, paired.
        p: two-sided: DeLong's for AUC, else the bootstrap's.
        p_holm: corrected for the number of tasks.
    """

    winner: Winner
    default: Estimate
    tuned: Estimate
    gain: Estimate
    p: float
    p_holm: float

    @property
    def gap(self) -> float:
        """What the winner loses from validation to test: its bonus for being the best there, and chance."""
        return self.winner.value - self.tuned.value


def open_test(
    winners: Sequence[Winner],
    labels: Sequence[bool],
    groups: Sequence[int],
    default: Scores,
    tuned: Scores,
    *,
    objective: str = "auc",
    seed: int = 0,
) -> list[Gain]:
    """Default and tuned scores of the test texts side by side.

    Args:
        winners: one a task.
        labels: (N,) of the test texts.
        groups: (N,) their families.
        default: label of the task → (N,).
        tuned: the same with the winner's settings.
        objective: what was tuned for.
        seed: of the bootstrap.
    """
    bootstrap = Bootstrap.draw(labels, groups, seed=seed)
    sides = [
        {label: estimates(bootstrap, column)[objective] for label, column in scores.items()}
        for scores in (default, tuned)
    ]
    compared = compare(bootstrap, default, tuned, metric=objective)
    gains = []
    for w in winners:
        (before, after), comparison = (side[w.label] for side in sides), compared[w.label]
        gain = comparison.gain._replace(value=after.value - before.value)
        gains.append(Gain(w, before, after, gain, comparison.p, comparison.p_holm))
    return gains


def frame(gains: Sequence[Gain]) -> pd.DataFrame:
    """One row a task: settings, validation and test before and after, with the ends of the intervals."""
    rows: list[dict[str, Any]] = []
    for g in gains:
        w = g.winner
        row: dict[str, Any] = {
            "task": w.label,
            "default": json.dumps(w.default),
            "tuned": json.dumps(w.settings),
            "settings_tried": w.tried,
            "validation_default": w.default_value,
            "validation_tuned": w.value,
            "validation_chosen_elsewhere": w.cross_validated,
        }
        for name, estimate in (("test_default", g.default), ("test_tuned", g.tuned), ("test_gain", g.gain)):
            row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        rows.append(row | {"p": g.p, "p_holm": g.p_holm, "validation_test_gap": g.gap})
    return pd.DataFrame(rows)


def metrics(gains: Sequence[Gain]) -> dict[str, float]:
    """The same under names that MLflow groups."""
    found: dict[str, float] = {}
    for g in gains:
        label = g.winner.label
        found |= {
            f"tuning_validation_default/{label}": g.winner.default_value,
            f"tuning_validation_tuned/{label}": g.winner.value,
            f"tuning_validation_chosen_elsewhere/{label}": g.winner.cross_validated,
            f"tuning_test_default/{label}": g.default.value,
            f"tuning_test_tuned/{label}": g.tuned.value,
            f"tuning_test_gain/{label}": g.gain.value,
            f"tuning_test_gain_p/{label}": g.p,
            f"tuning_gap/{label}": g.gap,
        }
    return found


def show(gains: Sequence[Gain], objective: str, notes: Sequence[str]) -> None:
    """The table on the terminal, and under it what is to be said."""
    table = Table(title=f"Tuned for {objective} on validation; the test texts were opened once", title_style="")
    for heading in ("tuned", "winner", "validation", "elsewhere", "test default [95 % CI]", "test tuned", "gain", "p"):
        table.add_column(heading, justify="left" if heading in ("tuned", "winner") else "right")
    for g in gains:
        w = g.winner
        table.add_row(
            w.label,
            "default" if w.settings == w.default else shown(w.settings),
            f"{w.default_value:.3f} → {w.value:.3f}",
            "–" if math.isnan(w.cross_validated) else f"{w.cross_validated:.3f}",
            str(g.default),
            str(g.tuned),
            f"{g.gain.value:+.3f} [{g.gain.low:+.3f}, {g.gain.high:+.3f}]",
            f"{g.p:.3f}",
        )
    console = Console(soft_wrap=False, width=max(150, Console().width))
    console.print(table)
    for line in notes:
        console.print(f"• {line}", highlight=False, soft_wrap=True)


def remarks(gains: Sequence[Gain]) -> list[str]:
    """What the table says about tuning itself, in plain words."""
    real = [g.winner.label for g in gains if g.gain.low > 0]
    worse = [g.winner.label for g in gains if g.gain.high < 0]
    gap = float(np.mean([g.gap for g in gains]))
    leads = [g.winner.value - g.winner.cross_validated for g in gains if not math.isnan(g.winner.cross_validated)]
    lines = [
        f"gain on test texts with an interval above 0: {', '.join(real) or 'none'}"
        + (f"; below 0: {', '.join(worse)}" if worse else ""),
        f"winners have {gap:+.3f} more on validation than on the test texts, on average",
    ]
    if leads:
        lines.append(
            f"they lead settings chosen on other folds by {np.mean(leads):+.3f}: that much is luck of the choice"
        )
    return lines


def shown(settings: Mapping[str, Any]) -> str:
    """`entropy=2 k=40`."""
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in settings.items()
    )
