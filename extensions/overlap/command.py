"""How much of these texts stands in that corpus, word for word? 13-grams of words, exactly, without a model.

Each side is a file or a folder of files, read as a stream. Words are lower-cased and without punctuation.

Examples:
    fsd overlap benchmark.jsonl corpus --out overlap.parquet
    fsd overlap questions.jsonl pile.jsonl.zst --column question --corpus-column text
    fsd overlap lm-eval:arc_easy corpus
    fsd overlap exam.csv corpus --column "{question} {answer}" --answer answer --corpus-column text
"""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from fsd.api import OptionalName, OptionalPath
from pipelines.api import command, deferred


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


if __name__ == "__main__":
    command(
        OverlapConfig,
        deferred("extensions.overlap.report"),
        __doc__,
        stages={"data": "files", "comparing": "comparing", "recording": "recording"},
    )
