"""Do verdicts keep their rate where the model knows several sources? python -m benchmarks.verdict_mixtures --help.

Targets are trained on one, three and five sources, an adapter is calibrated on one of them, and requests mix unread
texts of that source with unread guests from another one, which the target was trained on in part, or not at all.
Guests come as single texts, in one group, in four, or each on its own. Whoever is called a member is a false positive.

"called" is the mean share of non-members called members among requests that get a verdict, "guests called" the share
of the guests of such requests, "unchecked" the share of all texts without any check, "refused" the share of requests
without a verdict, "outside" the share of texts of the calibrated kind that are outside one by one. Brackets: 95 %
intervals over targets and calibrations, whose requests are related.
"""

import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tyro

from benchmarks.verdict_mixtures.targets import DETECTORS, Sizes, Target, named, scored, sources, targets
from fsd.evaluation.calibration import TOLERANCE, calibrate
from fsd.evaluation.domain_check import DomainCheck, Reference, other_kinds
from fsd.evaluation.exchangeability import exchangeability
from fsd.scores import Score
from fsd.token_stats import FloatArray

SHARES = (
    (1, 100),
    (1, 10),
    (2, 10),
    (2, 40),
    (4, 40),
    (8, 40),
    (5, 100),
    (10, 100),
    (20, 40),
    (36, 40),
    (1, 1),
    (40, 40),
)
"""Guests of all texts of a request."""
KINDS = ("abstracts", "articles", "docstrings")
"""Kinds by which the domain check of an adapter is tried: no verdict where it does not recognise them."""
CALIBRATED = 43
"""Number of non-members that the calibration rests on; as many are test texts of the benchmark."""


@dataclass(frozen=True)
class Settings:
    """Targets and mixtures."""

    folder: str = "build/verdict_mixtures"
    """Folder that keeps the scores of each target."""
    data: str | None = None
    """Folder with a JSONL file for each further source (column text)."""
    sources: tuple[str, ...] = ()
    """Sources to take, by name; without any, all."""
    counts: tuple[int, ...] = (1, 3, 5)
    """Numbers of sources that targets are trained on."""
    draws: int = 2
    """Targets for each of these numbers."""
    reads: tuple[str, ...] = ()
    """Targets in place of random ones, each as first+second:seed; the first source is the calibrated one."""
    share: float = 1.0
    """Share of the texts that are read, scored and calibrated with; less is quick, and its numbers mean little."""
    mixtures: int = 8
    """Requests for each target, share of guests, kind of guests and grouping."""
    fpr: float = 0.05
    """Promised false-positive rate."""
    seed: int = 0
    """Random seed."""


def requests(target: Target, table: pd.DataFrame, states: FloatArray, settings: Settings) -> list[dict[str, Any]]:
    """The mixtures of one target, a row each."""
    rows = []
    source, member = table["source"].to_numpy(), table["member"].to_numpy(bool)
    unseen, texts = table["unseen"].to_numpy(bool), table["text"].to_numpy()
    own = np.flatnonzero((source == target.calibrated) & ~member & ~unseen)
    read = [name for name in target.reads if name != target.calibrated]
    others = {"read": read, "unread": [n for n in dict.fromkeys(source.tolist()) if n not in target.reads]}
    seed = 0
    calibrated = round(CALIBRATED * settings.share)
    for draw in range(settings.mixtures):
        rng = np.random.default_rng([settings.seed, target.seed, len(target.reads), draw])
        held = rng.permutation(own)
        validation, rest = held[:calibrated], held[calibrated:]
        known, asked = rest[:calibrated], rest[calibrated:]
        benchmark = np.concatenate([validation, known, np.flatnonzero(unseen)])
        chosen = np.concatenate([np.flatnonzero(member), validation])
        scores = {Score(name): table[name].to_numpy()[chosen] for name in DETECTORS}
        kinds = {name: np.flatnonzero((source == name) & ~member) for name in KINDS if name != target.calibrated}
        reference = Reference(tuple(texts[benchmark]), tuple(range(benchmark.size)), ("",) * benchmark.size, {})
        calibration = calibrate(member[chosen], scores, reference=reference)
        pool = [text for found in other_kinds(reference.texts).values() for text in found]
        check = DomainCheck(reference.texts, None, states[benchmark], pool)
        found = {
            name: np.mean([bool(w) for w in check.outside(texts[at].tolist(), None, states[at])])
            for name, at in kinds.items()
        }
        powerful = replace(reference, power=found).powerful
        for guests, size in ((0, 10), (0, 40), (0, min(100, asked.size)), *SHARES):
            size = min(size, asked.size + guests)
            for kind, names in {"none": [""]}.items() if not guests else others.items():
                if not names:
                    continue
                other = random.Random(f"{draw} {guests} {size} {kind}").choice(names)
                unread = np.flatnonzero((source == other) & ~member)
                for groups in ("many",) if guests < 4 else ("one", "four", "many"):
                    seed += 1
                    invited = (
                        rng.choice(unread, min(guests, unread.size), replace=False) if guests else np.empty(0, int)
                    )
                    at = np.concatenate([rng.choice(asked, size - guests, replace=False), invited]).astype(int)
                    number = {"one": 1, "four": 4, "many": max(guests, 1)}[groups]
                    group = [*range(size - guests), *(-1 - n % number for n in range(invited.size))]
                    p = calibration.p_values(
                        {c.score: table[c.detector].to_numpy()[at] for c in calibration.candidates}
                    )
                    outside = np.array([bool(why) for why in check.outside(texts[at].tolist(), group, states[at])])
                    test = exchangeability(
                        check,
                        texts[at].tolist(),
                        group,
                        states=states[at],
                        outside=outside,
                        permutations=199,
                        seed=seed,
                    )
                    called = p <= settings.fpr + TOLERANCE
                    ours = np.arange(at.size) < size - guests
                    rows.append(
                        {
                            "target": target.name,
                            "draw": draw,
                            "sources": len(target.reads),
                            "guests": guests,
                            "size": size,
                            "kind": kind,
                            "other": other,
                            "groups": groups,
                            "powerful": powerful,
                            "refused": bool(test.rejected or not test.tested or not powerful),
                            "unchecked": called.mean(),
                            "called": (called & ~outside).mean(),
                            "guests called": (called & ~outside)[~ours].mean() if guests else np.nan,
                            "outside": outside[ours].mean() if ours.any() else np.nan,
                            "found": outside[~ours].mean() if guests else np.nan,
                        }
                    )
    return rows


def shown(name: str, rows: pd.DataFrame) -> str:
    """One line of the table."""
    answered = rows[~rows["refused"]]
    cells = [
        len(rows),
        f"{rows['unchecked'].mean():.3f}",
        f"{rows['refused'].mean():.2f}",
        with_interval(answered, "called"),
        with_interval(answered[answered["guests"] > 0], "guests called"),
        f"{rows['outside'].mean():.3f}",
        f"{rows['found'].mean():.2f}",
    ]
    return f"| {name} | {' | '.join(map(str, cells))} |".replace("nan", "–")


def with_interval(rows: pd.DataFrame, column: str) -> str:
    """The mean of a column, with a 95 % interval over targets and calibrations."""
    if rows.empty:
        return "–"
    mean = rows[column].mean()
    residuals = (rows[column] - mean).groupby([rows["target"], rows["draw"]]).sum()
    count = max(2, len(residuals))
    half = 1.96 * (count / (count - 1) * float((residuals**2).sum())) ** 0.5 / len(rows)
    return f"{mean:.3f} [{max(0, mean - half):.3f}, {mean + half:.3f}]"


def main(settings: Settings) -> None:
    """Train, score, mix, print."""
    folder = Path(settings.folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = sources(settings.data, settings.sources)
    sizes = Sizes().shrunk(settings.share)
    rows = []
    drawn = [named(reads) for reads in settings.reads]
    for target in drawn or targets(texts, settings.counts, settings.draws, settings.seed):
        rows += requests(target, *scored(target, texts, folder, sizes), settings)
        print(f"{target.name}: {len(rows)} requests", file=sys.stderr, flush=True)
    report(pd.DataFrame(rows))


def report(table: pd.DataFrame) -> None:
    """Print the table."""
    print("| request | requests | unchecked | refused | called | guests called | outside | guests found |")
    print("|---|" + "---:|" * 7)
    for (guests, size, kind), some in table.groupby(["guests", "size", "kind"]):
        print(shown(f"{guests} of {size}" + (f", source {kind}" if guests else ""), some))
    for groups, some in table[table["guests"] >= 4].groupby("groups"):
        print(shown(f"guests in {groups} groups", some))
    for count, some in table[table["guests"] > 0].groupby("sources"):
        print(shown(f"targets of {count} sources", some))


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
