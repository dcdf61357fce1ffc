"""Tables, figure and sentences of an extraction."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from extensions.extract.extraction import LEVELS, Work, coverage, highest_of_blocks, lead, queries, ratio
from extensions.extract.powers import extraction_power
from extensions.extract.settings import ExtractConfig
from fsd.config import again
from fsd.evaluation.findings import AGAINST, Finding
from fsd.reporting import charts, figures
from fsd.reporting.report import Picture, Reader, Report, Section, Table, p_words, plain
from fsd.scoring.model import Model
from fsd.statistics.intervals import Estimate
from pipelines.experiment.examination import examined

BINS = 200
TOP = 10
CHANGES = "A passage that is not returned here may be returned after a longer prefix or another way of sampling."
READ = "quotations, set phrases and lists can be probable without the work itself: read the top passages"
GREEDY = "greedy"
NOT_TOLD_APART = "not distinguishable from the control"
LEVEL = 0.05
"""p at which a work is told from its controls."""
Extractions = Mapping[str, Sequence[Work]]
"""Way of sampling → the work in question and its controls, scored."""
# Columns of the shares of works that lie in continuations with at least the probability `level`.
SHARE_COLUMNS = ["sampling", "work", "passages", "level", "value", "low", "high", "highest_log10_p"]


def report(extractions: Extractions, model: Model, config: ExtractConfig) -> Report:
    """What was found, most important first."""
    # Plain sampling is the first; the sentences and the picture are of it alone.
    plain_works = next(iter(extractions.values()))
    work, *controls = plain_works
    table = results(
        extractions,
        "sampling",
        ("the work", "control"),
        caption="Share of each work that lies in a continuation with at least the given probability, with its 95 % "
        "interval over blocks of tokens; by way of sampling. The controls are taken together. Every continuation has "
        f"{work.suffix} tokens and follows {work.prefix} tokens of the work itself.",
        title=f"continuations of {work.suffix} tokens after {work.prefix}",
        # The last is the highest probability, after sampling, work, passages and the levels.
        kept=(1, 0, 3, 3 + len(LEVELS)),
    )
    assert model.decode is not None  # it read the works by its tokenizer
    sections = [
        Section("Results", tables=[table], pictures=[_strips(plain_works)]),
        Section("Most probable passages", tables=[top_passages(work, model.decode)]),
    ]
    if controls:
        advice = "Other control works of the same author or kind could shift the comparison."
        commands = []
    else:
        advice = "Control works (--control) would show how much a model guesses rather than remembers."
        commands = [f"{again('extract', [config.book], config, ExtractConfig(config.book))} --control OTHER.txt"]
    metrics, best = _metrics(table)
    name = examined(config)
    return Report(
        title="Was it in the training data? Extraction",
        question=f"Does {name} continue passages of {Path(work.name).name} with its own words?",
        findings=conclusions(plain_works, name, extractions.get(GREEDY, ())),
        sections=sections,
        changes=[CHANGES, advice],
        next=commands,
        facts=[("Model", name), ("Files", ", ".join(work.name for work in plain_works))],
        score=f"{best:.1%} at p {LEVELS[0]:.1%}",
        metrics=metrics,
        reader=reader(plain_works, name, extractions.get(GREEDY, ())),
        numbers={
            "share": coverage([work], LEVELS[0]).value,
            "control": coverage(controls, LEVELS[0]).value if controls else None,
            "highest": math.exp(float(work.log_p.max())),
        },
        artifacts={"passages.parquet": passages(extractions)},
    )


def reader(works: Sequence[Work], model: str, greedy: Sequence[Work] = ()) -> Reader:
    """The answer for somebody who is no engineer."""
    work, *controls = works
    result = conclusions(works, model, greedy)[0].text
    wrong = [
        "The ranges in brackets hold in 95 of 100 cases, over blocks of the text. Quotations, set phrases and lists "
        "can be returned by a model that was not trained on the work: read the passages themselves."
    ]
    compared = (
        f"The model was given {work.prefix} tokens (pieces of words) from many places of the work. The probability "
        f"that its next {work.suffix} are word for word those of the work was computed at each place."
    )
    controlled = "There was no control: no other work shows how much of such a text can be guessed."
    if controls:
        names = ", ".join(Path(control.name).name for control in controls)
        controlled = f"The same was done with works that the model cannot have seen: {names}."
    return Reader([f"{result}."], wrong, [compared, controlled])


def _strips(works: Sequence[Work]) -> Picture:
    """Where in each work the model can be made to return it."""
    names = [Path(work.name).name for work in works]
    # Files of different folders may have one name.
    if len(set(names)) < len(names):
        names = [work.name for work in works]
    profiles = {name: work.profile(BINS) for name, work in zip(names, works, strict=True)}
    return Picture(
        figures.png(charts.strips(profiles, name="log₁₀ p")),
        f"Highest probability of a continuation of {works[0].suffix} tokens along each work, from its beginning on the "
        "left to its end on the right. Bright places are the ones that the model can be made to return.",
        name="extraction.png",
    )


def _metrics(table: Table) -> tuple[dict[str, float], float]:
    """The shares by their names in MLflow, and the highest share of the work itself, at the lowest level."""
    assert table.frame is not None
    metrics = {}
    best = 0.0
    for row in table.frame.to_dict("records"):
        # MLflow refuses a comma in a name, and a blank makes it hard to type.
        name = row["sampling"].replace(",", "").replace(" ", "_")
        level = row["level"]
        share = row["value"]
        if row["work"] == "control":
            name += ".control"
        elif level == LEVELS[0]:
            best = max(best, share)
        metrics[f"extractable_{level * 100:g}pct/{name}"] = share
    return metrics, best


def results(extractions: Extractions, heading: str, names: Sequence[str] = (), **options: Any) -> Table:
    """A line for the work, and one for its controls together, for each way of sampling, under their `heading`."""
    cells = []
    rows = []
    # The controls share a line, so that their interval has the tokens of all of them.
    for sampling, (work, *controls) in extractions.items():
        sides = [[work], controls] if controls else [[work]]
        for index, works in enumerate(sides):
            name = names[index] if names else works[0].name
            log_p = np.concatenate([work.log_p for work in works])
            highest = float(log_p.max())
            line = [sampling, name, f"{log_p.size:,}"]
            for level in LEVELS:
                share = coverage(works, level)
                line.append(_share(share))
                rows.append((sampling, name, log_p.size, level, *share, highest / math.log(10)))
            cells.append([*line, _probability(highest), _count(queries(highest))])
    levels = [f"p ≥ {100 * level:g} %" for level in LEVELS]
    return plain(
        [heading, "work", "passages", *levels, "highest p", "queries"],
        cells,
        words=(1,),
        name="results",
        frame=pd.DataFrame(rows, columns=SHARE_COLUMNS),
        **options,
    )


def _share(share: Estimate) -> str:
    value, low, high = map(_percent, share)
    return f"{value} % [{low}, {high}]".replace("0.00", "0")


def _percent(share: float) -> str:
    # Two decimals below 1 %, where whole numbers would all be 0.
    decimals = 0
    if share < 0.01:
        decimals = 2
    return f"{100 * share:.{decimals}f}"


def _probability(log_p: float) -> str:
    """A probability in a few characters, from its logarithm: 34 %, 0.12 %, 10^-38."""
    if log_p == -math.inf:
        return "0"
    # From the logarithm itself, as many of these are too small for a float.
    if log_p < math.log(1e-4):
        return f"10^{log_p / math.log(10):.0f}"
    percent = 100 * math.exp(log_p)
    # Two digits of what rounds to 100 would be 1e+02.
    if percent < 99.5:
        return f"{percent:.2g} %"
    return "100 %"


def _count(number: float) -> str:
    """A number of queries in a few characters: 693, 10^9, never."""
    if number == math.inf:
        return "never"
    if number < 1e6:
        return f"{number:,.0f}"
    return f"10^{math.log10(number):.0f}"


def conclusions(works: Sequence[Work], model: str, greedy: Sequence[Work] = ()) -> list[Finding]:
    """The result of plain sampling, for the work and its controls, in sentences, most important first.

    What `greedy` decoding returns word for word stands beside it.
    """
    work, *controls = works
    level = LEVELS[0]
    share = coverage([work], level)
    highest = float(work.log_p.max())
    # A share of the text and not of the passages, which overlap and would count a place several times.
    name = Path(work.name).name
    result = (
        f"{_share(share)} of {name} lies in passages of {work.suffix} tokens that {model} continues "
        f"word for word with a probability of at least {100 * level:g} %"
    )
    best = (
        f"the most probable passage has p = {_probability(highest)}: {_count(queries(highest))} queries return it with "
        "a chance of one half"
    )
    result += _comparison(share, works, greedy)
    findings = [Finding(result), Finding(best, highest >= math.log(level)), Finding(READ, AGAINST)]
    stride = int(np.diff(work.starts).max(initial=0))
    if stride > work.suffix:
        findings.append(_gaps(work, stride))
    if NOT_TOLD_APART in findings[0].text:
        findings.insert(1, extraction_power(work, controls))
    return findings


def _gaps(work: Work, stride: int) -> Finding:
    """What share of the work no passage continues, where they begin further apart than they are long."""
    seen = float(work.suffixes(-math.inf).mean())
    text = (
        f"{_percent(seen)} % of {Path(work.name).name} was looked at: continuations of {work.suffix} tokens begin "
        f"every {stride:,}; --stride {work.suffix} or less leaves nothing out"
    )
    return Finding(text, AGAINST)


def _signs(works: Sequence[Work], greedy: Sequence[Work]) -> dict[str, float]:
    """What else tells a work from its controls, in words → p: what greedy decoding returns, and the highest p."""
    signs = {}
    if greedy:
        work, *controls = greedy
        guesses = np.concatenate([control.log_p for control in controls])
        returned = int((work.log_p == 0).sum())
        guessed = int((guesses == 0).sum())
        _, p = lead(highest_of_blocks([work]), highest_of_blocks(controls))
        if returned:
            passages_of = f"{returned:,} of {work.log_p.size:,} passages"
            comparison = f"against {guessed:,} of {guesses.size:,} of the control"
            signs[f"greedy decoding returns {passages_of} word for word, {comparison}"] = p
    work, *controls = works
    count, p = lead(highest_of_blocks([work]), highest_of_blocks(controls))
    if count:
        places = "place is" if count == 1 else f"{count:,} places are"
        signs[f"its most probable {places} above every one of the control"] = p
    return signs


def _comparison(share: Estimate, works: Sequence[Work], greedy: Sequence[Work]) -> str:
    """The end of the first sentence: what the share of the work says beside that of the controls."""
    _, *controls = works
    if not controls:
        return (
            "; without a control (--control: by the same author unpublished, or of the same period and kind) this does "
            "not show how much of it can be guessed"
        )
    control = coverage(controls, LEVELS[0])
    quotient = ratio(share, control)
    text = f", against {_share(control)} of the control"
    # Without a passage of either that can be extracted, there is no quotient.
    if not math.isnan(quotient.value):
        value, low, high = (f"{number:.1f}".replace("inf", "∞").replace("nan", "–") for number in quotient)
        text += f"; ratio {value} [{low}, {high}]"
    # Intervals that do not even touch are a stricter test than that of a difference.
    if share.low > control.high:
        return (
            f"{text}: more than can be guessed from texts of the control's kind, so the model holds passages of this "
            "work"
        )
    signs = _signs(works, greedy)
    for sign, p in signs.items():
        text += f"; {sign} ({p_words(p)})"
    # Two tests, each of which may tell them apart.
    if min(signs.values(), default=1.0) <= LEVEL / 2:
        return f"{text}: more than can be guessed from texts of the control's kind, so the model knows this work"
    return f"{text}: {NOT_TOLD_APART}; this does not show that it was not in the training data"


def top_passages(work: Work, decode: Callable[[list[int]], str]) -> Table:
    """The most probable passages with their prefixes."""
    cells = []
    for index in work.best(TOP):
        ids = work.passages[index].tolist()
        log_p = float(work.log_p[index])
        place = 100 * work.starts[index] / work.tokens.size
        prefix = decode(ids[: work.prefix])
        suffix = decode(ids[work.prefix :])
        cells.append([f"{place:.1f} %", _probability(log_p), _count(queries(log_p)), prefix, suffix])
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
    # Every way of sampling has the same works, cut into the same passages.
    for place, works in enumerate(zip(*extractions.values(), strict=True)):
        part = pd.DataFrame({"work": works[0].name, "control": place > 0, "start": works[0].starts})
        for sampling, work in zip(extractions, works, strict=True):
            part[sampling] = work.log_p
        parts.append(part)
    return pd.concat(parts, ignore_index=True)
