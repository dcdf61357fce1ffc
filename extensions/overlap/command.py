"""How much of these texts stands in that corpus, word for word? 13-grams of words, exactly, without a model.

Each side is a file or a folder of files, read as a stream. Words are lower-cased and without punctuation.

Examples:
    fsd overlap benchmark.jsonl corpus --out overlap.parquet
    fsd overlap questions.jsonl pile.jsonl.zst --column question --corpus-column text
    fsd overlap lm-eval:arc_easy corpus
    fsd overlap exam.csv corpus --column "{question} {answer}" --answer answer --corpus-column text
"""

import heapq
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from fsd.config import OptionalName, OptionalPath
from fsd.errors import UsageError, at_least
from pipelines.command.cli import command
from pipelines.command.context import stage
from pipelines.command.deliver import deliver, run_name, tracked_run
from pipelines.command.job import Job, Stated, byte_size
from pipelines.command.output import check_path, write_rows

if TYPE_CHECKING:
    from extensions.overlap.overlap import Overlap
    from fsd.data.readers import Passage, TextStream
    from fsd.reporting.report import Reader, Report, Table

LISTED = 10
"""Texts of the table."""


@dataclass(frozen=True)
class OverlapConfig:
    """Texts, a corpus, and what counts as the same."""

    texts: Annotated[Positional[str], arg(metavar="TEXTS")]
    """File or folder (.jsonl, .csv, .parquet, .txt, also packed), hf://datasets/OWNER/NAME/PATH, or lm-eval:TASK."""
    corpus: Annotated[Positional[str], arg(metavar="CORPUS")]
    """The same, of any size: where the texts are looked for."""
    out: OptionalPath = None
    """Output file, .parquet: one row a text, with its share, longest passage and where that is, class and verdict."""
    n: int = 13
    """Words of an n-gram; 13 is that of GPT-3 and of most reports on contamination."""
    column: str = "text"
    """Column of the texts, or several joined by a template: "{question} {answer}"."""
    corpus_column: OptionalName = None
    """Column of the corpus. Default: that of the texts."""
    answer: OptionalName = None
    """Column of the answer that stands in a text, so that a match tells whether the answer is in the corpus."""


@dataclass
class Summary:
    """Sums over the rows, and those with the largest shares, the largest first."""

    texts: int = 0
    short: int = 0
    shared: int = 0
    ngrams: int = 0
    occurring: int = 0
    longest: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    best: "list[tuple[float, int, int, Overlap]]" = field(default_factory=list)

    def add(self, row: "Overlap") -> dict[str, Any]:
        """Add a row, and give it as a row of the output file."""
        self.texts += 1
        self.short += not row.ngrams
        self.shared += row.found > 0
        self.ngrams += row.ngrams
        self.occurring += row.found
        self.longest = max(self.longest, row.longest)
        self.kinds[row.kind] += 1
        self.verdicts[row.verdict] += 1
        if row.found:
            # The number of the text decides between equal ones, so that rows themselves are never compared.
            entry = (row.share, row.longest, -self.texts, row)
            # A few alone are kept, as there may be more rows than memory.
            self.best = heapq.nlargest(LISTED, [*self.best, entry])
        # A text without n-grams has no share: 0 would read as clean.
        share = row.share if row.ngrams else None
        return row._asdict() | {"share": share, "class": row.kind, "verdict": row.verdict}


def prepare(config: OverlapConfig) -> Job:
    """Check both sides and the output file; texts are read later."""
    from fsd.data.readers import TextStream

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


def _size(name: str, side: "TextStream") -> Stated:
    count = len(side.files)
    unit = "file" if count == 1 else "files"
    values = {"name": name, "files": count, "bytes": side.size}
    return Stated(f"{name}: {count:,} {unit}, {byte_size(side.size)}", values)


def run(config: OverlapConfig, texts: "TextStream", corpus: "TextStream") -> None:
    """Compare, write, track and print."""
    from extensions.overlap.overlap import Overlap, overlap
    from fsd.leftovers import temporary_folder
    from fsd.progress import progress

    def read(side: "TextStream") -> "Iterator[Passage]":
        for passage in side:
            # The texts are read whole before the corpus, whose bytes are still 0 until then.
            bar.update(texts.done + corpus.done - bar.n)
            yield passage

    summary = Summary()
    # The rows are drawn while they are written: there may be more than the memory holds.
    with stage("comparing"), temporary_folder() as folder, progress(texts.size + corpus.size, "reading", "B") as bar:
        rows = overlap(read(texts), read(corpus), folder, n=config.n)
        example = Summary().add(Overlap("text", 1, 1, 1, answered=True))
        write_rows(map(summary.add, rows), Path(config.out) if config.out else None, example)
    with tracked_run(config, "fsd-overlap", run_name(config.corpus, [config.texts], "overlap")) as tracked:
        deliver(report(summary, config), tracked)


def report(summary: Summary, config: OverlapConfig) -> "Report":
    """How many texts share n-grams, and the texts of which most stands in the corpus."""
    from fsd.evaluation.findings import AGAINST, Finding, as_findings
    from fsd.reporting.report import Report, Section

    # Never by 0: `overlap` refuses texts without any n-gram.
    share = summary.occurring / summary.ngrams
    score = f"{summary.shared:,} of {summary.texts:,}"
    result = (
        f"{score} texts share {config.n} words in a row with the corpus, which has "
        f"{share:.1%} of their {config.n}-grams"
    )
    counts = (
        f"{summary.occurring:,} of {summary.ngrams:,} {config.n}-grams occur there; the longest passage has "
        f"{summary.longest:,} words"
    )
    findings = as_findings([result, counts])
    if summary.shared:
        findings.append(Finding(_classes(summary)))
    if summary.short:
        findings.append(
            Finding(f"{summary.short:,} texts have fewer than {config.n} words and cannot be compared", AGAINST)
        )
    findings.append(
        Finding(
            "a paraphrase or a translation shares no such words: what is not found may be there all the same", AGAINST
        )
    )
    # The other way round, each text of the corpus is looked for in these: how much of it they make up.
    words = ["fsd", "overlap", config.corpus, config.texts]
    corpus_column = config.corpus_column or config.column
    if {corpus_column, config.column} != {"text"}:
        words += ["--column", corpus_column, "--corpus-column", config.column]
    from extensions.overlap.overlap import CONTAMINATED

    metrics = {
        "overlap/texts": summary.shared / summary.texts,
        "overlap/contaminated": summary.verdicts[CONTAMINATED] / summary.texts,
        "overlap/ngrams": share,
        "overlap/longest": summary.longest,
    }
    facts = [("Texts", config.texts), ("Corpus", config.corpus), ("Words of an n-gram", str(config.n))]
    return Report(
        title="Does it stand in the corpus?",
        question=f"Which texts of {config.texts} share {config.n} words in a row with {config.corpus}?",
        findings=findings,
        sections=[Section("Texts of which most stands in the corpus", tables=[_table(summary, config.n)])],
        facts=facts,
        score=score,
        metrics=metrics,
        reader=reader(summary, config.n),
        numbers={
            "found": summary.shared,
            "texts": metrics["overlap/texts"],
            "share": share,
            "longest": summary.longest,
        },
        files={"table": config.out} if config.out else {},
        next=[shlex.join(words)],
    )


def reader(summary: Summary, n: int) -> "Reader":
    """The answer for somebody who is no engineer."""
    from fsd.reporting.report import Reader

    answer = f"{summary.shared:,} of {summary.texts:,} texts share {n} words in a row with the corpus."
    wrong = [
        "The comparison is exact: what it finds stands there. Set phrases and quotations stand in many texts, so that "
        "a match need not be a copy.",
        "A paraphrase or a translation is not found.",
    ]
    compared = (
        f"Every run of {n} words of each text was looked for in the whole corpus, without regard to capitals and "
        f"punctuation. The longest passage that stands in both has {summary.longest:,} words."
    )
    return Reader([answer], wrong, [compared])


def _classes(summary: Summary) -> str:
    """How many texts have each verdict, and each class of match."""
    from extensions.overlap.overlap import ANSWER, BOILERPLATE, MOST, PASSAGE, QUESTION, VERDICTS
    from fsd.data.near_duplicates import COMMON

    meanings = {
        ANSWER: "a passage holds the answer",
        QUESTION: "passages do not hold the answer",
        PASSAGE: "texts without an answer",
        BOILERPLATE: f"words that more than {COMMON} of the texts have",
    }
    verdicts = [f"{summary.verdicts[name]:,} {name}" for name in VERDICTS if summary.verdicts[name]]
    kinds = []
    for name, meaning in meanings.items():
        if summary.kinds[name]:
            kinds.append(f"{summary.kinds[name]:,} {name} ({meaning})")
    line = f"verdicts: {', '.join(verdicts)}; matches: {', '.join(kinds)}"
    if summary.kinds[PASSAGE]:
        line += f"; contaminated without an answer (--answer) is a text of which {MOST:.0%} is there"
    return line


def _table(summary: Summary, n: int) -> "Table":
    """The texts with the largest shares, the largest first."""
    import pandas as pd

    from fsd.reporting.report import Column, Table
    from fsd.statistics.intervals import shortened

    rows = [entry[-1] for entry in summary.best]
    share = Column("share", lambda row: shortened(row.share, ".2f"))
    columns = [
        Column("text", "source"),
        share,
        Column("longest"),
        Column("class", "kind"),
        Column("verdict"),
        Column("where", words=True),
        Column("passage", words=True),
    ]
    frame = pd.DataFrame(rows)
    for heading, name in (("share", "share"), ("class", "kind"), ("verdict", "verdict")):
        frame[heading] = [getattr(row, name) for row in rows]
    return Table(
        rows,
        columns,
        caption=f"Share of the {n}-grams of a text that occur in the corpus; words of the longest passage of "
        "which all do; the first text of the corpus that holds the beginning of that passage.",
        title="texts with the largest shares",
        name="overlap",
        frame=frame,
        kept=(0, 1, 4, 3, 2, 5),
    )


if __name__ == "__main__":
    command(
        OverlapConfig, prepare, __doc__, stages={"data": "files", "comparing": "comparing", "recording": "recording"}
    )
