"""Count the tokens of a reference corpus for DC-PDD: python -m pipelines.frequencies --help.

The embedded model brings its table; for any other model, count one over text like the texts to be judged (DC-PDD
uses C4's English; its Table 4 compares others) and hand it to the detector.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Frequencies:
    """Count how often each token of a model's vocabulary occurs in a corpus."""

    corpus: tuple[str, ...]
    """Files: .jsonl, .csv, .txt (each also .gz, .zst, .bz2) or .parquet; a .txt file is one document. Of a dataset on
    the hub: hf://datasets/OWNER/NAME[@REVISION]/PATH, with * in PATH for several; they are streamed, not kept."""
    out: Path
    """The table to write, .npz; it is small and can be shared."""
    model: str = "embedded"
    """Model whose tokenizer counts: embedded, a local folder or a hub id."""
    revision: str | None = None
    """Branch, tag or commit of a hub id."""
    column: str = "text"
    """Where the text stands in .jsonl, .csv and .parquet."""
    limit: int | None = None
    """Most documents to count; none counts all."""
    tokens: int | None = None
    """Stop once this many tokens are counted; slower. None counts all."""


def main(config: Frequencies) -> None:
    """Count, save, and say what was counted."""
    from fsd.data.streaming import Corpus
    from fsd.errors import UsageError
    from fsd.models.language_model import load_tokenizer
    from fsd.progress import progress
    from fsd.scoring.token_counting import count

    if config.out.suffix != ".npz":
        raise UsageError(f"out must be a file that ends in .npz; got {config.out}")
    corpus = Corpus(config.corpus, config.column)
    tokenizer, vocabulary = load_tokenizer(config.model, revision=config.revision)
    with progress(corpus.size, "counting", "B") as bar:
        table = count(
            corpus,
            tokenizer,
            vocabulary,
            model=config.model,
            corpus=", ".join(_name(file.url) for file in corpus.files),
            documents=config.limit,
            tokens=config.tokens,
            advance=lambda: bar.update(corpus.done - bar.n),
        )
    table.save(config.out)
    seen = int((table.counts > 0).sum())
    print(f"{table.tokens:,} tokens of {table.documents:,} documents; {seen:,} of {vocabulary:,} tokens occur")
    print(f"table: {config.out} ({config.out.stat().st_size / 1e3:.0f} kB), for the tokenizer of {config.model}")


def _name(url: str) -> str:
    """A file's name for the record: of one on the hub its address, with the commit; of one on disk no folders."""
    return url if url.startswith("hf:") else Path(url).name


if __name__ == "__main__":
    from pipelines.common.cli import command

    command(Frequencies, main, "Count the tokens of a reference corpus for DC-PDD.")
