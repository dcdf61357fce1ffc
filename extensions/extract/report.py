"""Tables, figure and sentences of an extraction."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from extensions.extract.extraction import LEVELS, Side, Work, lead, queries, ratio
from extensions.extract.powers import extraction_power
from extensions.extract.settings import ExtractConfig
from fsd.api import (
    AGAINST,
    Estimate,
    Finding,
    Model,
    Picture,
    Reader,
    Report,
    Section,
    Table,
    charts,
    figures,
    p_words,
    plain,
)

BINS = 200
TOP = 10
READ = "quotations, set phrases and lists can be probable without the work itself: read the top passages"
NO_CONTROL = (
    "without a control (--control: by the same author unpublished, or of the same period and kind) this does not show "
    "how much of it can be guessed"
)
MORE = "more than can be guessed from texts of the control's kind, so the model"
NOT_TOLD_APART = "not distinguishable from the control"
CHANGES = (
    "A passage that is not returned here may be returned after a longer prefix or another way of sampling.",
    "Other control works of the same author or kind could shift the comparison.",
)
GREEDY = "greedy"
LEVEL = 0.05
"""p at which a work is told from its controls."""
Extractions = Mapping[str, Sequence[Work]]
"""Way of sampling → the work in question and its controls, scored."""
# Columns of the shares of works that lie in continuations with at least the probability `level`.
SHARE_COLUMNS = ["sampling", "work", "passages", "level", "value", "low", "high", "highest_log10_p"]


def report(extractions: Extractions, model: Model, config: ExtractConfig) -> Report:
    """What was found, most important first."""
    # Plain sampling is the first; the sentences and the picture are of it alone.
    works = next(iter(extractions.values()))
    work, *controls = works
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
    findings = conclusions(works, config.examined, extractions.get(GREEDY, ()))
    shares = [side.coverage(LEVELS[0]).value for side in _sides(works)]
    best = max(Side(scored[:1]).coverage(LEVELS[0]).value for scored in extractions.values())
    sections = [
        Section("Results", tables=[table], pictures=[_strips(works)]),
        Section("Most probable passages", tables=[top_passages(work, model)]),
    ]
    commands = []
    control = None
    if controls:
        control = shares[1]
    else:
        commands.append(config.again_with("--control OTHER.txt"))
    if model.local and model.local.chats.has_template:
        commands.append(config.again_with("--prompts opening"))
    highest = math.exp(float(work.log_p.max()))
    return Report(
        title="Was it in the training data? Extraction",
        question=f"Does {config.examined} continue passages of {_short(work)} with its own words?",
        findings=findings,
        sections=sections,
        changes=CHANGES,
        next=commands,
        facts=[("Model", config.examined), ("Files", ", ".join(config.names))],
        score=f"{best:.1%} at p {LEVELS[0]:.1%}",
        metrics=_metrics(table),
        reader=_reader(works, findings[0].text),
        numbers={"share": shares[0], "control": control, "highest": highest},
        artifacts={"passages.parquet": passages(extractions)},
    )


def _short(work: Work) -> str:
    return Path(work.name).name


def _sides(works: Sequence[Work]) -> list[Side]:
    """The work in question, and its controls together, if there are any."""
    sides = [Side(works[:1])]
    # They share an interval, that of the tokens of all of them.
    if len(works) > 1:
        sides.append(Side(works[1:]))
    return sides


def _reader(works: Sequence[Work], result: str) -> Reader:
    """The answer for somebody who is no engineer."""
    work, *controls = works
    wrong = (
        "The ranges in brackets hold in 95 of 100 cases, over blocks of the text. Quotations, set phrases and lists "
        "can be returned by a model that was not trained on the work: read the passages themselves."
    )
    compared = (
        f"The model was given {work.prefix} tokens (pieces of words) from many places of the work. The probability "
        f"that its next {work.suffix} are word for word those of the work was computed at each place."
    )
    controlled = "There was no control: no other work shows how much of such a text can be guessed."
    if controls:
        names = ", ".join(map(_short, controls))
        controlled = f"The same was done with works that the model cannot have seen: {names}."
    return Reader([f"{result}."], [wrong], [compared, controlled])


def _strips(works: Sequence[Work]) -> Picture:
    """Where in each work the model can be made to return it."""
    names = list(map(_short, works))
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


def _metrics(table: Table) -> dict[str, float]:
    """The shares by their names in MLflow."""
    assert table.frame is not None
    metrics = {}
    for row in table.frame.to_dict("records"):
        # MLflow refuses a comma in a name, and a blank makes it hard to type.
        name = row["sampling"].replace(",", "").replace(" ", "_")
        if row["work"] == "control":
            name += ".control"
        metrics[f"extractable_{row['level'] * 100:g}pct/{name}"] = row["value"]
    return metrics


def results(extractions: Extractions, heading: str, names: Sequence[str] = (), **options: Any) -> Table:
    """A line for the work, and one for its controls together, for each way of sampling, under their `heading`."""
    cells = []
    rows = []
    for sampling, works in extractions.items():
        # Without names the sides have those of their first works.
        for name, side in zip(names or [work.name for work in works], _sides(works), strict=False):
            highest = float(side.log_p.max())
            shares = [side.coverage(level) for level in LEVELS]
            for level, share in zip(LEVELS, shares, strict=True):
                rows.append((sampling, name, side.log_p.size, level, *share, highest / math.log(10)))
            line = [sampling, name, f"{side.log_p.size:,}", *map(_share, shares)]
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
    side, *controls = _sides(works)
    work = works[0]
    level = LEVELS[0]
    share = side.coverage(level)
    highest = float(work.log_p.max())
    # A share of the text and not of the passages, which overlap and would count a place several times.
    result = (
        f"{_share(share)} of {_short(work)} lies in passages of {work.suffix} tokens that {model} continues "
        f"word for word with a probability of at least {100 * level:g} %"
    )
    if not controls:
        findings = [Finding(f"{result}; {NO_CONTROL}")]
    else:
        comparison, apart = _comparison(share, side, controls[0], _greedy_signs(greedy))
        findings = [Finding(f"{result}, against {comparison}")]
        if not apart:
            findings.append(extraction_power(side, controls[0]))
    best = (
        f"the most probable passage has p = {_probability(highest)}: {_count(queries(highest))} queries return it with "
        "a chance of one half"
    )
    findings += [Finding(best, highest >= math.log(level)), Finding(READ, AGAINST)]
    stride = int(np.diff(work.starts).max(initial=0))
    if stride > work.suffix:
        findings.append(_gaps(work, stride))
    return findings


def _gaps(work: Work, stride: int) -> Finding:
    """What share of the work no passage continues, where they begin further apart than they are long."""
    seen = float(work.suffixes(-math.inf).mean())
    text = (
        f"{_percent(seen)} % of {_short(work)} was looked at: continuations of {work.suffix} tokens begin "
        f"every {stride:,}; --stride {work.suffix} or less leaves nothing out"
    )
    return Finding(text, AGAINST)


def _greedy_signs(works: Sequence[Work]) -> dict[str, float]:
    """What greedy decoding returns word for word, in words → p; nothing where it returns nothing of the work."""
    if len(works) < 2:
        return {}
    work, controls = _sides(works)
    returned = int((work.log_p == 0).sum())
    guessed = int((controls.log_p == 0).sum())
    if not returned:
        return {}
    _, p = lead(work.highest, controls.highest)
    counts = f"{returned:,} of {work.log_p.size:,} passages word for word"
    return {f"greedy decoding returns {counts}, against {guessed:,} of {controls.log_p.size:,} of the control": p}


def _comparison(share: Estimate, work: Side, controls: Side, signs: dict[str, float]) -> tuple[str, bool]:
    """What the share of the work says beside that of the controls, and whether they are told apart.

    `signs` are others that may tell them apart, in words → p, to which the highest probabilities are added.
    """
    control = controls.coverage(LEVELS[0])
    text = f"{_share(control)} of the control"
    quotient = ratio(share, control)
    # Without a passage of either that can be extracted, there is no quotient.
    if not math.isnan(quotient.value):
        value, low, high = (f"{number:.1f}".replace("inf", "∞").replace("nan", "–") for number in quotient)
        text += f"; ratio {value} [{low}, {high}]"
    # Intervals that do not even touch are a stricter test than that of a difference.
    if share.low > control.high:
        return f"{text}: {MORE} holds passages of this work", True
    count, p = lead(work.highest, controls.highest)
    if count:
        places = "place is" if count == 1 else f"{count:,} places are"
        signs = {**signs, f"its most probable {places} above every one of the control": p}
    for sign, p_of_sign in signs.items():
        text += f"; {sign} ({p_words(p_of_sign)})"
    # Two tests, each of which may tell them apart.
    if min(signs.values(), default=1.0) <= LEVEL / 2:
        return f"{text}: {MORE} knows this work", True
    return f"{text}: {NOT_TOLD_APART}; this does not show that it was not in the training data", False


def top_passages(work: Work, model: Model) -> Table:
    """The most probable passages with their prefixes."""
    assert model.decode is not None  # it read the works by its tokenizer
    cells = []
    for index in work.best(TOP):
        ids = work.passages[index].tolist()
        log_p = float(work.log_p[index])
        place = 100 * work.starts[index] / work.tokens.size
        prefix = model.decode(ids[: work.prefix])
        suffix = model.decode(ids[work.prefix :])
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
