"""What the tests of one data set say together: sentences, tables and the page."""

import math

import numpy as np
import pandas as pd

from extensions.contamination import accuracy
from extensions.contamination.dataset import INFERENCE, ORDER, Cell, Examined
from extensions.contamination.dataset_tests import FEWEST
from extensions.contamination.settings import ContaminationConfig
from fsd.api import (
    AGAINST,
    FOR,
    SLACK,
    Column,
    Finding,
    Reader,
    Report,
    Section,
    Table,
    again,
    as_findings,
    entry_of,
    p_column,
    p_value,
    p_words,
)
from pipelines.api import TIMES, simulated_power


def power_cell(line: tuple[object, ...]) -> str:
    """The power of a test at each number of readings; a dash for a test that was not simulated."""
    shares = [getattr(line, f"power_{times}") for times in TIMES]
    if np.isnan(shares).any():
        return "–"
    return " / ".join(f"{share:.0%}" for share in shares)


P_AND_POWER = [p_column("p", "p"), p_column("p (Holm)", "p_holm"), Column("power", power_cell, words=True)]
COLUMNS = [
    Column("test", "name"),
    Column("statistic", words=True),
    Column("compared with", "null", words=True),
    *P_AND_POWER,
]
CAPTION = (
    "p is the chance of such a result, or a clearer one, if the model was not trained on the data set; p (Holm) is "
    "corrected for the number of tests. Power is the share of data sets that the test alone would have found, if they "
    f"had been seen in training {', '.join(TIMES.values())}: simulated, at the level of the first step of Holm's "
    "correction."
)


def report(examined: Examined, cell: Cell) -> Report:
    """The tests, corrected for their number, and what they say together."""
    config = cell.config
    name = config.model.model
    data = ", ".join(config.files)
    tests = Table(
        examined.table,
        COLUMNS,
        caption=CAPTION,
        title="tests of the data set as a whole",
        name="results",
        kept=(0, 4, 3, 5, 1),
    )
    sections = [Section("Tests", tables=[tests])]
    findings = as_findings(cell.doubts, AGAINST) + conclusions(examined, config)
    if examined.right:
        sections.append(Section("Accuracy", tables=[accuracy.table(examined.right)]))
        findings.append(accuracy.finding(examined.right, config.level))
    metrics = examined.metrics
    smallest = metrics.get("contamination/p", math.nan)
    advice, commands = _advice(config)
    facts = {"Model": name, "Data set": data, "Known non-members": ", ".join(config.known) or "none"}
    facts["Seed"] = str(config.seed)
    return Report(
        title="Was it in the training data? A data set as a whole",
        question=f"Was {name} trained on {data}?",
        findings=findings + as_findings(cell.remarks),
        sections=sections,
        facts=list(facts.items()),
        changes=[advice],
        next=commands,
        score=f"p {p_value(smallest)}",
        metrics=metrics,
        reader=reader(examined, config),
        numbers={"p": smallest, "share": metrics.get("contamination/share"), "blind": metrics.get("audit/blind_auc")},
    )


def _advice(config: ContaminationConfig) -> tuple[str, list[str]]:
    """What would show more, and the command that does it."""
    if config.known:
        advice = (
            "Texts on which the model cannot have been trained, but of another period or kind than the data set, make "
            "the comparison with them void."
        )
        return advice, []
    # The training split of a benchmark is of the same kind, if the model has not read that as well.
    entry = entry_of(config.files[0])
    unread = (entry and entry.training_split) or "FILE"
    command = again("contamination", config.files, config, ContaminationConfig(config.files))
    advice = (
        "A comparison with texts of the same kind on which the model cannot have been trained (--known) would show "
        "what the order alone cannot."
    )
    return advice, [f"{command} --known {unread}"]


def conclusions(examined: Examined, config: ContaminationConfig) -> list[Finding]:
    """The results in sentences, most important first."""
    model = config.model.model
    table = examined.table
    verdict = examined.verdict
    evidence = examined.found(config.level)
    result = f"no evidence that {model} was trained on this data set; this does not show that it was not"
    if evidence:
        tests = ", ".join(f"{name} ({p_words(p)})" for name, p in evidence.items())
        result = (
            f"evidence that {model} was trained on this data set, by {tests}, corrected for {table['p_holm'].count()} "
            "tests"
        )
    findings = [Finding(result)]
    if examined.powers and not evidence:
        test = examined.strongest
        findings.append(simulated_power("data sets", examined.powers[test], test))
    findings += as_findings(_unable(table, config), AGAINST)
    # Without a difference, the share would be told of texts that may all be unread.
    if verdict and verdict.share and INFERENCE in evidence:
        findings.append(
            Finding(
                f"the share of the data set that the model was trained on is {verdict.share}, by its scores; used "
                "texts that score like unused ones are not counted, so it may be more",
                FOR,
            )
        )
    findings.append(
        Finding(
            f"{ORDER} is exact if the texts could as well have been published in any other order: not if they are "
            "sorted",
            AGAINST,
        )
    )
    if verdict and verdict.blind:
        findings.append(
            Finding(
                f"a blind classifier, which never sees the model, distinguishes the two sets with AUC {verdict.blind}; "
                "the other tests hold as far as they differ in nothing but membership",
                verdict.blind.low <= 0.5,
            )
        )
    elif not config.known:
        findings.append(Finding("without known non-members (--known) only the order was tested", AGAINST))
    for line in table[table["p"].isna()].itertuples(index=False):
        findings.append(Finding(f"{line.name} has no p-value: {line.reason}", AGAINST))
    return findings


def _unable(table: pd.DataFrame, config: ContaminationConfig) -> list[str]:
    """Which tests were left out, since none of their p-values could have been as small as the level."""
    unable = table[table["p"].notna() & table["p_holm"].isna()]
    if unable.empty:
        return []
    tests = " and ".join(unable["name"])
    limits = " and ".join(f"1/{1 / finest:.0f}" for finest in sorted(set(unable["finest"])))
    line = f"{tests} cannot fall below {limits} here, and so not to the level of {config.level:g}: left out"
    sets = math.ceil(1 / config.level - SLACK) - 1
    if config.sets < sets:
        line += f"; --sets {sets} lets a rank reach it, with {FEWEST * sets} known texts of different families"
    return [line]


def reader(examined: Examined, config: ContaminationConfig) -> Reader:
    """The answer for somebody who is no engineer."""
    model = config.model.model
    evidence = examined.found(config.level)
    answer = f"There is no evidence that {model} was trained on this data set. That does not show that it was not."
    if evidence:
        answer = f"The texts give evidence that {model} was trained on this data set."
    errors = _chance(examined.table["p_holm"].dropna(), config.level)
    # What would have been found matters where nothing was.
    if examined.powers and not evidence:
        shares = []
        for times, share in examined.powers[examined.strongest].items():
            shares.append(f"{100 * share.value:.0f} if it read them {TIMES[times]}")
        errors.append(
            f"Of 100 such data sets that a model was trained on, about so many would have been found: "
            f"{', '.join(shares)}. This is a simulation; another model may remember more of what it read, or less."
        )
    comparison = "No texts on which it cannot have been trained were given, so that nothing else was compared."
    if config.known:
        comparison = (
            f"It also read texts on which it cannot have been trained ({', '.join(config.known)}), and the two groups "
            "were compared."
        )
    order = (
        f"The model read the texts of the data set in the order in which they were published, and in {config.orders} "
        "random orders. A model that was trained on the file finds its own order easier."
    )
    return Reader([answer], errors, [order, comparison])


def _chance(able: pd.Series, level: float) -> list[str]:
    """What chance explains, for somebody who is no engineer, by the corrected p-values of the tests."""
    if able.empty:
        return ["So few texts cannot give evidence: no result could have been clear enough."]
    divided = f", and is divided among {able.size} tests" if able.size > 1 else ""
    return [
        f"Chance alone gives a result like this one, or a clearer one, in up to {100 * able.min():.2g} of 100 cases.",
        "If the model was not trained on the data set, such an examination finds evidence all the same in at most "
        f"{100 * level:g} of 100 cases: the limit was set before{divided}.",
    ]
