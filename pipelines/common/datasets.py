"""The labelled texts of a run: read from files, the embedded corpus or published benchmarks, and split."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsd import distributed
from fsd.collection import domains
from fsd.config import CleaningConfig, DataConfig, FSDConfig, ModelConfig
from fsd.data import benchmarks, embedded, splitting
from fsd.data.documents import Document
from fsd.data.near_duplicates import drop_contradictions, refuse_contradictions
from fsd.data.readers import RowError, parse_columns, read_files, read_texts
from fsd.data.splitting import Split, split, split_with
from fsd.errors import UsageError
from fsd.net.hub import locate
from pipelines.common.adapter_files import UNSEEN

EMBEDDED_MODEL = "embedded"
"""The default model: the embedded one of the domain."""


@dataclass(frozen=True)
class LabelledTexts:
    """The labelled texts of a run.

    Attributes:
        documents: members and non-members.
        sources: file, embedded corpus or published benchmark → its version.
        remarks: what was left out, for the report.
    """

    documents: list[Document]
    sources: dict[str, str]
    remarks: tuple[str, ...] = ()


def with_embedded_model(config: FSDConfig) -> FSDConfig:
    """The configuration with the embedded model of the domain, where neither a model nor texts are given."""
    corpus = embedded.CORPORA.get(config.data.domain)
    if corpus is None or config.data.data or config.model.model != EMBEDDED_MODEL:
        return config
    return replace(config, model=replace(config.model, model=corpus.model))


def load_texts(data: DataConfig, model: ModelConfig) -> LabelledTexts:
    """Load the user's files, the embedded corpus, or the published benchmark of the domain."""
    cutoff = splitting.parse_cutoff(data.cutoff)
    domain = domains.load(data.domain)
    if data.data:
        labelled = _files_and_benchmarks(data)
    elif data.domain in embedded.CORPORA and model.model == embedded.CORPORA[data.domain].model:
        file = embedded.CORPORA[data.domain].file
        labelled = LabelledTexts(list(embedded.corpus(data.domain)), {"embedded corpus": _digest(file)})
    elif model.model == EMBEDDED_MODEL:
        raise UsageError(
            f"domain {data.domain} must come with --data FILE, or with --model for its published benchmark; "
            f"embedded models have texts of {' and '.join(embedded.CORPORA)} only"
        )
    elif not domain.benchmark:
        raise UsageError(f"domain {data.domain} must come with --data FILE; it has no published benchmark of its own")
    else:
        locate(model.model, model.revision)  # a missing model is reported before its benchmark is downloaded
        labelled = _published([domain.benchmark])
    documents, remarks = resolve_contradictions(labelled.documents, data.cleaning)
    documents = splitting.with_periods(documents, cutoff)
    return replace(labelled, documents=documents, remarks=(*labelled.remarks, *remarks))


def read_own(
    files: Sequence[str], columns: str, cleaning: CleaningConfig, *, labelled: bool = False
) -> tuple[list[Document], list[str]]:
    """The user's texts, with remarks for the report."""
    skipped = Counter[str]() if cleaning.skip_invalid else None
    named = parse_columns(columns)
    try:
        if labelled:
            documents = read_files(files, named, labelled=True, skipped=skipped)
        else:
            documents = read_texts(files, named, skipped=skipped)
    except RowError as error:
        raise UsageError(f"{error}; leave out such rows, and count them, by --skip-invalid") from error
    return documents, _left_out("files", skipped or {})


def read_cleaned(files: Sequence[str], columns: str, cleaning: CleaningConfig) -> tuple[list[Document], list[str]]:
    """The user's texts, with or without labels, as by `read_own` and then `resolve_contradictions`."""
    documents, skipped = read_own(files, columns, cleaning)
    documents, dropped = resolve_contradictions(documents, cleaning)
    return documents, [*skipped, *dropped]


def resolve_contradictions(documents: Sequence[Document], cleaning: CleaningConfig) -> tuple[list[Document], list[str]]:
    """Refuse texts labelled both 1 and 0, or leave them out with a remark; see `fsd.data.near_duplicates`."""
    if cleaning.near_duplicates == "refuse":
        refuse_contradictions(documents, "; leave them out on both sides by --near-duplicates drop")
        return list(documents), []
    kept, count = drop_contradictions(documents)
    return kept, _left_out("texts", {benchmarks.BOTH_LABELS: count} if count else {})


def _left_out(name: str, reasons: Mapping[str, int]) -> list[str]:
    return [f"{name}: {count:,} left out: {reason}" for reason, count in reasons.items()]


def _files_and_benchmarks(data: DataConfig) -> LabelledTexts:
    """All entries of `--data` together: files, and published benchmarks by name."""
    published = _published([entry for entry in data.data if benchmarks.is_name(entry)])
    files = [entry for entry in data.data if not benchmarks.is_name(entry)]
    documents, remarks = read_own(files, data.columns, data.cleaning, labelled=True) if files else ([], [])
    sources = {f: _digest(Path(f)) for f in files} | published.sources
    known = published.documents
    if data.cutoff is None and not all(document.period for document in (*documents, *known)):
        known = [replace(document, period="") for document in known]  # periods of one side alone say nothing
    return LabelledTexts(documents + known, sources, (*remarks, *published.remarks))


def _published(names: Sequence[str]) -> LabelledTexts:
    loaded = {name: benchmarks.load(name) for name in names}
    return LabelledTexts(
        [document for benchmark in loaded.values() for document in benchmark.documents],
        {f"{name} ({benchmark.source})": benchmark.revision for name, benchmark in loaded.items()},
        tuple(remark for name, benchmark in loaded.items() for remark in _left_out(name, benchmark.left_out)),
    )


def _digest(file: Path) -> str:
    return "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def split_texts(documents: Sequence[Document], data: DataConfig, seed: int) -> tuple[Split, list[str]]:
    """Split the texts into unseen, validation and test, with remarks for the report."""
    if not isinstance(data.unseen, str):
        return split(documents, unseen=data.unseen, validation=data.validation, scheme=data.split, seed=seed), []
    if data.split == "paper":
        raise UsageError("split must be grouped where unseen is a file; got paper")
    unseen, remarks = read_own([data.unseen], "", data.cleaning)
    parts, related = split_with(unseen, documents, validation=data.validation, seed=seed)
    if related:
        remarks.append(f"{len(related)} texts of the benchmark left out: related to a text in {data.unseen}")
    return parts, [*remarks, *_early(unseen, documents, data)]


def _early(unseen: Sequence[Document], documents: Sequence[Document], data: DataConfig) -> list[str]:
    """A remark on unseen texts of the members' period: training on them may make the model familiar with it."""
    of_members = {document.period for document in documents if document.member} - {""}
    cutoff = splitting.parse_cutoff(data.cutoff)
    early = [d for d in unseen if d.period in of_members or (cutoff and d.date and d.date <= cutoff)]
    if not early:
        return []
    return [f"{len(early)} of {len(unseen)} unseen texts are of the members' period, the first {early[0].origin}"]


def with_adapter_texts(parts: Split, adapter: str | None) -> Split:
    """The split whose unseen texts are those that the reused adapter, if any, was trained on (as far as recorded).

    The audit then reports which of them are in validation or test, and `recall` takes its prefix from them.
    """
    from fsd import tracking

    file = distributed.from_main(lambda: tracking.fetch_model_file(adapter, UNSEEN)) if adapter else None
    if file is None:
        return parts
    return parts._replace(unseen=tuple(replace(document, member=False) for document in read_files([file])))
