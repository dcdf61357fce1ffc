"""Count the tokens of a reference corpus for the detector dc_pdd.

`fsd frequencies --corpus FILE --out TABLE.npz --model MODEL` writes a table for
`fsd run --frequencies TABLE.npz`. The embedded model has its own. The corpus should resemble the texts to be
scored: DC-PDD (arXiv 2409.14781) uses the English part of C4 and compares other corpora in its Table 4.

Examples:
    fsd frequencies --corpus prose.jsonl --out table.npz --model ./my-model
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from fsd.config import OptionalInt, OptionalName, Paths, ShardConfig
from pipelines.common.cli import command
from pipelines.common.job import Job, byte_size, files, on_this_machine, show, stage
from pipelines.common.output import check_path

if TYPE_CHECKING:
    from fsd.data.readers import Row
    from pipelines.common.shards import Folder, Worker

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


def prepare(config: FrequencyConfig) -> Job:
    """Check the corpus and the output file; the size of files on the hub is asked for when they are read."""
    from fsd.data.readers import Corpus
    from fsd.errors import UsageError
    from pipelines.common import shards

    if config.out.suffix != ".npz" and shards.wanted(config.out, config.shards):
        shards.refuse(limit=config.limit, tokens=config.tokens)
        work = shards.Work("pipelines.frequencies", config)
        return shards.job("frequencies", work, config.corpus, finish=partial(_total, config))
    if config.out.suffix != ".npz":
        raise UsageError(f"out must be a file that ends in .npz; got {config.out}")
    local = [file for file in config.corpus if not str(file).startswith("hf:")]
    corpus = Corpus(local, config.column) if local or not config.corpus else None
    if config.out.parent.is_dir():
        check_path(config.out, [file.url for file in corpus.files] if corpus else [])
    size = f", {byte_size(corpus.size)}" if corpus and len(local) == len(config.corpus) else ""
    most = [f"{number:,} {name}" for name, number in (("documents", config.limit), ("tokens", config.tokens)) if number]
    where = "" if on_this_machine(config.model) else ", to be downloaded"
    return Job(
        partial(run, config),
        {
            "corpus": files(config.corpus) + size,
            "at most": " and ".join(most) or "everything",
            "tokenizer": f"{config.model}{where}",
        },
        writes=[config.out],
        notes=[] if len(local) == len(config.corpus) else ["files on the hub are streamed; their sizes are unknown"],
    )


def run(config: FrequencyConfig) -> None:
    """Count the tokens and save the table."""
    with stage("counting"):
        from fsd.data.readers import Corpus
        from fsd.models.language_model import load_tokenizer
        from fsd.progress import progress
        from fsd.reporting.report import Report
        from fsd.scoring.token_frequencies import count

        corpus = Corpus(config.corpus, config.column)
        check_path(config.out, [file.url for file in corpus.files], create_folder=True)
        tokenizer, vocabulary = load_tokenizer(config.model, revision=config.revision)
        # addresses with the commit on the hub, bare names of files on disk
        names = (file.url if file.url.startswith("hf:") else Path(file.url).name for file in corpus.files)
        with progress(corpus.size, "counting", "B") as bar:
            table = count(
                corpus,
                tokenizer,
                vocabulary,
                model=config.model,
                corpus=", ".join(names),
                documents=config.limit,
                tokens=config.tokens,
                advance=lambda: bar.update(corpus.done - bar.n),
            )
        table.save(config.out)
    seen = int((table.counts > 0).sum())
    headline = f"{table.tokens:,} tokens of {table.documents:,} documents; {seen:,} of {vocabulary:,} tokens occur"
    size = f"table: {config.out} ({config.out.stat().st_size / 1e3:.0f} kB), for the tokenizer of {config.model}"
    show(Report(headline=headline, findings=[size], files={"table": config.out}))


def open_worker(config: FrequencyConfig) -> "Worker":
    """What counts the tokens of the shards of an output folder."""
    import numpy as np
    import pandas as pd

    from fsd.data.readers import passages
    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.token_frequencies import Tally, fingerprint
    from pipelines.common.shards import Worker

    tokenizer, vocabulary = load_tokenizer(config.model, revision=config.revision)

    def table(rows: "list[tuple[str, Row]]") -> pd.DataFrame:
        found = []
        for origin, row in rows:
            url, _, line = origin.rpartition(":")
            found += [passage.text for passage in passages(url, iter([(int(line), row)]), config.column)]
        tally = Tally(tokenizer.backend_tokenizer, vocabulary)
        tally.add(found)
        token = np.flatnonzero(tally.total())
        return pd.DataFrame({"token": token, "count": tally.counts[token], "documents": sum(map(bool, found))})

    return Worker({"tokenizer": fingerprint(tokenizer), "vocabulary": str(vocabulary)}, table)


def _total(config: FrequencyConfig, folder: "Folder") -> dict[str, Path]:
    import numpy as np
    import pandas as pd

    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.token_frequencies import FrequencyTable, fingerprint

    tokenizer, vocabulary = load_tokenizer(config.model, revision=config.revision)
    counts, documents = np.zeros(vocabulary, np.int64), 0
    for shard in folder.shards:
        part = pd.read_parquet(folder.path / shard.name)
        counts[part["token"]] += part["count"]
        documents += int(part["documents"].max()) if len(part) else 0
    names = (file.url if "://" in file.url else Path(file.url).name for file in folder.inputs)
    table = FrequencyTable(counts, fingerprint(tokenizer), config.model, ", ".join(names), documents)
    table.save(folder.path / TABLE)
    return {"table": folder.path / TABLE}


if __name__ == "__main__":
    command(FrequencyConfig, prepare, __doc__ or "", stages={"data": "corpus", "counting": "counting"})
