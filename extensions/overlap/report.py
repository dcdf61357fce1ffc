"""The comparison of two sides that are read as streams, and what it found."""

import heapq
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from extensions.overlap.command import OverlapConfig
from extensions.overlap.overlap import (
    ANSWER,
    BOILERPLATE,
    CONTAMINATED,
    MOST,
    PASSAGE,
    QUESTION,
    TOO_SHORT,
    VERDICTS,
    Overlap,
    overlap,
)
from fsd.api import (
    AGAINST,
    COMMON,
    Column,
    Finding,
    Passage,
    Reader,
    Report,
    Section,
    Table,
    TextStream,
    UsageError,
    at_least,
    counted,
    progress,
)
from pipelines.api import Job, Stated, byte_size, check_path, deliver, run_name, stage, tracked_run, write_rows

KINDS = {
    ANSWER: "a passage holds the answer",
    QUESTION: "passages do not hold the answer",
    PASSAGE: "texts without an answer",
    BOILERPLATE: f"words that more than {COMMON} of the texts have",
}
"""Class of match → what it means."""
SHARE = Column("share", lambda row: f"{row.share:.2f}".removeprefix("0"))
COLUMNS = (
    Column("text", "source"),
    SHARE,
    Column("longest"),
    Column("class", "kind"),
    Column("verdict"),
    Column("where", words=True),
    Column("passage", words=True),
)
NOT_SHOWN = "a paraphrase or a translation shares no such words: what is not found may be there all the same"


@dataclass
class Summary:
    """Sums over the rows, and those with the largest shares, the largest first."""

    texts: int = 0
    shared: int = 0
    ngrams: int = 0
    occurring: int = 0
    longest: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    best: list[tuple[float, int, int, Overlap, dict[str, Any]]] = field(default_factory=list)

    def add(self, row: Overlap) -> dict[str, Any]:
        """Add a row, and give it as a row of the output file."""
        self.texts += 1
        self.shared += row.found > 0
        self.ngrams += row.ngrams
        self.occurring += row.found
        self.longest = max(self.longest, row.longest)
        self.kinds[row.kind] += 1
        self.verdicts[row.verdict] += 1
        # A text without n-grams has no share: 0 would read as clean.
        share = row.share if row.ngrams else None
        written = row._asdict() | {"share": share, "class": row.kind, "verdict": row.verdict}
        if row.found:
            # The number of the text decides between equal ones, so that rows themselves are never compared.
            entry = (row.share, row.longest, -self.texts, row, written)
            # Those of the table alone are kept, as there may be more rows than memory.
            self.best = heapq.nlargest(10, [*self.best, entry])
        return written

    @property
    def counted(self) -> str:
        """How many texts share n-grams."""
        return f"{self.shared:,} of {self.texts:,}"

    @property
    def numbers(self) -> dict[str, float]:
        """What a gate can ask for."""
        # Never by 0: `overlap` refuses texts without any n-gram.
        share = self.occurring / self.ngrams
        return {"found": self.shared, "texts": self.shared / self.texts, "share": share, "longest": self.longest}

    @property
    def classes(self) -> str:
        """How many texts have each verdict, and each class of match."""
        verdicts = []
        for name in VERDICTS:
            number = self.verdicts[name]
            if number:
                verdicts.append(f"{number:,} {name}")
        kinds = []
        for name, meaning in KINDS.items():
            if self.kinds[name]:
                kinds.append(f"{self.kinds[name]:,} {name} ({meaning})")
        line = f"verdicts: {', '.join(verdicts)}; matches: {', '.join(kinds)}"
        if self.kinds[PASSAGE]:
            line += f"; contaminated without an answer (--answer) is a text of which {MOST:.0%} is there"
        return line

    def findings(self, n: int) -> list[Finding]:
        """The result, most important first."""
        share = self.numbers["share"]
        result = (
            f"{self.counted} texts share {n} words in a row with the corpus, which has {share:.1%} of their {n}-grams"
        )
        counts = f"{self.occurring:,} of {self.ngrams:,} {n}-grams occur there"
        findings = [Finding(result), Finding(f"{counts}; the longest passage has {self.longest:,} words")]
        if self.shared:
            findings.append(Finding(self.classes))
        short = self.verdicts[TOO_SHORT]
        if short:
            findings.append(Finding(f"{short:,} texts have fewer than {n} words and cannot be compared", AGAINST))
        return [*findings, Finding(NOT_SHOWN, AGAINST)]

    def table(self, n: int) -> Table:
        """The texts with the largest shares, the largest first."""
        rows = [entry[-2] for entry in self.best]
        frame = pd.DataFrame(entry[-1] for entry in self.best)
        return Table(
            rows,
            COLUMNS,
            caption=f"Share of the {n}-grams of a text that occur in the corpus; words of the longest passage of "
            "which all do; the first text of the corpus that holds the beginning of that passage.",
            title="texts with the largest shares",
            name="overlap",
            frame=frame,
            kept=(0, 1, 4, 3, 2, 5),
        )

    def reader(self, n: int) -> Reader:
        """The answer for somebody who is no engineer."""
        answer = f"{self.counted} texts share {n} words in a row with the corpus."
        wrong = (
            "The comparison is exact: what it finds stands there. Set phrases and quotations stand in many texts, so "
            "that a match need not be a copy. A paraphrase or a translation is not found."
        )
        compared = (
            f"Every run of {n} words of each text was looked for in the whole corpus, without regard to capitals and "
            f"punctuation. The longest passage that stands in both has {self.longest:,} words."
        )
        return Reader([answer], [wrong], [compared])


def prepare(config: OverlapConfig) -> Job:
    """Check both sides and the output file; texts are read later."""
    at_least(1, n=config.n)
    # The files are listed now, and read in `run`.
    texts = TextStream([config.texts], config.column, config.answer)
    corpus = TextStream([config.corpus], config.corpus_column or config.column)
    if config.out:
        if not config.out.endswith(".parquet"):
            raise UsageError(f"out must be a file that ends in .parquet; got {config.out}")
        inputs = [config.texts, config.corpus]
        inputs += [file.url for file in texts.files + corpus.files]
        check_path(Path(config.out), inputs)
    reads = {"texts": _size(config.texts, texts), "corpus": _size(config.corpus, corpus)}
    return Job(
        partial(run, config, texts, corpus),
        reads,
        writes=[config.out],
        experiment="fsd-overlap",
        checks=[texts.check, corpus.check],
    )


def _size(name: str, side: TextStream) -> Stated:
    count = len(side.files)
    values = {"name": name, "files": count, "bytes": side.size}
    return Stated(f"{name}: {counted(count, 'file')}, {byte_size(side.size)}", values)


class _Watched:
    """A side that moves a bar of bytes while it is read; it may be read again."""

    def __init__(self, side: TextStream, bar: Any) -> None:
        self.side = side
        self.bar = bar

    def __iter__(self) -> Iterator[Passage]:
        done = 0
        for passage in self.side:
            self.bar.update(self.side.done - done)
            done = self.side.done
            yield passage


def run(config: OverlapConfig, texts: TextStream, corpus: TextStream) -> None:
    """Compare, write, track and print."""
    summary = Summary()
    out = Path(config.out) if config.out else None
    example = Summary().add(Overlap("text", 1, 1, 1, answered=True))
    # The rows are drawn while they are written: there may be more than the memory holds.
    with stage("comparing"), progress(texts.size + corpus.size, "reading", "B") as bar:
        rows = overlap(_Watched(texts, bar), _Watched(corpus, bar), n=config.n)
        write_rows(map(summary.add, rows), out, example)
    with tracked_run(config, "fsd-overlap", run_name(config.corpus, [config.texts], "overlap")) as tracked:
        deliver(report(summary, config), tracked)


def report(summary: Summary, config: OverlapConfig) -> Report:
    """How many texts share n-grams, and the texts of which most stands in the corpus."""
    n = config.n
    values = summary.numbers
    # The other way round, each text of the corpus is looked for in these: how much of it they make up.
    words = ["fsd", "overlap", config.corpus, config.texts]
    corpus_column = config.corpus_column or config.column
    if {corpus_column, config.column} != {"text"}:
        words += ["--column", corpus_column, "--corpus-column", config.column]
    metrics = {
        "overlap/texts": values["texts"],
        "overlap/contaminated": summary.verdicts[CONTAMINATED] / summary.texts,
        "overlap/ngrams": values["share"],
        "overlap/longest": values["longest"],
    }
    section = Section("Texts of which most stands in the corpus", tables=[summary.table(n)])
    return Report(
        title="Does it stand in the corpus?",
        question=f"Which texts of {config.texts} share {n} words in a row with {config.corpus}?",
        findings=summary.findings(n),
        sections=[section],
        facts=[("Texts", config.texts), ("Corpus", config.corpus), ("Words of an n-gram", str(n))],
        score=summary.counted,
        metrics=metrics,
        reader=summary.reader(n),
        numbers=values,
        files={"table": config.out} if config.out else {},
        next=[shlex.join(words)],
    )
