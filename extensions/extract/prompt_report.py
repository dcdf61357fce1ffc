"""Tables and sentences of what a model returned when it was asked for a work, and the transcript."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import starmap
from typing import Any

import numpy as np
import pandas as pd

from extensions.extract.questions import AskedWork, Question
from extensions.extract.replies import PLAIN, Reply, Request
from extensions.extract.returned import LEVEL, Exchange, Quoted, Returned, p_values, returned, words_of
from extensions.extract.settings import ExtractConfig
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
    numbers,
    p_column,
    p_value,
    p_words,
    plain,
)

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
COUNTED = "Words that the prompt gave are not counted, and punctuation and capitals make no difference."


def _kind(row: Any) -> str:
    return "control" if row.control else ""


def _chance(row: Any) -> str:
    # A data frame of control works alone has None, and any other one NaN.
    if pd.isna(row.chance):
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
    """A request about a work, and the reply once there is one."""

    work: AskedWork
    question: Question
    request: Request
    reply: Reply | None = None

    @property
    def answered(self) -> Reply:
        """The reply."""
        assert self.reply is not None
        return self.reply

    @property
    def exchange(self) -> Exchange:
        """What is compared: the prompt as it was written, not as it was sent, with the template around it."""
        return Exchange(self.question.name, self.request.prompt, self.answered.text)

    @property
    def record(self) -> dict[str, Any]:
        """The entry as a line of the transcript."""
        request = self.request
        reply = self.answered
        about = {"work": self.work.name, "control": self.work.control, "prompt": self.question.name}
        sent = {"form": reply.form, "request": reply.sent, "time": reply.time}
        came = {"model": reply.model, "fingerprint": reply.fingerprint, "reply": reply.text}
        return about | sent | came | request.settings | dict.fromkeys(reply.refused)


@dataclass(frozen=True)
class Answer:
    """What came back of the works in question, best first, and of the control works."""

    model: str
    span: int
    works: Sequence[Returned]
    controls: Sequence[Returned]

    @cached_property
    def p(self) -> dict[str, float]:
        """Work → its p-value; nothing without control works."""
        return p_values([*self.works, *self.controls])

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

    @property
    def holds(self) -> bool:
        """Whether more was returned than can be guessed."""
        return self.passage and self.p.get(self.best.work, 1.0) <= LEVEL

    @property
    def numbers(self) -> dict[str, float | None]:
        """What a gate can ask for."""
        return {"words": self.best.longest, "words_control": self.guessed, "p": self.p.get(self.best.work)}


def answer_of(config: ExtractConfig, works: Sequence[AskedWork], transcript: Sequence[Entry]) -> Answer:
    """What the replies to the prompts for each work have of it, and of the control works."""
    words = {work.name: words_of(work.text) for work in works}
    texts_of_controls = [words[work.name] for work in works if work.control]
    asked = []
    controls = []
    for work in works:
        exchanges = [entry.exchange for entry in transcript if entry.work is work]
        if work.control:
            # What replies about a control work have of other works is no part of the answer.
            controls.append(returned(work.name, words[work.name], exchanges, config.span, control=True))
        else:
            asked.append(returned(work.name, words[work.name], exchanges, config.span, texts_of_controls))
    for results in (asked, controls):
        results.sort(key=lambda result: -result.longest)
    return Answer(config.examined, config.span, asked, controls)


def report(config: ExtractConfig, works: Sequence[AskedWork], transcript: Sequence[Entry], run: str) -> Report:
    """What was returned, most important first; `run` is the id of the run that keeps it."""
    answer = answer_of(config, works, transcript)
    records = [entry.record for entry in transcript]
    # The answer can be computed again; the time at which it was given cannot.
    recomputed = pd.DataFrame(records).drop(columns="time")
    results_section = Section("Results", tables=[_results(answer)])
    spans_section = Section("What was returned", tables=[_spans(answer)])
    prompts_section = Section("Prompts", points=_prompts(transcript), tables=[numbers("transcript", recomputed)])
    question = f"Does {answer.model} return {answer.best.work} when it is asked for it?"
    page = Report(
        title="Was it in the training data? Extraction by prompts",
        question=question,
        findings=conclusions(answer) + _circumstances(answer, transcript),
        sections=[results_section, spans_section, prompts_section],
        changes=CHANGES,
    )
    metrics = {}
    for name, value in answer.numbers.items():
        # MLflow has no metric without a value, such as a p-value without control works.
        if value is not None:
            metrics[f"returned/{name}"] = float(value)
    # Letters as they are: a reader of the transcript is no program.
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    told = replace(page, next=_commands(config, answer, run), facts=_facts(config, transcript), reader=_reader(answer))
    return replace(
        told,
        score=f"{answer.best.longest} words",
        metrics=metrics,
        numbers=answer.numbers,
        artifacts={TRANSCRIPT: "".join(lines)},
    )


def _prompts(transcript: Sequence[Entry]) -> list[str]:
    """The prompts as they were written, each once."""
    # The replies of a prompt share its name, and so do those about other works.
    lines = {}
    for entry in transcript:
        question = entry.question
        lines[question.name] = f"{question.name}: {question.template}"
    return list(lines.values())


def headline(answer: Answer) -> str:
    """The answer in a sentence, without its full stop."""
    best = answer.best
    result = (
        f"{answer.model} returned {best.longest:,} {'word' if best.longest == 1 else 'words'} of {best.work} in a row"
    )
    if len(answer.works) > 1:
        result += f", the most of {len(answer.works)} works"
    if best.replies > 1 and best.hits:
        result += f"; {answer.span} or more in {best.hits} of {best.replies} replies"
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


def conclusions(answer: Answer) -> list[Finding]:
    """The result and what it rests on, most important first."""
    best = answer.best
    findings = [Finding(headline(answer))]
    if best.spans:
        words = best.spans[0].quotation.split()
        # A sentence has no room for pages; the table has the whole.
        more = " …" if best.spans[0].length > QUOTED else ""
        findings.append(Finding(f"returned word for word: “{' '.join(words[:QUOTED])}{more}”", FOR))
    if answer.controls:
        findings.append(Finding(_rank(answer), answer.holds))
        # Without a passage to compare it with, this speaks for nothing.
        phrases = f"the same replies share at most {best.chance} words in a row with a control work: common phrases"
        findings.append(Finding(phrases, answer.holds or None))
    if best.spans:
        common = sum(span.common for span in best.spans)
        counts = f"spans of at least {answer.span} words: {len(best.spans)}, with {best.words:,} words"
        findings.append(Finding(f"{counts}; {common} of them stand in a control work too"))
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


def _circumstances(answer: Answer, transcript: Sequence[Entry]) -> list[Finding]:
    """How the model was asked, and what makes the comparison weaker."""
    replies = [entry.answered for entry in transcript]
    findings = []
    # All requests of a command are sent in one form.
    if replies[0].form == PLAIN:
        findings.append(Finding("the model was asked by plain text: it has no chat template, or --plain left it out"))
    if any("temperature" in reply.refused for reply in replies):
        findings.append(Finding("the service takes no temperature: each reply is drawn, and none is the likeliest"))
    empty = sum(not reply.text.strip() for reply in replies)
    if empty:
        findings.append(Finding(f"{empty} of {len(replies)} replies are empty", AGAINST))
    if answer.controls:
        # A control that is much longer than the others would hide it from the mean.
        times = answer.best.size / float(np.median([work.size for work in answer.controls]))
        if times > LONGER:
            longer = f"{answer.best.work} is {times:.1f} times as long as the control works"
            findings.append(Finding(f"{longer}: chance finds longer runs in longer works", AGAINST))
    return findings


def _results(answer: Answer) -> Table:
    """A line for each work in question, and for the control works of which most came back."""
    rows = []
    for work in (*answer.works, *answer.controls):
        row = vars(work) | {"spans": len(work.spans), "p": answer.p.get(work.work)}
        rows.append(row)
    frame = pd.DataFrame(rows)
    # Of a hundred control works the first few are enough; the tracked run has all.
    lines = frame.head(len(answer.works) + TOP)
    table = Table(
        lines,
        COLUMNS,
        "Most words in a row that the replies about a work have of it; spans of at least "
        f"{answer.span} words; and, of a control, most words in a row that the same replies have of a control work.",
        title="words that were returned",
        frame=frame,
        name="results",
        kept=KEPT,
    )
    # The best work is the first line.
    if answer.holds:
        return replace(table, marked=[0])
    return table


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


def _commands(config: ExtractConfig, answer: Answer, run: str) -> list[str]:
    """What comes next: control works, or the bundle."""
    if not answer.controls:
        return [config.again_with("--control OTHERS.jsonl")]
    # What was found is worth keeping so that others can check it.
    if answer.passage:
        return [f"fsd bundle {run} --out evidence.zip"]
    return []


def _facts(config: ExtractConfig, transcript: Sequence[Entry]) -> list[tuple[str, str]]:
    # Replies that an interrupted command had kept are older than the others.
    times = sorted(entry.answered.time for entry in transcript)
    requests = f"{len(transcript):,}, from {times[0]} to {times[-1]}; {TRANSCRIPT} has all, with the settings"
    facts = [("Model", config.examined), ("Asked by", transcript[0].answered.form)]
    return [*facts, ("Files", ", ".join(config.names)), ("Requests", requests)]


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
        f"counts is how many words of both are the same, one after the other. {COUNTED}"
    ]
    if answer.controls:
        compared.append(f"It was asked in the same way for {len(answer.controls)} works that it cannot have read.")
    # Two sheets of paper have room for a few.
    cells = [[f"{span.length:,}", span.quotation] for span in answer.best.spans[:FEW]]
    tables = []
    if cells:
        tables.append(plain(["Words", "Returned word for word"], cells, caption="The longest passages:"))
    return Reader([f"{headline(answer)}."], wrong, compared, tables)
