"""Tables, figure and sentences of an extraction."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fsd.evaluation.metrics import Estimate
from fsd.evidence.extraction import LEVELS, Work, coverage, queries, ratio
from fsd.reporting import figures
from fsd.reporting.report import Against, Picture, Report, Section, Table, marked, plain
from fsd.scoring.model import Model

BINS = 200
TOP = 10
Extractions = Mapping[str, Sequence[Work]]
"""Way of sampling → the work in question and its controls, scored."""


def report(extractions: Extractions, model: Model) -> Report:
    """What was found, most important first."""
    first = next(iter(extractions.values()))
    work, *controls = first
    table = results(
        extractions,
        "sampling",
        ("the work", "control"),
        caption="Share of each work that lies in a continuation with at least the given probability, with its 95 % "
        "interval over blocks of tokens; by way of sampling. The controls are taken together. Every continuation has "
        f"{work.suffix} tokens and follows {work.prefix} tokens of the work itself.",
        title=f"continuations of {work.suffix} tokens after {work.prefix}",
        kept=(1, 0, 3, 2 + len(LEVELS) + 1),
    )
    assert table.frame is not None
    assert model.decode is not None
    metrics, best = {}, 0.0
    for row in table.frame.to_dict("records"):
        sampling = row["sampling"].replace(",", "").replace(" ", "_") + (".control" if row["work"] == "control" else "")
        metrics[f"extractable_{row['level'] * 100:g}pct/{sampling}"] = row["value"]
        if row["level"] == LEVELS[0] and row["work"] == "the work":
            best = max(best, row["value"])
    profiles = {Path(each.name).name: each.profile(BINS) for each in first}
    picture = Picture(
        figures.png(figures.strips(profiles, name="log₁₀ p")),
        f"Highest probability of a continuation of {work.suffix} tokens along each work, from its beginning on the "
        "left to its end on the right. Bright places are the ones that the model can be made to return.",
        name="extraction.png",
    )
    return Report(
        title="Was it in the training data? Extraction",
        question=f"Does {model.name} continue passages of {Path(work.name).name} with its own words?",
        findings=conclusions(first, model.name),
        sections=[
            Section("Results", tables=[table], pictures=[picture]),
            Section("Most probable passages", tables=[top_passages(work, model.decode)]),
        ],
        changes=[
            "A passage that is not returned here may be returned after a longer prefix or another way of sampling.",
            "Other control works of the same author or kind could shift the comparison."
            if controls
            else "Control works (--control) would show how much a model guesses rather than remembers.",
        ],
        next=[] if controls else [f"fsd extract {work.name} --model {model.name} --control OTHER.txt"],
        facts=[("Model", model.name), ("Files", ", ".join(each.name for each in first))],
        score=f"{best:.1%} at p {LEVELS[0]:.1%}",
        metrics=metrics,
        artifacts={"passages.parquet": passages(extractions)},
    )


def results(extractions: Extractions, first: str, names: Sequence[str] = (), **how: Any) -> Table:
    """A line for the work, and one for its controls together, for each of the `first`, such as the ways of sampling."""
    cells, lines = [], []
    for sampling, (work, *controls) in extractions.items():
        for at, works in enumerate(([work], controls) if controls else ([work],)):
            name = names[at] if names else works[0].name
            count, highest = sum(each.starts.size for each in works), max(float(each.log_p.max()) for each in works)
            shares = {level: coverage(works, level) for level in LEVELS}
            shown = [*map(_share, shares.values()), _probability(highest), _asked(queries(highest))]
            cells.append([sampling, name, f"{count:,}", *shown])
            log10 = highest / math.log(10)
            lines += [(sampling, name, count, level, *share, log10) for level, share in shares.items()]
    columns = ["sampling", "work", "passages", "level", "value", "low", "high", "highest_log10_p"]
    headings = [first, "work", "passages", *(f"p ≥ {100 * level:g} %" for level in LEVELS), "highest p", "queries"]
    return plain(headings, cells, words=(1,), name="results", frame=pd.DataFrame(lines, columns=columns), **how)


def _share(share: Estimate) -> str:
    value, low, high = (f"{100 * number:.{2 if number < 0.01 else 0}f}" for number in share)
    return f"{value} % [{low}, {high}]".replace("0.00", "0")


def _probability(log_p: float) -> str:
    """A probability in a few characters, from its logarithm: 34 %, 0.12 %, 10^-38."""
    if log_p == -math.inf:
        return "0"
    return f"10^{log_p / math.log(10):.0f}" if log_p < math.log(1e-4) else f"{100 * math.exp(log_p):.2g} %"


def _asked(number: float) -> str:
    if number == math.inf:
        return "never"
    return f"{number:,.0f}" if number < 1e6 else f"10^{math.log10(number):.0f}"


def conclusions(works: Sequence[Work], model: str) -> list[str]:
    """The result of plain sampling, for the work and its controls, in sentences, most important first."""
    (work, *controls), level = works, LEVELS[0]
    share = coverage([work], level)
    first = (
        f"{_share(share)} of {Path(work.name).name} lies in passages of {work.suffix} tokens that {model} continues "
        f"word for word with a probability of at least {100 * level:g} %"
    )
    if controls:
        control = coverage(controls, level)
        against = ratio(share, control)
        first += f", against {_share(control)} of the control"
        if not math.isnan(against.value):  # else neither has an extractable passage
            value, low, high = (f"{number:.1f}".replace("inf", "∞").replace("nan", "–") for number in against)
            first += f"; ratio {value} [{low}, {high}]"
        if share.low > control.high:
            first += (
                ": more than can be guessed from texts of the control's kind, so the model holds passages of this work"
            )
        else:
            first += ": not distinguishable from the control; this does not show that it was not in the training data"
    else:
        first += (
            "; without a control (--control: by the same author unpublished, or of the same period and kind) this does "
            "not show how much of it can be guessed"
        )
    top = float(work.log_p.max())
    return [
        first,
        marked(
            top >= math.log(level),
            f"the most probable passage has p = {_probability(top)}: {_asked(queries(top))} queries return it with a "
            "chance of one half",
        ),
        Against("quotations, set phrases and lists can be probable without the work itself: read the top passages"),
    ]


def top_passages(work: Work, decode: Callable[[list[int]], str]) -> Table:
    """The most probable passages with their prefixes."""
    cells = []
    for at in work.best(TOP):
        start, log_p = int(work.starts[at]), float(work.log_p[at])
        middle, end = start + work.prefix, start + work.prefix + work.suffix
        texts = (decode(work.tokens[a:b].tolist()) for a, b in ((start, middle), (middle, end)))
        place = f"{100 * start / work.tokens.size:.1f} %"
        cells.append([place, _probability(log_p), _asked(queries(log_p)), *texts])
    return plain(
        ["Place", "p", "Queries", "Given", "Continued with"],
        cells,
        words=(3, 4),
        caption="The passages with the highest p whose continuations do not overlap; place is the share of the work "
        "before them, queries how many return the continuation with a chance of one half.",
        printed=False,
    )


def passages(extractions: Extractions) -> pd.DataFrame:
    """One row per passage: work, whether it is a control, start token, and log p by sampling."""
    parts = []
    for place, works in enumerate(zip(*extractions.values(), strict=True)):
        log_p = {sampling: work.log_p for sampling, work in zip(extractions, works, strict=True)}
        own = {"work": works[0].name, "control": place > 0, "start": works[0].starts}
        parts.append(pd.DataFrame({**own, **log_p}))
    return pd.concat(parts, ignore_index=True)
