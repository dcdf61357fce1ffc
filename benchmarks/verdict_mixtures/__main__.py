"""Do verdicts keep their rate where the model knows several sources? python -m benchmarks.verdict_mixtures --help.

Targets are trained on one, three and four sources, an adapter is calibrated on one of them, and requests mix unread
texts of that source with unread guests from another one, which the target was trained on in part, or not at all.
Guests come as single texts, in one group, in four, or each on its own. Whoever is called a member is a false positive.
Verdicts are by the best score of all detectors and states on validation, as those of `fsd run` are.

"called" is the mean share of non-members called members among requests that get a verdict, "guests called" the share
of the guests of such requests, "unchecked" the share of all texts without any check, "guests unchecked" that of the
guests, "refused" the share of requests without a verdict, "outside" the share of texts of the calibrated kind that are
outside one by one. Brackets: 95 % intervals over targets and calibrations, whose requests are related.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tyro
from numpy.typing import NDArray

from benchmarks.verdict_mixtures.targets import SMALLEST, Size, Target, named, score_columns, scored, sources, targets
from fsd.scores import Score
from fsd.token_stats import FloatArray
from fsd.verdicts.calibration import TOLERANCE, Calibration, calibrate
from fsd.verdicts.domain_check import DomainCheck, Reference, other_kinds
from fsd.verdicts.exchangeability import exchangeability

Rows = NDArray[np.int_]
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
SMALL_SHARES = ((2, 10), (4, 40), (20, 40), (1, 1))
KINDS = ("abstracts", "articles", "docstrings")
"""Kinds by which the domain check of an adapter is tried: no verdict where it does not recognise them."""
ALONE = (10, 40, 100)
"""Sizes of requests without guests."""


@dataclass(frozen=True)
class Settings:
    """Targets and mixtures."""

    folder: str = "build/verdict_mixtures"
    """Folder that keeps the scores of each target."""
    data: str | None = None
    """Folder with a JSONL file for each further source (column text)."""
    counts: tuple[int, ...] = (1, 3, 4)
    """Numbers of sources that targets are trained on; the package has four, and each file of `data` is one more."""
    draws: int = 2
    """Targets for each of these numbers."""
    reads: tuple[str, ...] = ()
    """Targets in place of random ones, each as first+second:seed; the first source is the calibrated one."""
    mixtures: int = 8
    """Requests for each target, share of guests, kind of guests and grouping."""
    small: bool = False
    """A third of the shares of guests."""
    smallest: bool = False
    """Targets of few texts of three sources, and a third of the shares of guests; the numbers mean nothing."""
    fpr: float = 0.05
    """Promised false-positive rate."""
    seed: int = 0
    """Random seed."""

    @property
    def size(self) -> Size:
        """Of a target."""
        return SMALLEST if self.smallest else Size()


@dataclass(frozen=True)
class Judge:
    """One calibration of a target, with the texts that are left to be asked about."""

    target: Target
    draw: int
    table: pd.DataFrame
    calibration: Calibration
    check: DomainCheck
    powerful: bool
    asked: Rows

    def called(self, rows: Rows, fpr: float) -> NDArray[np.bool_]:
        """(N,) whether each text is called a member without any check."""
        scores = self.table[str(self.calibration.score)].to_numpy()[rows]
        return self.calibration.p_values(scores) <= fpr + TOLERANCE


@dataclass(frozen=True)
class Request:
    """Rows of a target's table: unread texts of the calibrated source, then guests, and the group of each."""

    rows: Rows
    guests: int
    kind: str
    other: str
    grouping: str
    groups: Sequence[int]


def calibrated(
    target: Target, table: pd.DataFrame, states: FloatArray, draw: int, rng: np.random.Generator, size: int
) -> Judge:
    """Draw the texts of a calibration, on `size` non-members, and calibrate the best score."""
    source = table["source"].to_numpy()
    member = table["member"].to_numpy(bool)
    unseen = table["unseen"].to_numpy(bool)
    texts = table["text"].to_numpy()
    held = rng.permutation(np.flatnonzero((source == target.calibrated) & ~member & ~unseen))
    validation = held[:size]
    tested = held[size : 2 * size]
    benchmark = np.concatenate([validation, tested, np.flatnonzero(unseen)])
    families = tuple(range(benchmark.size))
    reference = Reference(tuple(texts[benchmark]), families, ("",) * benchmark.size, {})
    chosen = np.concatenate([np.flatnonzero(member), validation, tested])
    is_test = np.arange(chosen.size) >= chosen.size - tested.size
    scores = {Score.parse(name): table[name].to_numpy()[chosen] for name in score_columns(table)}
    calibration = calibrate(member[chosen], scores, reference=reference, is_test=is_test)
    pool = list(chain.from_iterable(other_kinds(reference.texts).values()))
    by_text = dict(zip(texts.tolist(), states, strict=True))
    check = DomainCheck(reference.texts, None, pool, states=lambda asked: np.stack([by_text[text] for text in asked]))
    power = {}
    for kind in KINDS:
        if kind != target.calibrated:
            rows = np.flatnonzero((source == kind) & ~member)
            power[kind] = float(outside(check, texts[rows].tolist(), None).mean())
    powerful = replace(reference, power=power).powerful
    return Judge(target, draw, table, calibration, check, powerful, held[2 * size :])


def outside(check: DomainCheck, texts: list[str], groups: Sequence[int] | None) -> NDArray[np.bool_]:
    """(N,) whether the check of each text finds it to be of another kind."""
    return np.array([bool(reason) for reason in check.outside(texts, groups)])


def asked(judge: Judge, settings: Settings, rng: np.random.Generator) -> Iterator[Request]:
    """The requests to one calibration."""
    target = judge.target
    sources = list(dict.fromkeys(judge.table["source"]))
    others = {
        "read": [name for name in target.reads if name != target.calibrated],
        "unread": [name for name in sources if name not in target.reads],
    }
    for size in ALONE:
        rows = rng.choice(judge.asked, min(size, judge.asked.size), replace=False)
        yield Request(rows, 0, "none", "", "many", range(rows.size))
    for guests, size in SMALL_SHARES if settings.small or settings.smallest else SHARES:
        for kind, names in others.items():
            if names:
                name = random.Random(f"{judge.draw} {guests} {size} {kind}").choice(names)
                yield from _with_guests(judge, guests, size, (kind, name), rng)


def _with_guests(
    judge: Judge, guests: int, size: int, other: tuple[str, str], rng: np.random.Generator
) -> Iterator[Request]:
    """Requests with the same number of guests from a source, grouped in each way."""
    kind, name = other
    table = judge.table
    unread = np.flatnonzero((table["source"] == name) & ~table["member"])
    hosts = min(size - guests, judge.asked.size)
    groupings = {"one": 1, "four": 4, "many": guests}
    # Few guests make no groups.
    if guests < 4:
        groupings = {"many": guests}
    for grouping, number in groupings.items():
        invited = rng.choice(unread, min(guests, unread.size), replace=False)
        rows = np.concatenate([rng.choice(judge.asked, hosts, replace=False), invited])
        groups = [*range(hosts), *(-1 - place % number for place in range(invited.size))]
        yield Request(rows, guests, kind, name, grouping, groups)


def answered(judge: Judge, request: Request, seed: int, fpr: float) -> dict[str, Any]:
    """What becomes of a request; every text is a non-member, so that whoever is called is called wrongly."""
    rows = request.rows
    texts = judge.table["text"].to_numpy()[rows].tolist()
    out = outside(judge.check, texts, request.groups)
    test = exchangeability(judge.check, texts, request.groups, outside=out, permutations=199, seed=seed)
    unchecked = judge.called(rows, fpr)
    called = unchecked & ~out
    guest = np.arange(rows.size) >= rows.size - request.guests
    return {
        "target": judge.target.name,
        "draw": judge.draw,
        "sources": len(judge.target.reads),
        "score": str(judge.calibration.score),
        "guests": request.guests,
        "size": rows.size,
        "kind": request.kind,
        "other": request.other,
        "groups": request.grouping,
        "powerful": judge.powerful,
        "refused": bool(test.rejected or not test.tested or not judge.powerful),
        "unchecked": unchecked.mean(),
        "called": called.mean(),
        "guests unchecked": share(unchecked, guest),
        "guests called": share(called, guest),
        "outside": share(out, ~guest),
        "found": share(out, guest),
    }


def share(which: NDArray[np.bool_], among: NDArray[np.bool_]) -> float:
    """The share of some texts; NaN of none."""
    return float(which[among].mean()) if among.any() else float("nan")


def requests(target: Target, table: pd.DataFrame, states: FloatArray, settings: Settings) -> list[dict[str, Any]]:
    """The mixtures of one target, a row each."""
    rows = []
    for draw in range(settings.mixtures):
        rng = np.random.default_rng([settings.seed, target.seed, len(target.reads), draw])
        judge = calibrated(target, table, states, draw, rng, settings.size.calibrated)
        for request in asked(judge, settings, rng):
            rows.append(answered(judge, request, len(rows) + 1, settings.fpr))
    return rows


def shown(name: str, rows: pd.DataFrame) -> str:
    """One line of the table."""
    answered = rows[~rows["refused"]]
    cells = [
        len(rows),
        f"{rows['unchecked'].mean():.3f}",
        f"{rows['refused'].mean():.2f}",
        with_interval(answered, "called"),
        f"{rows['guests unchecked'].mean():.3f}",
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
    # The code of the package takes a minute to cut.
    texts = sources(settings.data, KINDS if settings.smallest else ())
    drawn = [named(reads) for reads in settings.reads]
    if not drawn and not all(1 <= count <= len(texts) for count in settings.counts):
        listed = " ".join(map(str, settings.counts))
        sys.exit(f"counts must be from 1 to the number of sources, {len(texts)}; got {listed}")
    rows = []
    for target in drawn or targets(texts, settings.counts, settings.draws, settings.seed):
        rows += requests(target, *scored(target, texts, folder, settings.size), settings)
        print(f"{target.name}: {len(rows)} requests", file=sys.stderr, flush=True)
    table = pd.DataFrame(rows)
    table.to_parquet(folder / "requests.parquet")
    report(table)


def report(table: pd.DataFrame) -> None:
    """Print the table."""
    headings = ("request", "requests", "unchecked", "refused", "called", "guests unchecked", "guests called", "outside")
    print("| " + " | ".join((*headings, "guests found")) + " |")
    print("|---|" + "---:|" * len(headings))
    for (guests, size, kind), some in table.groupby(["guests", "size", "kind"]):
        print(shown(f"{guests} of {size}" + (f", source {kind}" if guests else ""), some))
    for groups, some in table[table["guests"] >= 4].groupby("groups"):
        noun = "group" if groups == "one" else "groups"
        print(shown(f"guests in {groups} {noun}", some))
    for count, some in table[table["guests"] > 0].groupby("sources"):
        print(shown(f"targets of {count} sources", some))
    for score, some in table.groupby("score"):
        print(shown(f"verdicts by {score}", some))
    print(shown("all", table))


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
