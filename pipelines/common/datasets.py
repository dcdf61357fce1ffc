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
"""Domain of the embedded corpus."""


@dataclass(frozen=True)
class LabelledTexts:
    """The labelled texts of a run.

    Attributes:
        documents: members and non-members.
        sources: file, embedded corpus or published benchmark → its version.
    """

    documents: list[Document]
    sources: dict[str, str]


def load_texts(data: DataConfig, model: ModelConfig) -> LabelledTexts:
    """Load the user's files, the embedded corpus, or the published benchmark of the domain.

    Raises:
        UsageError: for an unknown domain, files that cannot be read, a benchmark that cannot be reached, or texts that
            are members and non-members at once.
    """
    domain = domains.load(data.domain)
    if data.data:
        labelled = _files_and_benchmarks(data)
    elif model.model == "embedded" and data.domain == EMBEDDED_DOMAIN:
        labelled = LabelledTexts(list(embedded.corpus()), {"embedded corpus": _digest(embedded.CORPUS)})
    elif model.model == "embedded":
        raise UsageError(
            f"domain {data.domain} must come with --data FILE, or with --model for its published benchmark; "
            f"the embedded model has texts of {EMBEDDED_DOMAIN} only"
        )
    elif not domain.benchmark:
        raise UsageError(f"domain {data.domain} must come with --data FILE; it has no published benchmark of its own")
    else:
        locate(model.model, model.revision)  # a missing model is reported before its benchmark is downloaded
        labelled = _published([domain.benchmark])
    refuse_shared(labelled.documents)
    return labelled


def _files_and_benchmarks(data: DataConfig) -> LabelledTexts:
    """All entries of `--data` together: files, and published benchmarks by name."""
    published = _published([entry for entry in data.data if benchmarks.is_name(entry)])
    files = [entry for entry in data.data if not benchmarks.is_name(entry)]
    documents = read_files(files, parse_columns(data.columns), labelled=True) if files else []
    return LabelledTexts(documents + published.documents, {f: _digest(Path(f)) for f in files} | published.sources)


def _published(names: Sequence[str]) -> LabelledTexts:
    loaded = {name: benchmarks.load(name) for name in names}
    return LabelledTexts(
        [document for benchmark in loaded.values() for document in benchmark.documents],
        {f"{name} ({benchmark.source})": benchmark.revision for name, benchmark in loaded.items()},
    )


def _digest(file: Path) -> str:
    return "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def split_texts(documents: Sequence[Document], data: DataConfig, seed: int) -> tuple[Split, list[str]]:
    """Split the texts into unseen, validation and test, with remarks for the report.

    Raises:
        UsageError: for shares out of range, an unseen file that cannot be read, or too few texts for a part.
    """
    if not isinstance(data.unseen, str):
        return split(documents, unseen=data.unseen, validation=data.validation, scheme=data.split, seed=seed), []
    if data.split == "paper":
        raise UsageError("split must be grouped where unseen is a file; got paper")
    parts, related = split_with(read_files([data.unseen]), documents, validation=data.validation, seed=seed)
    remark = f"{len(related)} texts of the benchmark left out: related to a text in {data.unseen}"
    return parts, [remark] if related else []


def with_adapter_texts(parts: Split, adapter: str | None) -> Split:
    """The split whose unseen texts are those that the reused adapter, if any, was trained on (as far as recorded).

    The audit then reports which of them are in validation or test, and `recall` takes its prefix from them.
    """
    from fsd import tracking

    file = distributed.from_main(lambda: tracking.fetch_model_file(adapter, UNSEEN)) if adapter else None
    if file is None:
        return parts
    return parts._replace(unseen=tuple(replace(document, member=False) for document in read_files([file])))
