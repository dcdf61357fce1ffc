"""The labelled texts of a run: read from files, the embedded corpus or published benchmarks, and split."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsd import distributed
from fsd.collection import domains
from fsd.config import DataConfig, ModelConfig
from fsd.data import benchmarks, embedded
from fsd.data.documents import Document, refuse_shared
from fsd.data.readers import parse_columns, read_files
from fsd.data.splitting import Split, split, split_with
from fsd.errors import UsageError
from fsd.net.hub import locate
from pipelines.common.adapter_files import UNSEEN

EMBEDDED_DOMAIN = "arxiv"


@dataclass(frozen=True)
class Gathered:
    """The labelled texts of a run, and which files or published benchmarks they are from, in which version."""

    documents: list[Document]
    sources: dict[str, str]


def gather(data: DataConfig, model: ModelConfig) -> Gathered:
    """The labelled texts: the user's files, the embedded corpus, or published benchmarks.

    Raises:
        UsageError: for an unknown domain, files that cannot be read, a benchmark that cannot be reached, or one
            whose sides share texts.
    """
    domain = domains.load(data.domain)
    if data.data:
        found = _entries(data)
    elif model.model == "embedded" and data.domain == EMBEDDED_DOMAIN:
        found = Gathered(list(embedded.corpus()), {"embedded corpus": _digest(embedded.CORPUS)})
    elif model.model == "embedded":
        raise UsageError(
            f"domain {data.domain} must come with --data FILE, or with --model for its published benchmark; "
            f"the embedded model has texts of {EMBEDDED_DOMAIN} only"
        )
    elif not hasattr(domain.module, "BENCHMARK"):
        raise UsageError(f"domain {data.domain} must come with --data FILE; it has no published benchmark of its own")
    else:
        locate(model.model, model.revision)  # a model that is not there is told before its benchmark is fetched
        found = _published([domain.module.BENCHMARK])
    refuse_shared(found.documents)
    return found


def _entries(data: DataConfig) -> Gathered:
    """Files and names of published benchmarks, as one benchmark."""
    published = _published([entry for entry in data.data if benchmarks.is_name(entry)])
    files = [entry for entry in data.data if not benchmarks.is_name(entry)]
    documents = read_files(files, parse_columns(data.columns), labelled=True) if files else []
    return Gathered(documents + published.documents, {f: _digest(Path(f)) for f in files} | published.sources)


def _published(names: Sequence[str]) -> Gathered:
    loaded = {name: benchmarks.load(name) for name in names}
    return Gathered(
        [document for benchmark in loaded.values() for document in benchmark.documents],
        {f"{name} ({benchmark.source})": benchmark.revision for name, benchmark in loaded.items()},
    )


def _digest(file: Path) -> str:
    return "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def divide(documents: Sequence[Document], data: DataConfig, seed: int) -> tuple[Split, list[str]]:
    """The benchmark split as the settings say, and what there is to say about it.

    Raises:
        UsageError: for shares out of range, unseen files that cannot be read, or too few texts for a part.
    """
    if not isinstance(data.unseen, str):
        return split(documents, unseen=data.unseen, validation=data.validation, scheme=data.split, seed=seed), []
    if data.split == "paper":
        raise UsageError("split must be grouped where unseen is a file; got paper")
    given = split_with(read_files([data.unseen]), documents, validation=data.validation, seed=seed)
    dropped = len(given.left_out)
    told = [f"{dropped} texts of the benchmark left out: related to a text in {data.unseen}"] if dropped else []
    return given.parts, told


def trained_on(parts: Split, adapter: str | None) -> Split:
    """The split with the texts that a reused adapter was trained on in place of its unseen part, if they are known.

    The audit then finds what of them lies in validation or test, and recall takes its prefix from them.
    """
    from fsd import tracking

    file = distributed.from_main(lambda: tracking.fetch_model_file(adapter, UNSEEN)) if adapter else None
    return (
        parts._replace(unseen=tuple(replace(document, member=False) for document in read_files([file])))
        if file
        else parts
    )
