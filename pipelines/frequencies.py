"""Count the tokens of a reference corpus for the detector dc_pdd.

`python -m pipelines.frequencies --corpus FILE --out TABLE.npz --model MODEL` writes a table for
`pipelines.fsd --frequencies TABLE.npz`. The embedded model has its own. The corpus should resemble the texts to be
scored: DC-PDD (arXiv 2409.14781) uses the English part of C4 and compares other corpora in its Table 4.

Examples:
    fsd frequencies --corpus prose.jsonl --out table.npz --model ./my-model
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from fsd.config import OptionalInt, OptionalName, Paths
from pipelines.common.cli import command

if TYPE_CHECKING:
    from pipelines.common.dry_run import Plan


@dataclass(frozen=True)
class FrequencyConfig:
    """Corpus, tokenizer and output file."""

    corpus: Paths
    """Files (.jsonl, .csv, .txt, also packed; .parquet), or hf://datasets/OWNER/NAME[@REVISION]/PATH (* allowed)."""
    out: Annotated[Path, arg(metavar="PATH")]
    """Output file, .npz."""
    model: Annotated[str, arg(metavar="MODEL")] = "embedded"
    """Model whose tokenizer is used: `embedded`, a folder or a hub id."""
    revision: OptionalName = None
    """Branch, tag or commit of a hub id."""
    column: str = "text"
    """Column of the text in .jsonl, .csv and .parquet files."""
    limit: OptionalInt = None
    """Maximum number of documents. Default: all."""
    tokens: OptionalInt = None
    """Stop after this many tokens, which is slower. Default: all."""


def main(config: FrequencyConfig) -> None:
    """Count the tokens and save the table."""
    from fsd.data.streaming import Corpus
    from fsd.models.language_model import load_tokenizer
    from fsd.progress import progress
    from fsd.scoring.token_counting import count
    from pipelines.common import outcome
    from pipelines.common.output import check_path

    _check_ending(config.out)
    corpus = Corpus(config.corpus, config.column)
    check_path(config.out, [file.url for file in corpus.files], create_folder=True)
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
    headline = f"{table.tokens:,} tokens of {table.documents:,} documents; {seen:,} of {vocabulary:,} tokens occur"
    size = f"table: {config.out} ({config.out.stat().st_size / 1e3:.0f} kB), for the tokenizer of {config.model}"
    found = outcome.Outcome(headline, notes=[size], files={"table": config.out})
    outcome.show(found, None, lambda: print(headline, size, sep="\n"))


def plan(config: FrequencyConfig) -> "Plan":
    """What would be counted; the size of files on the hub is not asked for."""
    from fsd.data.streaming import Corpus
    from pipelines.common import dry_run
    from pipelines.common.output import check_path

    _check_ending(config.out)
    local = [file for file in config.corpus if not str(file).startswith("hf:")]
    corpus = Corpus(local, config.column) if local or not config.corpus else None
    if config.out.parent.is_dir():
        check_path(config.out, [file.url for file in corpus.files] if corpus else [])
    size = f", {dry_run.byte_size(corpus.size)}" if corpus and len(local) == len(config.corpus) else ""
    most = [f"{number:,} {name}" for name, number in (("documents", config.limit), ("tokens", config.tokens)) if number]
    where = "" if dry_run.on_this_machine(config.model) else ", to be downloaded"
    return dry_run.Plan(
        {
            "corpus": dry_run.files(map(str, config.corpus)) + size,
            "at most": " and ".join(most) or "everything",
            "tokenizer": f"{config.model}{where}",
        },
        writes=[str(config.out)],
        notes=[] if len(local) == len(config.corpus) else ["files on the hub are streamed; their sizes are unknown"],
    )


def _check_ending(out: Path) -> None:
    """Check the name of the table.

    Raises:
        UsageError: if it does not end in .npz.
    """
    from fsd.errors import UsageError

    if out.suffix != ".npz":
        raise UsageError(f"out must be a file that ends in .npz; got {out}")


def _name(url: str) -> str:
    """Name of a corpus file in the table: the address with the commit on the hub, the bare file name on disk."""
    return url if url.startswith("hf:") else Path(url).name


if __name__ == "__main__":
    command(FrequencyConfig, main, __doc__ or "", plan=plan)
