"""How much of these texts stands in that corpus, word for word? 13-grams of words, exactly, without a model.

Each side is a file or a folder of files, read as a stream. Words are lower-cased and without punctuation.

Examples:
    fsd overlap benchmark.jsonl corpus --out overlap.parquet
    fsd overlap questions.jsonl pile.jsonl.zst --column question --corpus-column text
    fsd overlap lm-eval:arc_easy corpus
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from fsd.config import OptionalName, OptionalPath
from fsd.errors import UsageError, at_least
from pipelines.common.cli import command
from pipelines.common.job import Job, byte_size, deliver, run_name, stage, tracked_run
from pipelines.common.output import check_path, write_rows

if TYPE_CHECKING:
    from fsd.data.overlap import Overlap
    from fsd.data.readers import Corpus, Passage
    from fsd.reporting.report import Report

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
    """Output file, .parquet: one row a text, with its share, the longest passage and where that is."""
    n: int = 13
    """Words of an n-gram; 13 is that of GPT-3 and of most reports on contamination."""
    column: str = "text"
    """Column of the texts."""
    corpus_column: OptionalName = None
    """Column of the corpus. Default: that of the texts."""


@dataclass
class Summary:
    """Sums over the rows, and those with the largest shares."""

    texts: int = 0
    short: int = 0
    shared: int = 0
    ngrams: int = 0
    found: int = 0
    longest: int = 0
    best: "list[tuple[float, int, int, Overlap]]" = field(default_factory=list)

    def add(self, row: "Overlap") -> dict[str, Any]:
        """Add a row, and give it as a row of the output file."""
        self.texts += 1
        self.short += not row.ngrams
        self.shared += row.found > 0
        self.ngrams += row.ngrams
        self.found += row.found
        self.longest = max(self.longest, row.longest)
        if row.found:
            entry = (row.share, row.longest, -self.texts, row)
            (heapq.heappush if len(self.best) < LISTED else heapq.heappushpop)(self.best, entry)
        return row._asdict() | {"share": row.share if row.ngrams else None}


def prepare(config: OverlapConfig) -> Job:
    """Check both sides and the output file; texts are read later."""
    from fsd.data.readers import Corpus

    at_least(1, n=config.n)
    sides = Corpus([config.texts], config.column), Corpus([config.corpus], config.corpus_column or config.column)
    if config.out:
        if not config.out.endswith(".parquet"):
            raise UsageError(f"out must be a file that ends in .parquet; got {config.out}")
        check_path(Path(config.out), [file.url for side in sides for file in side.files])
    reads = {
        name: f"{getattr(config, name)}: {len(side.files):,} {'file' if len(side.files) == 1 else 'files'}, "
        f"{byte_size(side.size)}"
        for name, side in zip(("texts", "corpus"), sides, strict=True)
    }
    return Job(partial(run, config, *sides), reads, writes=[config.out], experiment="fsd-overlap")


def run(config: OverlapConfig, texts: "Corpus", corpus: "Corpus") -> None:
    """Compare, write, track and print."""
    from fsd.data.overlap import overlap
    from fsd.leftovers import temporary_folder
    from fsd.progress import progress

    def read(side: "Corpus", before: int) -> "Iterator[Passage]":
        for passage in side:
            bar.update(before + side.done - bar.n)
            yield passage

    summary = Summary()
    with stage("comparing"), temporary_folder() as folder, progress(texts.size + corpus.size, "reading", "B") as bar:
        found = overlap(read(texts, 0), read(corpus, texts.size), folder, n=config.n)
        write_rows(map(summary.add, found), Path(config.out) if config.out else None)
    with tracked_run(config, "fsd-overlap", run_name(config.corpus, [config.texts], "overlap")) as tracked:
        deliver(report(summary, config), tracked)


def report(summary: Summary, config: OverlapConfig) -> "Report":
    """How many texts share n-grams, and the texts of which most stands in the corpus."""
    import pandas as pd

    from fsd.evaluation.metrics import shortened
    from fsd.reporting.report import Against, Column, Report, Section, Table

    rows = [row for *_, row in sorted(summary.best, reverse=True)]
    frame = pd.DataFrame([row._asdict() | {"share": row.share} for row in rows])
    share = summary.found / summary.ngrams
    table = Table(
        rows,
        [
            Column("text", "source"),
            Column("share", lambda row: shortened(row.share, ".2f")),
            Column("longest", "longest"),
            Column("where", "where", words=True),
            Column("passage", "passage", words=True),
        ],
        caption=f"Share of the {config.n}-grams of a text that occur in the corpus; words of the longest passage of "
        "which all do; the first text of the corpus that holds the beginning of that passage.",
        title="texts with the largest shares",
        name="overlap",
        frame=frame,
        kept=(0, 1, 2, 3),
    )
    theirs = config.corpus_column or config.column
    columns = f" --column {theirs} --corpus-column {config.column}" if {theirs, config.column} != {"text"} else ""
    short = f"{summary.short:,} texts have fewer than {config.n} words and cannot be compared"
    return Report(
        title="Does it stand in the corpus?",
        question=f"Which texts of {config.texts} share {config.n} words in a row with {config.corpus}?",
        findings=[
            f"{summary.shared:,} of {summary.texts:,} texts share {config.n} words in a row with the corpus, which has "
            f"{share:.1%} of their {config.n}-grams",
            f"{summary.found:,} of {summary.ngrams:,} {config.n}-grams occur there; the longest passage has "
            f"{summary.longest:,} words",
            *([Against(short)] if summary.short else []),
            Against("a paraphrase or a translation shares no such words: what is not found may be there all the same"),
        ],
        sections=[Section("Texts of which most stands in the corpus", tables=[table])],
        facts=[("Texts", config.texts), ("Corpus", config.corpus), ("Words of an n-gram", str(config.n))],
        score=f"{summary.shared:,} of {summary.texts:,}",
        metrics={
            "overlap/texts": summary.shared / summary.texts,
            "overlap/ngrams": share,
            "overlap/longest": summary.longest,
        },
        files={"table": config.out} if config.out else {},
        next=[f"fsd overlap {config.corpus} {config.texts}{columns}"],
    )


if __name__ == "__main__":
    command(
        OverlapConfig,
        prepare,
        __doc__ or "",
        stages={"data": "files", "comparing": "comparing", "recording": "recording"},
    )
