"""Count the tokens of a reference corpus for the detector dc_pdd.

`fsd frequencies --corpus FILE --out TABLE.npz --model MODEL` writes a table for
`fsd run --frequencies TABLE.npz`. The embedded model has its own. The corpus should resemble the texts to be
scored: DC-PDD (arXiv 2409.14781) uses the English part of C4 and compares other corpora in its Table 4.

Examples:
    fsd frequencies --corpus prose.jsonl --out table.npz --model ./my-model
"""

import shlex
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from fsd.config import OptionalInt, OptionalName, Paths, ShardConfig
from pipelines.command.cli import command
from pipelines.command.context import stage
from pipelines.command.deliver import show
from pipelines.command.job import Job, Stated, byte_size, files, on_this_machine
from pipelines.command.output import check_parent, check_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsd.data.cells import Row
    from pipelines.command.workers import Worker

TABLE = "_frequencies.npz"


@dataclass(frozen=True)
class FrequencyConfig:
    """Corpus, tokenizer and output file."""

    corpus: Paths
    """Files (.jsonl, .csv, .txt, also packed; .parquet), or hf://datasets/OWNER/NAME[@REVISION]/PATH (* allowed)."""
    out: Annotated[Path, arg(metavar="PATH")]
    """Output file, .npz; or a folder of shards, which gets _frequencies.npz at the end."""
    shards: ShardConfig = field(default_factory=ShardConfig)
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
    document_tokens: OptionalInt = None
    """Count only the first tokens of each document, which is slower; 1024 in the code of DC-PDD. Default: all."""


def prepare(config: FrequencyConfig) -> Job:
    """Check the corpus and the output file; the size of files on the hub is asked for when they are read."""
    from fsd.data.passages import TextStream
    from fsd.errors import UsageError
    from fsd.plugs import first
    from pipelines.command.workers import RowWork

    if config.out.suffix != ".npz":
        # One part of the corpus does not know how much was counted of the others.
        together = {"limit": config.limit, "tokens": config.tokens}
        checks = [partial(check_settings, config)]
        total = partial(_total, config)
        work = RowWork("frequencies", "pipelines.frequencies", config, config.corpus, together, total, checks)
        job: Job | None = first("compute", work)
        if job is None:
            raise UsageError(f"out must be a file that ends in .npz; got {config.out}")
        return job
    # Without the network: a dry run, or a mistake on the command line, asks nobody for anything.
    local = [file for file in config.corpus if not str(file).startswith("hf:")]
    words = ""
    sizes = {}
    inputs = []
    notes = []
    if len(local) < len(config.corpus):
        notes.append("files on the hub are streamed; their sizes are unknown")
    if local or not config.corpus:  # an empty list is refused by `TextStream`
        corpus = TextStream(local, config.column)
        inputs = [file.url for file in corpus.files]
        if not notes:
            words = f", {byte_size(corpus.size)}"
            sizes = {"bytes": corpus.size}
    # A folder that does not exist yet is made when the table is written.
    if config.out.parent.is_dir():
        check_path(config.out, inputs)
    tokenizer = config.model
    if not on_this_machine(tokenizer):
        tokenizer += ", to be downloaded"
    reads = {
        "corpus": files(config.corpus, None, words, **sizes),
        "at most": _limits(config),
        "tokenizer": Stated(tokenizer, config.model),
    }
    checks = [partial(check_settings, config), partial(check_corpus, config)]
    return Job(partial(run, config), reads, writes=[config.out], notes=notes, checks=checks)


def _limits(config: FrequencyConfig) -> Stated:
    """How much of the corpus is counted."""
    limits = []
    if config.limit:
        limits.append(f"{config.limit:,} documents")
    if config.tokens:
        limits.append(f"{config.tokens:,} tokens")
    if config.document_tokens:
        limits.append(f"the first {config.document_tokens:,} tokens of each document")
    return Stated(
        " and ".join(limits) or "everything",
        {"documents": config.limit, "tokens": config.tokens, "tokens_a_document": config.document_tokens},
    )


def check_settings(config: FrequencyConfig) -> None:
    """Refuse limits without a meaning, and a tokenizer that is none."""
    from fsd.errors import at_least
    from fsd.net.hub import check_tokenizer_located

    at_least(1, **{"limit of documents": config.limit, "limit of tokens": config.tokens})
    check_tokenizer_located(config.model, config.revision)


def check_corpus(config: FrequencyConfig) -> None:
    """Refuse files whose names tell no format that can be read, and the output file."""
    from fsd.data.passages import check_endings

    check_parent(config.out)
    check_endings(config.corpus)


def run(config: FrequencyConfig) -> None:
    """Count the tokens and save the table."""
    with stage("counting"):
        from fsd.data.passages import TextStream
        from fsd.errors import counted
        from fsd.evaluation.findings import Finding
        from fsd.models.language_model import load_tokenizer
        from fsd.progress import progress
        from fsd.reporting.report import Report
        from fsd.scoring.token_counting import count

        corpus = TextStream(config.corpus, config.column)
        urls = [file.url for file in corpus.files]
        # Now with the files on the hub, which `prepare` does not ask for, and before hours of counting.
        check_path(config.out, urls, create_folder=True)
        tokenizer, vocabulary = load_tokenizer(config.model, revision=config.revision)
        with progress(corpus.size, "counting", "B") as bar:
            table = count(
                corpus,
                tokenizer,
                vocabulary,
                model=config.model,
                corpus=_names(urls),
                documents=config.limit,
                tokens=config.tokens,
                document_tokens=config.document_tokens,
                advance=lambda: bar.update(corpus.done - bar.n),
            )
        table.save(config.out)
    occurring = int((table.counts > 0).sum())
    size = config.out.stat().st_size / 1e3
    read = f"{table.tokens:,} tokens of {counted(table.documents, 'document')}"
    headline = f"{read}; {occurring:,} of {vocabulary:,} tokens occur"
    note = Finding(f"table: {config.out} ({size:.0f} kB), for the tokenizer of {config.model}")
    command = shlex.join(["fsd", "run", "--model", config.model, "--frequencies", str(config.out)])
    show(Report(headline=headline, findings=[note], files={"table": config.out}, next=[command]))


def _names(urls: "Iterable[str]") -> str:
    """The corpus as the table names it: the addresses on the hub, with the commit, and bare names of files on disk."""
    # A table is shared; the folders of whoever made it are nobody's concern.
    names = []
    for url in urls:
        name = url if "://" in url else Path(url).name
        names.append(name)
    return ", ".join(names)


def open_worker(config: FrequencyConfig) -> "Worker":
    """What counts the tokens of the shards of an output folder."""
    import numpy as np
    import pandas as pd

    from fsd.data.passages import passages
    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.token_counting import Tally
    from fsd.scoring.token_frequencies import fingerprint
    from pipelines.command.workers import Worker

    tokenizer, vocabulary = load_tokenizer(config.model, revision=config.revision)

    def table(rows: "list[tuple[str, Row]]") -> pd.DataFrame:
        texts = []
        for origin, row in rows:
            # From the right, as an address has a colon too.
            url, _, line = origin.rpartition(":")
            texts += [passage.text for passage in passages(url, iter([(int(line), row)]), config.column)]
        tally = Tally(tokenizer.backend_tokenizer, vocabulary, config.document_tokens)
        tally.add(texts)
        # Most tokens do not occur in a shard.
        token = np.flatnonzero(tally.counts)
        return pd.DataFrame({"token": token, "count": tally.counts[token], "documents": sum(map(bool, texts))})

    return Worker({"tokenizer": fingerprint(tokenizer), "vocabulary": str(vocabulary)}, table)


def _total(config: FrequencyConfig, folder: Path, tables: "Sequence[Path]", inputs: "Sequence[str]") -> dict[str, Path]:
    """The table of the whole corpus."""
    import numpy as np
    import pandas as pd

    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.token_frequencies import FrequencyTable, fingerprint

    tokenizer, vocabulary = load_tokenizer(config.model, revision=config.revision)
    counts = np.zeros(vocabulary, np.int64)
    documents = 0
    for table in tables:
        part = pd.read_parquet(table)
        counts[part["token"]] += part["count"]
        # Every row has the number of the whole shard; one without any token has no rows.
        documents += max(part["documents"], default=0)
    path = folder / TABLE
    FrequencyTable(counts, fingerprint(tokenizer), config.model, _names(inputs), documents).save(path)
    return {"table": path}


if __name__ == "__main__":
    command(FrequencyConfig, prepare, __doc__, stages={"data": "corpus", "counting": "counting"})
