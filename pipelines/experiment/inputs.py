"""The texts of a run: read from files, from the embedded corpus or from published benchmarks, cleaned and split."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from detectors import Detector
from fsd.collection import domains
from fsd.config import CleaningConfig, DataConfig, FSDConfig, ModelConfig
from fsd.data import benchmarks, embedded
from fsd.data.cells import RowError
from fsd.data.corpus import Corpus, Split, as_corpus
from fsd.data.documents import Benchmark, Document, Documents
from fsd.data.fields import parse_columns
from fsd.data.knowledge_cutoffs import Labels, labels_for
from fsd.data.near_duplicates import drop_contradictions, refuse_contradictions
from fsd.data.periods import parse_cutoff, with_periods
from fsd.data.readers import files_of_texts, read_files, read_texts
from fsd.data.splitting import hold_out, split, split_with
from fsd.errors import UsageError
from fsd.files import digest
from fsd.net.hub import locate
from fsd.token_stats import IDS, UNIT
from fsd.views import DRAWS, FEWEST_UNREAD, reading
from pipelines.experiment.control import EMBEDDED_TARGET, control_model

Cleaned = tuple[Corpus, list[str]]
"""Texts that can be used, and remarks about those that were left out."""


class LabelledTexts(NamedTuple):
    """Members and non-members, their sources' versions, what was left out, the first day of published non-members."""

    documents: Corpus
    sources: dict[str, str]
    remarks: tuple[str, ...] = ()
    since: Date | None = None

    def labels(self, config: FSDConfig) -> Labels:
        """Whether the labels hold for the model of a configuration."""
        return labels_for(config.model.model, self.documents, since=self.since, last=parse_cutoff(config.data.cutoff))


def with_embedded_model(config: FSDConfig) -> FSDConfig:
    """The configuration with the embedded model of the domain, where neither a model nor texts are given."""
    corpus = embedded.CORPORA.get(config.data.domain)
    if corpus is None or config.data.places or config.model.model != EMBEDDED_TARGET:
        return config
    return replace(config, model=replace(config.model, model=corpus.model))


def load_texts(data: DataConfig, model: ModelConfig) -> LabelledTexts:
    """Load the user's files, the embedded corpus, or the published benchmark of the domain."""
    # Checked before anything is read.
    cutoff = parse_cutoff(data.cutoff)
    corpus = embedded.CORPORA.get(data.domain)
    if data.members or data.nonmembers:
        labelled = _sides(data)
    elif data.data:
        labelled = _files_and_benchmarks(data, model)
    elif corpus and model.model == corpus.model:
        labelled = LabelledTexts(Corpus(embedded.corpus(data.domain)), {"embedded corpus": _digest(corpus.file)})
    elif model.model == EMBEDDED_TARGET:
        raise UsageError(
            f"domain {data.domain} must come with --data FILE, or with --model for its published benchmark; "
            f"embedded models have texts of {' and '.join(embedded.CORPORA)} only"
        )
    else:
        # Texts of one's own may be of any domain.
        domain = domains.load(data.domain)
        if not domain.benchmark:
            raise UsageError(
                f"domain {data.domain} must come with --data FILE; it has no published benchmark of its own"
            )
        locate(model.model, model.revision)  # a missing model is reported before its benchmark is downloaded
        labelled = _published([domain.benchmark], model)
    documents, remarks = _without_contradictions(labelled.documents, data.cleaning)
    # Families, kinds and texts of what is returned are computed once, whoever asks for them.
    return labelled._replace(
        documents=Corpus(with_periods(documents, cutoff)), remarks=labelled.remarks + tuple(remarks)
    )


def read_own(
    files: Sequence[str],
    columns: str,
    cleaning: CleaningConfig,
    *,
    labelled: bool = False,
    contexts: bool = False,
    unread: Sequence[str] = (),
) -> Cleaned:
    """The user's texts, with remarks for the report; the fields `unread` are those that a command does not use."""
    skipped = Counter[str]()
    # Readers count what they skip, and refuse it where there is nothing to count in.
    counted = skipped if cleaning.skip_invalid else None
    names = parse_columns(columns, answers=True, unread=unread)
    try:
        if labelled:
            documents = read_files(files, names, labelled=True, answers=True, skipped=counted)
        else:
            documents = read_texts(files, names, answers=True, contexts=contexts, skipped=counted)
    except RowError as error:
        raise UsageError(f"{error}; leave out such rows, and count them, by --skip-invalid") from error
    return Corpus(documents), _left_out("files", skipped)


def read_cleaned(
    files: Sequence[str], columns: str, cleaning: CleaningConfig, *, contexts: bool = False, unread: Sequence[str] = ()
) -> Cleaned:
    """The user's texts, with or without labels, without those that are labelled both 1 and 0; see `read_own`."""
    documents, skipped = read_own(files, columns, cleaning, contexts=contexts, unread=unread)
    documents, dropped = _without_contradictions(documents, cleaning)
    return documents, skipped + dropped


def continuable(documents: Corpus, detectors: Sequence[Detector]) -> tuple[Corpus, list[str]]:
    """Without the texts of fewer than two words, where a detector continues the first half of a text."""
    names = reading(DRAWS.keys(), detectors)
    kept = [document for document in documents if len(UNIT.findall(document.text)) > 1]
    # Where nothing is left, the first such text is named instead.
    if not names or len(kept) in (0, len(documents)):
        return documents, []
    reason = f"fewer than two words, of which {' and '.join(names)} can continue nothing"
    return Corpus(kept), _left_out("texts", {reason: len(documents) - len(kept)})


def _without_contradictions(documents: Documents, cleaning: CleaningConfig) -> Cleaned:
    """Refuse texts labelled both 1 and 0, or leave them out with a remark; see `fsd.data.near_duplicates`."""
    if cleaning.near_duplicates == "refuse":
        refuse_contradictions(documents, "; leave them out on both sides by --near-duplicates drop")
        return Corpus(documents), []
    kept, count = drop_contradictions(documents)
    return Corpus(kept), _left_out("texts", {benchmarks.BOTH_LABELS: count})


def _left_out(name: str, reasons: Mapping[str, int]) -> list[str]:
    remarks = []
    for reason, count in reasons.items():
        if count:
            remarks.append(f"{name}: {count:,} left out: {reason}")
    return remarks


def _sides(data: DataConfig) -> LabelledTexts:
    """The texts of files that have members or non-members alone."""
    if data.data:
        raise UsageError(f"data must not come with --members and --nonmembers; got {', '.join(data.data)}")
    members, remarks = read_side("members", data.members, data.columns, data.cleaning)
    nonmembers, more = read_side("nonmembers", data.nonmembers, data.columns, data.cleaning)
    sources = {file: _digest(Path(file)) for file in data.places}
    return LabelledTexts(Corpus(members + nonmembers), sources, tuple(remarks + more))


def read_side(side: str, files: Sequence[str], columns: str, cleaning: CleaningConfig) -> Cleaned:
    """The texts of one side, `members` or `nonmembers`; a label of theirs must say the same."""
    if not files:
        raise UsageError(f"members must come with --nonmembers, and both must be given; got no --{side}")
    member = side == "members"
    documents, remarks = read_own(files, columns, cleaning)
    for document in documents:
        if document.member is (not member):
            raise UsageError(
                f"{side} must hold no text with the label {int(not member)}; {document.origin} has it: give the file "
                "to the other flag, or leave the column out by --columns label=-"
            )
    return Corpus(replace(document, member=member) for document in documents), remarks


def _files_and_benchmarks(data: DataConfig, model: ModelConfig) -> LabelledTexts:
    names = [entry for entry in data.data if benchmarks.is_name(entry)]
    files = [entry for entry in data.data if entry not in names]
    published = _published(names, model)
    documents = Corpus()
    remarks: list[str] = []
    if files:
        documents, remarks = read_own(files, data.columns, data.cleaning, labelled=True)
    benchmark: Documents = published.documents
    # Periods of one side alone say nothing about membership, unless a cutoff gives them to the other side.
    if data.cutoff is None and not all(document.period for document in chain(documents, benchmark)):
        benchmark = [replace(document, period="") for document in benchmark]
    sources = {file: _digest(Path(file)) for file in files}
    return LabelledTexts(
        Corpus(chain(documents, benchmark)),
        sources | published.sources,
        tuple(remarks) + published.remarks,
        published.since,
    )


def _published(names: Sequence[str], model: ModelConfig) -> LabelledTexts:
    documents = []
    sources = {}
    remarks = []
    starts = []
    for name in dict.fromkeys(names):
        benchmark = _readable(name, benchmarks.load(name), model)
        documents.extend(benchmark.documents)
        sources[f"{name} ({benchmark.source})"] = benchmark.revision
        remarks.extend(_remarks(name, benchmark))
        if benchmark.since:
            starts.append(benchmark.since)
    return LabelledTexts(Corpus(documents), sources, tuple(remarks), min(starts, default=None))


def _remarks(name: str, benchmark: Benchmark) -> list[str]:
    """What was left out of a benchmark, and how many of its texts stay token ids."""
    remarks = _left_out(name, benchmark.left_out)
    ids = sum(IDS.search(document.text) is not None for document in benchmark.documents)
    if ids:
        remarks.append(
            f"{name}: {ids:,} of {len(benchmark.documents):,} texts hold token ids that no characters stand for; "
            "detectors that change or compress a text take these as digits"
        )
    return remarks


def _readable(name: str, benchmark: Benchmark, model: ModelConfig) -> Benchmark:
    """A benchmark of token ids in the characters of the model's tokenizer; one of texts as it is."""
    from fsd.models.language_model import load_tokenizer, readable, start_token

    expected = benchmarks.start_of(name)
    if expected is None:
        return benchmark
    tokenizer, _ = load_tokenizer(model.model, revision=model.revision)
    start = start_token(tokenizer, model.model)
    # The ids of another tokenizer would be read without an error, as other words.
    if start != expected:
        raise UsageError(
            f"benchmark {name} must be scored by a model of its tokenizer, whose start token is {expected}; that of "
            f"{model.model!r} is {start}"
        )
    texts = readable(tokenizer, [document.text for document in benchmark.documents])
    pairs = zip(benchmark.documents, texts, strict=True)
    documents = [replace(document, text=text) for document, text in pairs]
    # Rows that differ as ids may be the same characters.
    return benchmarks.without_contradictions(benchmark._replace(documents=documents))


def check_tokenizers(config: FSDConfig, documents: Sequence[Document]) -> None:
    """Refuse a control or a reference model of another tokenizer where the benchmark's rows are token ids."""
    if all(benchmarks.start_of(entry) is None for entry in config.data.data):
        return
    from fsd.models.language_model import load_tokenizer, same_vocabulary

    target = config.model.model
    tokenizer, _ = load_tokenizer(target, revision=config.model.revision)
    further = {"placebo": control_model(config, documents), "reference-model": config.model.reference_model}
    for flag, model in further.items():
        if model and not same_vocabulary(load_tokenizer(model)[0], tokenizer):
            raise UsageError(
                f"{flag} must have the tokenizer of {target!r}, since the rows of the benchmark are token ids; "
                f"{model!r} has another"
            )


def _digest(path: Path) -> str:
    """Hash of a file, or of the data files of a folder."""
    return f"sha256:{digest(*files_of_texts(path))[:16]}"


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
    periods = {document.period for document in documents if document.member and document.period}
    cutoff = parse_cutoff(data.cutoff) or Date.min
    # Texts without a date count as later; training on early ones may make the model familiar with the members' period.
    early = []
    for text in unseen:
        day = text.date or Date.max
        if text.period in periods or day <= cutoff:
            early.append(text)
    if early:
        place = early[0].origin
        remarks.append(f"{len(early)} of {len(unseen)} unseen texts are of the members' period, the first {place}")
    return parts, remarks


ADAPTING = 64
"""Most unseen texts that a reference is fine-tuned on: it tells less after more (docs/lab/second_reference.md)."""


def texts_to_adapt(unseen: Documents, seed: int) -> Corpus:
    """Some of the unseen texts, in whole families, on which a reference model is fine-tuned; none if they are too few.

    The others have no part in it, and tell what scores against that model are for texts that were not read.
    """
    corpus = as_corpus(unseen)
    if len(set(corpus.family.tolist())) < 2 * FEWEST_UNREAD:
        return Corpus()
    return hold_out(corpus, max(0.5, 1 - ADAPTING / len(corpus)), seed=seed)[0]


def labelled_texts(parts: Split, detectors: Sequence[Detector]) -> dict[str, tuple[int, bool]]:
    """The texts of validation, if detectors need labels: text → its family, and whether it is a member."""
    if not any(detector.needs_labels for detector in detectors):
        return {}
    texts = {}
    validation = parts.validation
    for document, family in zip(validation, validation.family.tolist(), strict=True):
        texts[document.text] = (family, bool(document.member))
    return texts
