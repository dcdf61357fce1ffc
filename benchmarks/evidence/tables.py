"""Tables and the figure of what the trials measured."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.evidence.trials import ALPHA, EXTRACTABLE
from extensions.extract.extraction import ratio
from fsd.reporting import charts, figures
from fsd.reporting.report import markdown, plain
from fsd.statistics.intervals import Estimate, observed_rate

Targets = Sequence[Mapping[str, Any]]
"""The results of `trials.target`, one per seed."""


def table(title: str, headings: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A Markdown table below its title."""
    return f"**{title}**\n\n{markdown(plain(headings, [list(map(str, line)) for line in lines]))}"


def few(p: Sequence[float], alpha: float = ALPHA, groups: Sequence[Any] | None = None) -> Estimate:
    """Share of p-values at most α, with its interval."""
    return observed_rate(np.array(p) <= alpha + 1e-9, groups)


def median(p: Sequence[float]) -> str:
    """Median p-value, never as 0.000."""
    value = float(np.median(p))
    return f"{value:.3f}" if value >= 0.0005 else "< 0.001"


def levels_of(targets: Targets) -> list[int]:
    """How often the texts of the trials were read, from never on."""
    return [entry["level"] for entry in targets[0]["extraction"]]


def of_canaries(targets: Targets) -> str:
    """Power by number of times read, and the p-values of the canaries that were not."""
    found: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    combined: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for target in targets:
        for one in target["canaries"]:
            found[one["detector"], one["level"]] += one["p"]
            combined[one["detector"], one["level"]].append(one["combined"])
    lines = [
        [name, level, len(p), median(p), few(p), ", ".join(f"{v:.2g}" for v in combined[name, level])]
        for (name, level), p in sorted(found.items())
    ]
    headings = ["detector", "times read", "documents", "median p", "found at p ≤ .05", "combined p of each model"]
    levels = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
    uniform = [[name, *(few(found[name, 0], at) for at in levels)] for name in sorted({name for name, _ in found})]
    return "\n".join(
        [
            table("Canaries", headings, lines),
            table(
                "Canaries that were not read: share of exact p-values at most …",
                ["detector", *(f"{at:g}" for at in levels)],
                uniform,
            ),
        ]
    )


def shares(targets: Targets, level: int, p: float) -> Estimate:
    """Share of the tokens in extractable continuations; the tokens of a text count as related."""
    covered, texts = [], []
    for number, target in enumerate(targets):
        for one in (one for one in target["extraction"] if one["level"] == level):
            for at, (inside, size) in enumerate(one["tokens"][str(p)]):
                covered += [True] * inside + [False] * (size - inside)
                texts += [(number, at)] * size
    return observed_rate(np.array(covered), texts)


def of_extraction(targets: Targets) -> str:
    """Share of texts in extractable continuations by number of times read, and its ratio to texts not read."""
    lines = []
    for level in levels_of(targets):
        works = [text for t in targets for one in t["extraction"] if one["level"] == level for text in one["log10_p"]]
        found = [shares(targets, level, p) for p in EXTRACTABLE]
        unread = shares(targets, 0, EXTRACTABLE[0])
        against = ratio(found[0], unread) if found[0].value or unread.value else "–"
        middle, highest = (f"10^{of(np.concatenate(works)):.1f}" for of in (np.median, np.max))
        lines.append([level, len(works), middle, highest, *found, against])
    headings = [
        "times read",
        "texts",
        "median p",
        "highest p",
        "p ≥ .1 %",
        "p ≥ 1 %",
        "p ≥ 50 %",
        "ratio to unread, .1 %",
    ]
    return table("Extraction: passages of 20 + 20 tokens; shares of the texts' tokens", headings, lines)


def rates(targets: Targets) -> dict[str, list[tuple[int | str, list[float], list[Any]]]]:
    """Test → for each level (or "no set") the p-values, and the group of related ones of each."""
    tests: dict[str, list[tuple[int | str, list[float], list[Any]]]] = {}
    sources = [("exchangeability", "order", 1), ("dataset inference", "inference", 1)]
    sources += [("CoDeC", "sets", 1), ("kernel divergence", "sets", 2)]
    for name, key, column in sources:
        rows: list[tuple[int | str, list[float], list[Any]]] = []
        null = [(row if isinstance(row, list) else [row], at) for at, t in enumerate(targets) for row in t[key]["null"]]
        # draws from one model's unread texts overlap, but a read set's several p-values have the set itself in common
        rows.append((0, [float(row[min(column - 1, len(row) - 1)]) for row, _ in null], list(range(len(null)))))
        for level in levels_of(targets)[1:]:
            chosen = [(r, at) for at, t in enumerate(targets) for r in t[key]["levels"] if r[0] == level]
            rows.append((level, [float(row[column]) for row, _ in chosen], [at for _, at in chosen]))
        tests[name] = rows
    return tests


def of_data_sets(targets: Targets) -> str:
    """False alarms and power of each test of whole data sets."""
    lines = [
        [name, "never (false alarms)" if level == 0 else level, len(p), median(p), few(p, groups=groups)]
        for name, rows in rates(targets).items()
        for level, p, groups in rows
    ]
    return table("Whole data sets", ["test", "times read", "p-values", "median p", "p ≤ .05"], lines)


def of_audits(audits: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """AUC of the detector chosen on validation, and verdicts at a false-positive rate of 5 %."""
    lines = []
    for trained in sorted({one["epochs"] for audit in audits for one in audit}):
        chosen = [one for audit in audits for one in audit if one["epochs"] == trained]
        tuned, calibrated = ([one[name] for one in chosen] for name in ("tuned", "calibrated"))
        p, member = (np.array([value for one in chosen for value in one[name]]) for name in ("p", "label"))
        spread = [f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})" for values in (tuned, calibrated)]
        lines.append([trained, *spread, few(p[member == 1]), few(p[member == 0])])
    headings = ["epochs", "fine-tuned AUC", "calibrated AUC", "found at p ≤ .05", "false alarms"]
    return table(f"Adapter audits: mean of {len(audits)} (lowest to highest)", headings, lines)


def found(targets: Targets) -> dict[str, list[float]]:
    """Test → share that is found at an error rate of 5 %, by number of times seen; intervals are in the tables."""
    levels = levels_of(targets)
    canaries: defaultdict[int, list[float]] = defaultdict(list)
    for target in targets:
        for one in target["canaries"]:
            if one["detector"] == "loss":
                canaries[one["level"]] += one["p"]
    lines = {"one canary": [few(canaries[level]).value for level in levels]}
    for name, rows in rates(targets).items():
        lines[name] = [few(p).value for _, p, _ in rows]
    return lines | {"extraction": [shares(targets, level, EXTRACTABLE[0]).value for level in levels]}


def figure(lines: Mapping[str, Sequence[float]], levels: Sequence[int]) -> bytes:
    """The shares of `found`, as PNG."""
    x = [0.5 if level == 0 else float(level) for level in levels]
    names = {"x_name": "times seen in training (left: never)", "y_name": "share found (error rate 5 %)"}
    drawn = charts.curves(x, {"": lines}, **names, chance=ALPHA, x_log=True)
    drawn.axes[0].set_xticks(x, [str(level) for level in levels])
    return figures.png(drawn)


def shown(targets: Targets, audits: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """All tables."""
    parts = [of_canaries(targets), of_extraction(targets), of_data_sets(targets)] if targets else []
    return "\n".join([*parts, *([of_audits(audits)] if audits else [])])
