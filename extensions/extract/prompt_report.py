"""Tables and sentences of what a model returned when it was asked for a work, and the transcript."""

import json
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import numpy as np
import pandas as pd

from extensions.extract.questions import AskedWork, Question
from extensions.extract.replies import PLAIN, Reply, Request
from extensions.extract.returned import LEVEL, Exchange, Quoted, Returned, p_values
from extensions.extract.settings import ExtractConfig
from fsd.config import again
from fsd.evaluation.findings import AGAINST, FOR, Finding, as_findings
from fsd.reporting.report import Column, Reader, Report, Section, Table, numbers, p_column, p_value, p_words, plain
from fsd.statistics.multiplicity import SLACK
from pipelines.experiment.examination import examined

TRANSCRIPT = "transcript.jsonl"
"""Every request with its reply, one a line, in the files of the run."""
TOP = 10
QUOTED = 30
"""Words of a span in a sentence."""
FEW = 3
"""Spans on the page for somebody who is no engineer."""
LONGER = 2
"""Times that a work may be as long as the control works before that is said."""
READ = "a passage that is quoted in many places can be returned without the work itself: read the spans"
POWER = (
    "power: of works that they had read up to 32 times, our small models can be made to return none: the most probable "
    "passage had p = 10^-18; measured (docs/evidence.md), and larger models keep more"
)
CHANGES = (
    "A model may know a work and decline to repeat it, or retell it in other words.",
    "Other prompts, longer replies (--max-tokens) or several of them (--replies) may return more.",
)
COUNTED = "words that the prompt gave are not counted, and punctuation and capitals make no difference"


def _kind(row: Any) -> str:
    return "control" if row.control else ""


def _chance(row: Any) -> str:
    # A data frame of control works alone has None, and any other one NaN.
    if row.chance is None or math.isnan(row.chance):
        return "–"
    return f"{row.chance:.0f}"


SPAN_COLUMNS = ("Work", "Words", "Prompt", "Place", "Reply before", "Word for word", "Reply after", "In a control")
RUNS = [
    Column("words\nin a row", lambda row: f"{row.longest:,}"),
    Column("spans"),
    Column("words\nin spans", lambda row: f"{row.words:,}"),
]
COLUMNS = [
    Column("work", words=True),
    Column("control", _kind),
    *RUNS,
    Column("replies"),
    Column("of a\ncontrol", _chance),
    p_column("p", "p"),
]
# The last of them leave a narrow terminal first: the run and its p-value are what matters.
KEPT = (2, 7, 6, 1, 3, 4, 5)


@dataclass(frozen=True)
class Entry:
    """A request about a work, and the reply."""

    work: AskedWork
    question: Question
    request: Request
    reply: Reply

    @property
    def exchange(self) -> Exchange:
        """What is compared: the prompt as it was written, not as it was sent, with the template around it."""
        return Exchange(self.question.name, self.request.prompt, self.reply.text)

    def record(self) -> dict[str, Any]:
        """The entry as a line of the transcript."""
        about = {"work": self.work.name, "control": self.work.control, "prompt": self.question.name}
        settings = self.request.settings() | dict.fromkeys(self.reply.refused)
        return about | self.reply.record() | settings


@dataclass(frozen=True)
class Answer:
    """What came back of the works in question, best first, and of the control works."""

    model: str
    span: int
    works: Sequence[Returned]
    controls: Sequence[Returned]
    p: dict[str, float]

    @property
    def best(self) -> Returned:
        """The work of which most was returned."""
        return self.works[0]

    @property
    def guessed(self) -> int | None:
        """Most words in a row that were returned of a control work; None without any."""
        # They are in the order of what came back.
        if self.controls:
            return self.controls[0].longest
        return None

    @property
    def passage(self) -> bool:
        """Whether a whole span was returned."""
        return self.best.longest >= self.span

    @property
    def smallest(self) -> float:
        """The smallest p-value that these works and control works allow."""
        without_limit = [replace(work, longest=sys.maxsize) for work in self.works]
        return min(p_values([*without_limit, *self.controls]).values(), default=1.0)

    def numbers(self) -> dict[str, float | None]:
        """What a gate can ask for."""
        return {"words": self.best.longest, "words_control": self.guessed, "p": self.p.get(self.best.work)}

    @property
    def holds(self) -> bool:
        """Whether more was returned than can be guessed."""
        return self.passage and bool(self.p) and self.p[self.best.work] <= LEVEL


def answer_of(model: str, results: Sequence[Returned], span: int) -> Answer:
    """The works in the order in which they are told."""
    works = []
    controls = []
    for work in sorted(results, key=lambda work: -work.longest):
        if work.control:
            controls.append(work)
        else:
            works.append(work)
    return Answer(model, span, works, controls, p_values(results))


def report(config: ExtractConfig, results: Sequence[Returned], transcript: Sequence[Entry], run: str) -> Report:
    """What was returned, most important first; `run` is the id of the run that keeps it."""
    model = examined(config)
    answer = answer_of(model, results, config.span)
    records = [entry.record() for entry in transcript]
    # The answer can be computed again; the time at which it was given cannot.
    recomputed = pd.DataFrame(records).drop(columns="time")
    asked = numbers("transcript", recomputed)
    results_section = Section("Results", tables=[_results(answer)])
    spans_section = Section("What was returned", tables=[_spans(answer)])
    prompts_section = Section("Prompts", points=_prompts(transcript), tables=[asked])
    question = f"Does {model} return {answer.best.work} when it is asked for it?"
    page = Report(
        title="Was it in the training data? Extraction by prompts",
        question=question,
        findings=conclusions(answer) + _circumstances(answer, transcript),
        sections=[results_section, spans_section, prompts_section],
        changes=CHANGES,
    )
    values = answer.numbers()
    # Letters as they are: a reader of the transcript is no program.
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    metrics = {}
    for name, value in values.items():
        # MLflow has no metric without a value, such as a p-value without control works.
        if value is not None:
            metrics[f"returned/{name}"] = float(value)
    sentences = [f"{headline(answer)}.", *_longest(answer)]
    told = replace(
        page,
        answer=sentences,
        sure=_reasons(answer),
        next=_commands(config, answer, run),
        facts=_facts(config, transcript),
    )
    return replace(
        told,
        reader=_reader(answer),
        score=f"{answer.best.longest} words",
        metrics=metrics,
        numbers=values,
        artifacts={TRANSCRIPT: "".join(lines)},
    )


def headline(answer: Answer) -> str:
    """The answer in a sentence, without its full stop."""
    best = answer.best
    result = f"{answer.model} returned {_words(best.longest)} of {best.work} in a row"
    if len(answer.works) > 1:
        result += f", the most of {len(answer.works)} works"
    if answer.guessed is None:
        return f"{result}; without control works (--control) this does not show how many of them can be guessed"
    count = len(answer.controls)
    # "At most" of one work would sound like a bound.
    if count == 1:
        result += f"; of the control work {answer.guessed}"
    else:
        result += f"; of the {count} control works at most {answer.guessed}"
    if answer.holds:
        return f"{result}: more than can be guessed, so the model holds passages of this work"
    # With few control works the best rank of all may come by chance.
    if answer.passage and best.longest > answer.guessed and answer.smallest > LEVEL:
        return f"{result}: more than of any, but these are too few or too short control works for a p-value"
    return f"{result}: not distinguishable from the control; this does not show that it was not in the training data"


def _words(count: int) -> str:
    if count == 1:
        return "1 word"
    return f"{count:,} words"


def conclusions(answer: Answer) -> list[Finding]:
    """The result and what it rests on, most important first."""
    best = answer.best
    findings = [Finding(headline(answer)), *as_findings(_longest(answer), FOR)]
    if answer.controls:
        findings.append(Finding(_rank(answer), answer.holds))
        # Without a passage to compare it with, this speaks for nothing.
        findings.append(
            Finding(
                f"the same replies share at most {best.chance} words in a row with a control work: common phrases",
                answer.holds or None,
            )
        )
    if best.spans:
        common_spans = sum(span.common for span in best.spans)
        counts = f"spans of at least {answer.span} words: {len(best.spans)}, with {best.words:,} words"
        findings.append(Finding(f"{counts}; {common_spans} of them stand in a control work too"))
        findings.append(Finding(READ, AGAINST))
    if not answer.holds:
        findings.append(Finding(POWER, AGAINST))
    return findings


def _rank(answer: Answer) -> str:
    """What the rank of the work says, and what more control works would allow."""
    needed = math.ceil(len(answer.works) / LEVEL - SLACK) - 1
    count = len(answer.controls)
    p = p_words(answer.p[answer.best.work])
    sentence = f"rank among {count} control works that were asked for in the same way: {p}"
    if len(answer.works) > 1:
        sentence += f", corrected for {len(answer.works)} works"
    if count < needed:
        sentence += f"; the smallest that they allow is {p_value(answer.smallest)}, and {needed} would allow .05"
    return sentence


def _longest(answer: Answer) -> list[str]:
    """The longest span in its own words."""
    if not answer.best.spans:
        return []
    quotation = " ".join(answer.best.spans[0].quotation.split()[:QUOTED])
    # A sentence has no room for pages; the table has the whole.
    if answer.best.spans[0].length > QUOTED:
        quotation += " …"
    return [f"returned word for word: “{quotation}”"]


def _circumstances(answer: Answer, transcript: Sequence[Entry]) -> list[Finding]:
    """How the model was asked, and what makes the comparison weaker."""
    findings = []
    # All requests of a command are sent in one form.
    if transcript[0].reply.form == PLAIN:
        findings.append(Finding("the model was asked by plain text: it has no chat template, or --plain left it out"))
    if any("temperature" in entry.reply.refused for entry in transcript):
        findings.append(Finding("the service takes no temperature: each reply is drawn, and none is the likeliest"))
    empty = sum(not entry.reply.text.strip() for entry in transcript)
    if empty:
        findings.append(Finding(f"{empty} of {len(transcript)} replies are empty", AGAINST))
    if answer.controls:
        # A control that is much longer than the others would hide it from the mean.
        usual = float(np.median([work.size for work in answer.controls]))
        times = answer.best.size / usual
        if times > LONGER:
            longer = f"{answer.best.work} is {times:.1f} times as long as the control works"
            findings.append(Finding(f"{longer}: chance finds longer runs in longer works", AGAINST))
    return findings


def _reasons(answer: Answer) -> list[str]:
    """Why one may believe the answer, for the page."""
    reasons = [
        f"Every request and reply is in {TRANSCRIPT}, with its time, the model and the settings.",
        f"In the comparison, {COUNTED}.",
    ]
    if answer.controls:
        reasons.insert(0, f"It is a {_rank(answer)}.")
    else:
        reasons.append("WARNING: without control works nothing shows how many words in a row can be guessed.")
    return reasons


def _results(answer: Answer) -> Table:
    """A line for each work in question, and for the control works of which most came back."""
    rows = [_row(work, answer) for work in (*answer.works, *answer.controls)]
    frame = pd.DataFrame(rows)
    # Of a hundred control works the first few are enough; the tracked run has all.
    lines = frame.head(len(answer.works) + TOP).itertuples(index=False)
    table = Table(
        list(lines),
        COLUMNS,
        "Most words in a row that the replies about a work have of it; spans of at least "
        f"{answer.span} words; and, of a control, most words in a row that the same replies have of a control work.",
        frame=frame,
        name="results",
        kept=KEPT,
    )
    # The best work is the first line.
    marked = []
    if answer.holds:
        marked.append(0)
    return replace(table, title="words that were returned", marked=marked)


def _row(work: Returned, answer: Answer) -> dict[str, Any]:
    return {**vars(work), "spans": len(work.spans), "p": answer.p.get(work.work)}


def _spans(answer: Answer) -> Table:
    """The longest spans of the works in question, with the words of the reply around them."""
    lines = []
    for work in answer.works:
        lines += [(work.work, span) for span in work.spans]
    lines.sort(key=lambda line: -line[1].length)
    return plain(
        SPAN_COLUMNS,
        list(starmap(_span_cells, lines[:TOP])),
        words=(2, 4, 5, 6),
        caption="The longest spans; place is the share of the work before them. What stands under “word for word” is "
        "in the reply and in the work.",
        printed=False,
    )


def _span_cells(work: str, span: Quoted) -> list[str]:
    place = f"{100 * span.place:.1f} %"
    # In words, so that a reader need not know what True is.
    common = "yes" if span.common else "no"
    return [work, f"{span.length:,}", span.prompt, place, span.leading, span.quotation, span.following, common]


def _prompts(transcript: Sequence[Entry]) -> list[str]:
    """The prompts as they were written, each once."""
    # The replies of a prompt share its name, and so do those about other works.
    lines = {}
    for entry in transcript:
        question = entry.question
        lines[question.name] = f"{question.name}: {question.template}"
    return list(lines.values())


def _commands(config: ExtractConfig, answer: Answer, run: str) -> list[str]:
    """What comes next: control works, the bundle, or the probabilities, which find more than replies do."""
    if not answer.controls:
        # Other prompts or another address would be another comparison.
        return [f"{again('extract', [config.book], config, ExtractConfig(config.book))} --control OTHERS.jsonl"]
    # What was found is worth keeping so that others can check it.
    if answer.passage:
        return [f"fsd bundle {run} --out evidence.zip"]
    # Probabilities are those of one work, in a text file, and need a model that gives them.
    if config.model.by_api or len(answer.works) > 1:
        return []
    return [f"fsd extract {shlex.quote(config.book)} --model {shlex.quote(config.model.model)} --control OTHER.txt"]


def _facts(config: ExtractConfig, transcript: Sequence[Entry]) -> list[tuple[str, str]]:
    facts = [("Model", examined(config))]
    reply = transcript[0].reply
    if reply.fingerprint:
        facts.append(("Weights", reply.fingerprint))
    elif reply.model != config.model.model.removeprefix("api:"):
        facts.append(("Named by the service", reply.model))
    settings = f"{config.replies} replies of at most {config.max_tokens} tokens; the first is the likeliest"
    if config.replies > 1:
        settings += f", the others have temperature {config.temperature:g} and seeds from {config.seed}"
    refused = sorted({setting for entry in transcript for setting in entry.reply.refused})
    if refused:
        settings += f", but the service has its own {' and '.join(refused)}"
    # Replies that an interrupted command had kept are older than the others.
    times = sorted(entry.reply.time for entry in transcript)
    requests = f"{len(transcript):,}, from {times[0]} to {times[-1]}"
    facts += [("Asked by", reply.form), ("Settings", settings)]
    facts += [("Files", ", ".join(config.names)), ("Requests", requests)]
    return facts


def _reader(answer: Answer) -> Reader:
    """The answer for somebody who is no engineer."""
    wrong = ["A passage that is quoted in many places can be returned by a model that was not trained on the work."]
    # How often a "no" is wrong is not known: that depends on the model, and on how often it read the work.
    if answer.holds:
        rate = 100 * answer.p[answer.best.work]
        chance = "If the model had read none of these works, a work would stand so high above the others by chance in"
        wrong.insert(0, f"{chance} about {rate:.1f} of 100 such comparisons.")
    compared = [
        "The model was asked for the work as anybody could ask it. Its replies were compared with the work: what "
        f"counts is how many words of both are the same, one after the other. {COUNTED.capitalize()}."
    ]
    if answer.controls:
        compared.append(f"It was asked in the same way for {len(answer.controls)} works that it cannot have read.")
    # Two sheets of paper have room for a few.
    cells = [[f"{span.length:,}", span.quotation] for span in answer.best.spans[:FEW]]
    tables = []
    if cells:
        tables.append(plain(["Words", "Returned word for word"], cells, caption="The longest passages:"))
    return Reader([f"{headline(answer)}."], wrong, compared, tables)
