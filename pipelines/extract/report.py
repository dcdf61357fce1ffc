"""Table, figure and report of an extraction."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from fsd.evaluation.intervals import Estimate
from fsd.evidence.extraction import LEVELS, Work, coverage, queries, ratio
from fsd.reporting import console, figures, html
from fsd.tracking import Run
from pipelines.common import outcome
from pipelines.common.report import publish
from pipelines.extract.works import Extraction

BINS = 200
TOP = 10
HEADINGS = ["sampling", "work", "passages", *(f"p ≥ {100 * level:g} %" for level in LEVELS), "highest p", "queries"]


def rows(extractions: Sequence[Extraction]) -> list[list[str]]:
    """One row per way of sampling for the work, and one for its controls together."""
    lines = []
    for extraction in extractions:
        for name, works in (("the work", [extraction.work]), ("control", extraction.controls)):
            if works:
                highest = max(float(work.log_p.max()) for work in works)
                lines.append(
                    [
                        extraction.sampling,
                        name,
                        f"{sum(work.starts.size for work in works):,}",
                        *(_share(coverage(works, level)) for level in LEVELS),
                        probability(highest),
                        asked(queries(highest)),
                    ]
                )
    return lines


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
    """The result of plain sampling in sentences, most important first.

    Args:
        extraction: by plain sampling.
        model: its name.
    """
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
                "this does not show that the work was not read"
            )
    else:
        lines.append(
            f"{start}; without a control (--control: by the same author unpublished, or of the same period unread) "
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


def top_passages(work: Work, decode: Callable[[list[int]], str]) -> html.Table:
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
    return html.Table(
        "The passages with the highest p whose continuations do not overlap; place is the share of the work before "
        "them, queries how many return the continuation with a chance of one half.",
        ["Place", "p", "Queries", "Given", "Continued with"],
        cells,
        left=(0, 3, 4),
    )


def deliver(
    run: Run, extractions: Sequence[Extraction], model: str, decode: Callable[[list[int]], str], files: Sequence[str]
) -> None:
    """Log passages, metrics, heat map and report."""
    plain = extractions[0]
    run.log_table("passages.parquet", table(extractions))
    metrics = {}
    for extraction in extractions:
        name = extraction.sampling.replace(",", "").replace(" ", "_")
        for level in LEVELS:
            metrics[f"extractable_{level * 100:g}pct/{name}"] = coverage([extraction.work], level).value
            if extraction.controls:
                metrics[f"extractable_{level * 100:g}pct/{name}.control"] = coverage(extraction.controls, level).value
    run.log_metrics(metrics)
    profiles = {Path(work.name).name: work.profile(BINS) for work in (plain.work, *plain.controls)}
    picture = figures.png(figures.strips(profiles, name="log₁₀ p"))
    run.log_bytes("extraction.png", picture)
    caption = (
        f"Highest probability of a continuation of {plain.work.suffix} tokens along each work, from its beginning on "
        "the left to its end on the right. Bright places are the ones that the model can be made to return."
    )
    results = html.Table(
        "Share of each work that lies in a continuation with at least the given probability, with its 95 % interval "
        f"over blocks of tokens; by way of sampling. The controls are taken together. Every continuation has "
        f"{plain.work.suffix} tokens and follows {plain.work.prefix} tokens of the work itself.",
        HEADINGS,
        rows(extractions),
        left=(0, 1),
        name="results",
    )
    best = max(extractions, key=lambda extraction: coverage([extraction.work], LEVELS[0]).value)
    publish(
        run,
        html.Page(
            title="Was it in the training data? Extraction",
            question=f"Does {model} continue passages of {Path(plain.work.name).name} with its own words?",
            findings=conclusions(plain, model),
            sections=[
                html.Section("Results", tables=[results], pictures=[html.Picture(picture, caption)]),
                html.Section("Most probable passages", tables=[top_passages(plain.work, decode)]),
            ],
            changes=[
                "A passage that is not returned here may be returned after a longer prefix or another way of sampling.",
                "Other control works of the same author or kind could shift the comparison."
                if plain.controls
                else "Control works (--control) would show how much a model guesses rather than remembers.",
            ],
            facts=[("Model", model), ("Files", ", ".join(files))],
        ),
        f"{coverage([best.work], LEVELS[0]).value:.1%} at p {LEVELS[0]:.1%}",
    )


def show(run: Run, extractions: Sequence[Extraction], model: str) -> None:
    """Print the table, the conclusions and where they are."""
    title = f"continuations of {extractions[0].work.suffix} tokens after {extractions[0].work.prefix}"
    notes = conclusions(extractions[0], model)
    found = outcome.Outcome(notes[0], {"results": shares(extractions)}, notes, report=outcome.REPORT)
    kept = (1, 0, 3, len(HEADINGS) - 2)
    outcome.show(
        found,
        run,
        lambda: console.table(HEADINGS, rows(extractions), notes, title=title, left=(0, 1), kept=kept),
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
