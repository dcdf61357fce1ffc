"""Tables, figure and sentences of an extraction."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from fsd.evaluation.intervals import Estimate
from fsd.evidence.extraction import LEVELS, Work, coverage, queries, ratio
from fsd.reporting import figures
from fsd.reporting.report import Column, Picture, Report, Section, Table, plain
from fsd.scoring.model import Model
from pipelines.extract.works import Extraction

BINS = 200
TOP = 10


def report(extractions: Sequence[Extraction], model: Model, files: Sequence[str]) -> Report:
    """What was found, most important first."""
    first = extractions[0]
    work = first.work
    metrics = {}
    for extraction in extractions:
        name = extraction.sampling.replace(",", "").replace(" ", "_")
        for level in LEVELS:
            metrics[f"extractable_{level * 100:g}pct/{name}"] = coverage([extraction.work], level).value
            if extraction.controls:
                metrics[f"extractable_{level * 100:g}pct/{name}.control"] = coverage(extraction.controls, level).value
    profiles = {Path(each.name).name: each.profile(BINS) for each in (work, *first.controls)}
    picture = Picture(
        figures.png(figures.strips(profiles, name="log₁₀ p")),
        f"Highest probability of a continuation of {work.suffix} tokens along each work, from its beginning on the "
        "left to its end on the right. Bright places are the ones that the model can be made to return.",
        name="extraction.png",
    )
    best = max(extractions, key=lambda extraction: coverage([extraction.work], LEVELS[0]).value)
    assert model.decode is not None
    return Report(
        title="Was it in the training data? Extraction",
        question=f"Does {model.name} continue passages of {Path(work.name).name} with its own words?",
        findings=conclusions(first, model.name),
        sections=[
            Section("Results", tables=[results(extractions)], pictures=[picture]),
            Section("Most probable passages", tables=[top_passages(work, model.decode)]),
        ],
        changes=[
            "A passage that is not returned here may be returned after a longer prefix or another way of sampling.",
            "Other control works of the same author or kind could shift the comparison."
            if first.controls
            else "Control works (--control) would show how much a model guesses rather than remembers.",
        ],
        facts=[("Model", model.name), ("Files", ", ".join(files))],
        score=f"{coverage([best.work], LEVELS[0]).value:.1%} at p {LEVELS[0]:.1%}",
        metrics=metrics,
        artifacts={"passages.parquet": table(extractions)},
    )


def results(extractions: Sequence[Extraction]) -> Table:
    """One line per way of sampling for the work, and one for its controls together."""
    first = extractions[0].work
    lines = [
        (extraction.sampling, name, works)
        for extraction in extractions
        for name, works in (("the work", [extraction.work]), ("control", extraction.controls))
        if works
    ]
    return Table(
        lines,
        columns(),
        caption="Share of each work that lies in a continuation with at least the given probability, with its 95 % "
        "interval over blocks of tokens; by way of sampling. The controls are taken together. Every continuation has "
        f"{first.suffix} tokens and follows {first.prefix} tokens of the work itself.",
        title=f"continuations of {first.suffix} tokens after {first.prefix}",
        name="results",
        frame=shares(extractions),
        kept=(1, 0, 3, 2 + len(LEVELS) + 1),
    )


def columns() -> list[Column]:
    """How a way of sampling, the name of the works and the works are shown."""
    return [
        Column("sampling", lambda line: line[0]),
        Column("work", lambda line: line[1], words=True),
        Column("passages", lambda line: f"{sum(work.starts.size for work in line[2]):,}"),
        *(
            Column(f"p ≥ {100 * level:g} %", partial(lambda level, line: _share(coverage(line[2], level)), level))
            for level in LEVELS
        ),
        Column("highest p", lambda line: probability(_highest(line[2]))),
        Column("queries", lambda line: asked(queries(_highest(line[2])))),
    ]


def _highest(works: Sequence[Work]) -> float:
    return max(float(work.log_p.max()) for work in works)


def _share(share: Estimate) -> str:
    value, low, high = (f"{100 * number:.{2 if number < 0.01 else 0}f}" for number in share)
    return f"{value} % [{low}, {high}]".replace("0.00", "0")


def probability(log_p: float) -> str:
    """A probability in a few characters, from its logarithm: 34 %, 0.12 %, 10^-38."""
    if log_p == -math.inf:
        return "0"
    if log_p < math.log(1e-4):
        return f"10^{log_p / math.log(10):.0f}"
    return f"{100 * math.exp(log_p):.2g} %"


def asked(number: float) -> str:
    """A number of queries in a few characters."""
    if number == math.inf:
        return "never"
    return f"{number:,.0f}" if number < 1e6 else f"10^{math.log10(number):.0f}"


def conclusions(extraction: Extraction, model: str) -> list[str]:
    """The result of plain sampling in sentences, most important first."""
    work, controls = extraction.work, extraction.controls
    level = LEVELS[0]
    share = coverage([work], level)
    start = (
        f"{_share(share)} of {Path(work.name).name} lies in passages of {work.suffix} tokens that {model} continues "
        f"word for word with a probability of at least {100 * level:g} %"
    )
    lines = []
    if controls:
        control = coverage(controls, level)
        against = ratio(share, control)
        times = "" if math.isnan(against.value) else f"; ratio {_times(against)}"  # neither has an extractable passage
        if share.low > control.high:
            lines.append(
                f"{start}, against {_share(control)} of the control{times}: more than can be guessed from texts of "
                "the control's kind, so the model holds passages of this work"
            )
        else:
            lines.append(
                f"{start}, against {_share(control)} of the control{times}: not distinguishable from the control; "
                "this does not show that it was not in the training data"
            )
    else:
        lines.append(
            f"{start}; without a control (--control: by the same author unpublished, or of the same period and kind) "
            "this does not show how much of it can be guessed"
        )
    top = max(float(work.log_p.max()), -math.inf)
    lines.append(
        f"the most probable passage has p = {probability(top)}: {asked(queries(top))} queries return it with a "
        "chance of one half"
    )
    lines.append("quotations, set phrases and lists can be probable without the work itself: read the top passages")
    return lines


def _times(estimate: Estimate) -> str:
    def shown(value: float) -> str:
        return "∞" if math.isinf(value) else "–" if math.isnan(value) else f"{value:.1f}"

    return f"{shown(estimate.value)} [{shown(estimate.low)}, {shown(estimate.high)}]"


def table(extractions: Sequence[Extraction]) -> pd.DataFrame:
    """One row per passage: work, whether it is a control, start token, and log p by sampling."""
    parts = []
    for place, work in enumerate([extractions[0].work, *extractions[0].controls]):
        part = pd.DataFrame({"work": work.name, "control": place > 0, "start": work.starts})
        for extraction in extractions:
            part[extraction.sampling] = [extraction.work, *extraction.controls][place].log_p
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def top_passages(work: Work, decode: Callable[[list[int]], str]) -> Table:
    """The most probable passages with their prefixes."""
    cells = []
    for at in work.best(TOP):
        start = int(work.starts[at])
        middle, end = start + work.prefix, start + work.prefix + work.suffix
        cells.append(
            [
                f"{100 * start / work.tokens.size:.1f} %",
                probability(float(work.log_p[at])),
                asked(queries(float(work.log_p[at]))),
                decode(work.tokens[start:middle].tolist()),
                decode(work.tokens[middle:end].tolist()),
            ]
        )
    return plain(
        ["Place", "p", "Queries", "Given", "Continued with"],
        cells,
        words=(3, 4),
        caption="The passages with the highest p whose continuations do not overlap; place is the share of the work "
        "before them, queries how many return the continuation with a chance of one half.",
        printed=False,
    )


def shares(extractions: Sequence[Extraction]) -> pd.DataFrame:
    """One row per way of sampling, work and level: share of the work with its interval, and the highest log₁₀ p."""
    lines = []
    for extraction in extractions:
        for name, works in (("the work", [extraction.work]), ("control", extraction.controls)):
            for level in LEVELS if works else ():
                value, low, high = coverage(works, level)
                lines.append(
                    {
                        "sampling": extraction.sampling,
                        "work": name,
                        "passages": sum(work.starts.size for work in works),
                        "level": level,
                        "value": value,
                        "low": low,
                        "high": high,
                        "highest_log10_p": max(float(work.log_p.max()) for work in works) / math.log(10),
                    }
                )
    return pd.DataFrame(lines)
