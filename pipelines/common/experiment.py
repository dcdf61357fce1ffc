"""One experiment of the main job, of tuning and of studies: its texts and detectors, the training, the scoring."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import detectors
from detectors import Detector
from fsd import distributed, tracking
from fsd.collection import domains
from fsd.config import (
    ALL,
    AUTO,
    CleaningConfig,
    DataConfig,
    DetectorConfig,
    FSDConfig,
    ModelConfig,
    check_training,
)
from fsd.data import benchmarks, embedded, splitting
from fsd.data.documents import Benchmark, Document
from fsd.data.knowledge_cutoffs import HOLDING, Labels, labels_for
from fsd.data.near_duplicates import drop_contradictions, families, refuse_contradictions
from fsd.data.readers import RowError, parse_columns, read_files, read_texts
from fsd.data.splitting import Split, split, split_with
from fsd.errors import UsageError, at_least
from fsd.files import digest
from fsd.net.hub import EMBEDDED, EMBEDDED_TWIN, locate
from fsd.scoring import model as scoring
from fsd.scoring.deviation import Deviation
from fsd.scoring.model import ScoringJob, cache_folder, reader_names
from fsd.token_stats import IDS, Scorer
from fsd.tracking import Run
from fsd.views import FURTHER, usable
from pipelines.common.adapter_files import SETUP, UNSEEN, read_setup, recorded_training
from pipelines.common.job import Job, files, passes

if TYPE_CHECKING:
    from fsd.evaluation.results import Results
    from fsd.models.language_model import LanguageModel

BASE = "base"
"""Part of a setting's name that restricts it to the base score: `surp.base.k`."""
TRAINING = "training"
"""Folder in the cache with the trainings."""
EMBEDDED_TARGET = "embedded"
"""The default model: the embedded one of the domain."""
PACKAGES = ("fsd", "torch", "transformers", "peft", "numpy")
"""Packages whose upgrade makes finished experiments run again."""
Settings = dict[str, dict[str, Any]]
"""Detector → setting → value; settings of the base score alone are named `base.k`."""


def load_detectors(config: DetectorConfig) -> list[Detector]:
    """The requested detectors; `--settings` go before tuned settings, and these before the defaults."""
    at_least(1, shots=config.shots)
    known = list(detectors.names())
    names = list(dict.fromkeys(name.strip() for name in config.detectors.split(",") if name.strip()))
    if not names:
        raise UsageError(f"detectors must be auto, all, or names out of {', '.join(known)}; got {config.detectors!r}")
    names = list(detectors.names(names[0])) if names in ([AUTO], [ALL]) else names
    given = _parse_settings(config.settings)
    unused = sorted(given.keys() - set(names))
    if unused:
        raise UsageError(f"settings must be of a detector in use, one of {', '.join(names)}; got {unused[0]!r}")
    tuned = _tuned_settings(config.settings_from) if config.settings_from else {}
    loaded = []
    for name in names:
        detector = detectors.load(name)
        for settings in (tuned.get(name, {}), given.get(name, {})):
            of_base = {key.removeprefix(f"{BASE}."): key for key in settings if key.startswith(f"{BASE}.")}
            both = {key: value for key, value in settings.items() if key not in of_base.values()}
            detector = detector.with_settings(**both)
            detector = detector.with_base_settings(**{key: settings[whole] for key, whole in of_base.items()})
        loaded.append(detector)
    return loaded


def cheap(detectors: Iterable[Detector]) -> list[Detector]:
    """The detectors that need no forward pass over other texts, such as neighbours or a prefix."""
    return [detector for detector in detectors if not FURTHER.intersection(detector.views)]


def audited(found: Iterable[Detector]) -> list[Detector]:
    """The detectors of an audit of a fine-tuned model: those without further passes that are not of two models already.

    The base takes the place of a reference model, and fine-tuned minus base score is the opposite of an FSD.
    """

    def against_base(detector: Detector) -> Detector:
        score = detector.function
        return replace(
            detector, views=("text", "tuned"), function=lambda base, tuned, **how: -score(tuned, base, **how)
        )

    plain = [detector for detector in cheap(found) if not detector.paired]
    return [against_base(each) if each.views == ("text", "reference") else each for each in plain]


def _tuned_settings(uri: str) -> Settings:
    """Settings of the run that registered the adapter; earlier versions had none for the base score alone."""
    folder = Path(uri)
    empty = folder.is_dir() and not any((of / SETUP).is_file() for of in (folder, folder.parent))
    setup = None if empty else read_setup(uri)
    if setup is None:
        raise UsageError(f"settings-from must be a model, run or folder with {SETUP}; {uri} has none")
    return {
        name: {**settings, **{f"{BASE}.{key}": value for key, value in setup.base_settings.get(name, {}).items()}}
        for name, settings in setup.detectors.items()
    }


def _parse_settings(entries: Sequence[str]) -> Settings:
    """`surp.k=30` → {"surp": {"k": 30}}."""
    settings: Settings = {}
    for entry in entries:
        key, equals, text = entry.partition("=")
        detector, _, name = key.partition(".")
        if not (equals and detector and name):
            raise UsageError(f"settings must look like surp.k=30; got {entry!r}")
        try:
            value = json.loads(text.lower() if text in ("True", "False") else text)
        except json.JSONDecodeError:
            value = text
        settings.setdefault(detector, {})[name] = value
    return settings


class LabelledTexts(NamedTuple):
    """Members and non-members, their sources' versions, what was left out, the first day of published non-members."""

    documents: list[Document]
    sources: dict[str, str]
    remarks: tuple[str, ...] = ()
    since: Date | None = None

    def labels(self, config: FSDConfig) -> Labels:
        """Whether the labels hold for the model of a configuration."""
        last = splitting.parse_cutoff(config.data.cutoff)
        return labels_for(config.model.model, self.documents, since=self.since, last=last)


def with_embedded_model(config: FSDConfig) -> FSDConfig:
    """The configuration with the embedded model of the domain, where neither a model nor texts are given."""
    corpus = embedded.CORPORA.get(config.data.domain)
    if corpus is None or config.data.data or config.model.model != EMBEDDED_TARGET:
        return config
    return replace(config, model=replace(config.model, model=corpus.model))


def load_texts(data: DataConfig, model: ModelConfig) -> LabelledTexts:
    """Load the user's files, the embedded corpus, or the published benchmark of the domain."""
    cutoff = splitting.parse_cutoff(data.cutoff)
    domain, corpus = domains.load(data.domain), embedded.CORPORA.get(data.domain)
    if data.data:
        labelled = _files_and_benchmarks(data, model)
    elif corpus and model.model == corpus.model:
        labelled = LabelledTexts(list(embedded.corpus(data.domain)), {"embedded corpus": _digest(corpus.file)})
    elif model.model == EMBEDDED_TARGET:
        raise UsageError(
            f"domain {data.domain} must come with --data FILE, or with --model for its published benchmark; "
            f"embedded models have texts of {' and '.join(embedded.CORPORA)} only"
        )
    elif not domain.benchmark:
        raise UsageError(f"domain {data.domain} must come with --data FILE; it has no published benchmark of its own")
    else:
        locate(model.model, model.revision)  # a missing model is reported before its benchmark is downloaded
        labelled = _published([domain.benchmark], model)
    documents, remarks = _without_contradictions(labelled.documents, data.cleaning)
    documents = splitting.with_periods(documents, cutoff)
    return labelled._replace(documents=documents, remarks=(*labelled.remarks, *remarks))


def read_own(
    files: Sequence[str], columns: str, cleaning: CleaningConfig, *, labelled: bool = False, contexts: bool = False
) -> tuple[list[Document], list[str]]:
    """The user's texts, with remarks for the report."""
    skipped = Counter[str]() if cleaning.skip_invalid else None
    named = parse_columns(columns, contexts=contexts)
    try:
        if labelled:
            documents = read_files(files, named, labelled=True, skipped=skipped)
        else:
            documents = read_texts(files, named, contexts=contexts, skipped=skipped)
    except RowError as error:
        raise UsageError(f"{error}; leave out such rows, and count them, by --skip-invalid") from error
    return documents, _left_out("files", skipped or {})


def read_cleaned(
    files: Sequence[str], columns: str, cleaning: CleaningConfig, *, contexts: bool = False
) -> tuple[list[Document], list[str]]:
    """The user's texts, with or without labels, without those that are labelled both 1 and 0."""
    documents, skipped = read_own(files, columns, cleaning, contexts=contexts)
    documents, dropped = _without_contradictions(documents, cleaning)
    return documents, [*skipped, *dropped]


def _without_contradictions(documents: list[Document], cleaning: CleaningConfig) -> tuple[list[Document], list[str]]:
    """Refuse texts labelled both 1 and 0, or leave them out with a remark; see `fsd.data.near_duplicates`."""
    if cleaning.near_duplicates == "refuse":
        refuse_contradictions(documents, "; leave them out on both sides by --near-duplicates drop")
        return documents, []
    kept, count = drop_contradictions(documents)
    return kept, _left_out("texts", {benchmarks.BOTH_LABELS: count} if count else {})


def _left_out(name: str, reasons: Mapping[str, int]) -> list[str]:
    return [f"{name}: {count:,} left out: {reason}" for reason, count in reasons.items()]


def _files_and_benchmarks(data: DataConfig, model: ModelConfig) -> LabelledTexts:
    names = [one for one in data.data if benchmarks.is_name(one)]
    known, sources, published_remarks, since = _published(names, model)
    files = [entry for entry in data.data if not benchmarks.is_name(entry)]
    documents, remarks = read_own(files, data.columns, data.cleaning, labelled=True) if files else ([], [])
    if data.cutoff is None and not all(document.period for document in (*documents, *known)):
        known = [replace(document, period="") for document in known]  # periods of one side alone say nothing
    return LabelledTexts(
        documents + known,
        {file: _digest(Path(file)) for file in files} | sources,
        (*remarks, *published_remarks),
        since,
    )


def _published(names: Sequence[str], model: ModelConfig) -> LabelledTexts:
    loaded = {name: _readable(name, benchmarks.load(name), model) for name in names}
    return LabelledTexts(
        [document for benchmark in loaded.values() for document in benchmark.documents],
        {f"{name} ({benchmark.source})": benchmark.revision for name, benchmark in loaded.items()},
        tuple(remark for name, benchmark in loaded.items() for remark in _remarks(name, benchmark)),
        min((benchmark.since for benchmark in loaded.values() if benchmark.since), default=None),
    )


def _remarks(name: str, benchmark: Benchmark) -> list[str]:
    """What was left out of a benchmark, and how many of its texts stay token ids."""
    kept = sum(IDS.search(document.text) is not None for document in benchmark.documents)
    many = f"{kept:,} of {len(benchmark.documents):,} texts"
    said = f"{name}: {many} hold token ids that no characters stand for; detectors that change or compress a text take "
    return [*_left_out(name, benchmark.left_out), *([f"{said}these as digits"] if kept else [])]


def _readable(name: str, benchmark: Benchmark, model: ModelConfig) -> Benchmark:
    """A benchmark of token ids in the characters of the model's tokenizer; one of texts as it is."""
    from fsd.models.language_model import load_tokenizer, readable, start_token

    start = benchmarks.start_of(name)
    if start is None:
        return benchmark
    tokenizer, _ = load_tokenizer(model.model, revision=model.revision)
    if start_token(tokenizer, model.model) != start:
        raise UsageError(
            f"benchmark {name} must be scored by a model of its tokenizer, whose start token is {start}; that of "
            f"{model.model!r} is {start_token(tokenizer, model.model)}"
        )
    texts = readable(tokenizer, [document.text for document in benchmark.documents])
    pairs = zip(benchmark.documents, texts, strict=True)
    documents = [replace(document, text=text) for document, text in pairs]
    return benchmarks.without_contradictions(benchmark._replace(documents=documents))


def check_tokenizers(config: FSDConfig, documents: Sequence[Document]) -> None:
    """Refuse a control or a reference model of another tokenizer where the benchmark's rows are token ids."""
    if all(benchmarks.start_of(entry) is None for entry in config.data.data):
        return
    from fsd.models.language_model import load_tokenizer

    own = load_tokenizer(config.model.model, revision=config.model.revision)[0].get_vocab()
    others = {"placebo": placebo_model(config, documents), "reference-model": config.model.reference_model}
    for flag, other in others.items():
        if other and load_tokenizer(other)[0].get_vocab() != own:
            raise UsageError(
                f"{flag} must have the tokenizer of {config.model.model!r}, since the rows of the benchmark are token "
                f"ids; {other!r} has another"
            )


def _digest(file: Path) -> str:
    return f"sha256:{digest(file)[:16]}"


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
    of_members = {document.period for document in documents if document.member} - {""}
    cutoff = splitting.parse_cutoff(data.cutoff)
    early = [d for d in unseen if d.period in of_members or (cutoff and d.date and d.date <= cutoff)]
    if early:  # training on them may make the model familiar with the members' period
        many = f"{len(early)} of {len(unseen)} unseen texts"
        remarks.append(f"{many} are of the members' period, the first {early[0].origin}")
    return parts, remarks


def with_adapter_texts(parts: Split, adapter: str | None) -> Split:
    """The split with the unseen texts that a reused adapter was trained on, if recorded: for audit and `recall`."""
    file = distributed.from_main(lambda: tracking.fetch_model_file(adapter, UNSEEN)) if adapter else None
    if file is None:
        return parts
    return parts._replace(unseen=tuple(replace(document, member=False) for document in read_files([file])))


class Inputs(NamedTuple):
    """What a run reads, made by `read`; texts of a published benchmark are not `here`, but read by `fetched`."""

    config: FSDConfig
    detectors: Sequence[Detector]
    here: bool = False
    documents: Sequence[Document] = ()
    split: Split = Split((), (), ())
    sources: Mapping[str, str] = MappingProxyType({})
    remarks: Sequence[str] = ()
    labels: Labels = HOLDING

    def fetched(self) -> "Inputs":
        """The same with the texts, downloaded if they are a published benchmark."""
        if self.here:
            return self
        texts = load_texts(self.config.data, self.config.model)
        check_tokenizers(self.config, texts.documents)
        split, more = split_texts(texts.documents, self.config.data, self.config.seed)
        remarks, labels = [*texts.remarks, *more], texts.labels(self.config)
        return Inputs(self.config, self.detectors, True, texts.documents, split, texts.sources, remarks, labels)


def read(config: FSDConfig) -> Inputs:
    """The texts and detectors of a run; texts of a published benchmark are left for `Inputs.fetched`."""
    config = with_embedded_model(config)
    inputs = Inputs(config, load_detectors(config.detection))
    if config.adapter is None:
        check_training(config.training)
    files = config.data.data
    published = any(map(benchmarks.is_name, files)) or not (files or config.model.model in EMBEDDED)
    return inputs if published else inputs.fetched()


def job(work: Callable[[], object], inputs: Inputs) -> Job:
    """The job of a run."""
    config = inputs.config
    data, split, texts = config.data, inputs.split, None
    states = ("base", "tuned") if split.unseen else ("base",)
    if inputs.here:
        texts = [document.text for document in (*split.validation, *split.test)]
        sizes = ", ".join(f"{len(part):,} {name}" for name, part in split._asdict().items())
        read = f"{files(data.data or ['the embedded corpus'], sum(map(len, split)))}: {sizes}"
    else:
        published = ", ".join(filter(benchmarks.is_name, data.data)) or f"the published benchmark of {data.domain}"
        read = f"{published}: downloaded, if it is not in the cache"
    return Job(
        work,
        {"texts": read, **({"adapter": config.adapter} if config.adapter else {})},
        config.model,
        texts=texts,
        passes=passes(
            inputs.detectors,
            texts,
            config.model,
            states=states,
            unseen=split.unseen,
            labelled=labelled_texts(split, inputs.detectors),
            strict=config.detection.named,
        )
        if texts
        else {},
        trained=[document.text for document in split.unseen],
        training=None if config.adapter else config.training,
        writes=["a registered adapter"],
        experiment=f"fsd-{data.domain}",
        notes=[
            *inputs.labels.said,
            *([] if config.placebo == "none" else [f"the placebo ({config.placebo}) is not part of the numbers"]),
        ],
    )


def prepare(
    model: "LanguageModel",
    split: Split,
    detectors: Sequence[Detector],
    config: FSDConfig,
    scorers: Mapping[str, Scorer] | None = None,
) -> ScoringJob:
    """Check that the validation and test texts can be scored, and the model trained, as the configuration says."""
    return scoring.prepare(
        model,
        [document.text for document in (*split.validation, *split.test)],
        [document.text for document in split.unseen],
        detectors,
        config.model,
        training=config.training if scorers is None or "tuned" in scorers else None,
        scorers=scorers,
        strict=config.detection.named,
        shots=config.detection.shots,
        seed=config.seed,
        labelled=labelled_texts(split, detectors),
    )


def labelled_texts(split: Split, detectors: Sequence[Detector]) -> dict[str, tuple[int, bool]]:
    """The texts of validation, if detectors need labels: text → its family, and whether it is a member."""
    texts = split.validation if any(detector.labelled for detector in detectors) else []
    return {one.text: (family, bool(one.member)) for one, family in zip(texts, families(texts), strict=True)}


def load_model(config: FSDConfig) -> "LanguageModel":
    """The base model, with the adapter attached if one is reused."""
    from fsd.models import language_model
    from fsd.models.adapters import attach, check_adapter

    uri = config.adapter
    adapter = distributed.from_main(lambda: tracking.fetch_adapter(uri)) if uri else None
    if adapter:
        check_adapter(adapter)  # before the base, which takes long
    model = language_model.load(config.model)
    if adapter:
        attach(model, adapter)
    return model


def train_adapter(
    model: "LanguageModel", unseen: Sequence[Document], config: FSDConfig, run: Run | None, *, logged: bool = True
) -> None:
    """Fine-tune a fresh adapter on the unseen texts, or take it from the cache, and log every step to the run."""
    from fsd.models.finetuning import finetune

    def log(numbers: Mapping[str, float], step: int) -> None:
        if run:
            shown = {name: value for name, value in numbers.items() if name != "lm_loss" or value != numbers["loss"]}
            run.log_metrics({f"train/{name}": value for name, value in shown.items()}, step=step)

    cache = cache_folder(config.model)
    finetune(
        model,
        [document.text for document in unseen],
        config.training,
        seed=config.seed,
        log=log if logged else None,
        shown=distributed.is_main_process(),
        cache=cache / TRAINING if cache else None,
    )


def measure(
    model: "LanguageModel",
    split: Split,
    detectors: Sequence[Detector],
    config: FSDConfig,
    run: Run | None,
    *,
    logged: bool = True,
) -> tuple[ScoringJob, Deviation]:
    """Prepare, fine-tune a fresh adapter, and score before and after; base scores alone without unseen texts."""
    scorers = None
    if not split.unseen:
        scorers = scoring.build_scorers(model, config.model, seed=config.seed)
        del scorers["tuned"]  # the model may have the adapter of another experiment
    work = prepare(model, split, detectors, config, scorers)
    if split.unseen:
        train_adapter(model, split.unseen, config, run, logged=logged)
    return work, work.score()


def judge(inputs: Inputs, model: "LanguageModel", *measured: Any, remarks: Sequence[str], **how: Any) -> "Results":
    """What `fsd.evaluation.results.judge` makes of what was measured, with what is known of the model and the inputs.

    Calibrated only if the labels hold, and then with the power of the domain check.
    """
    from fsd.evaluation import results

    config = inputs.config
    remarks = [*inputs.remarks, *remarks]
    found = results.judge(*measured, remarks=remarks, seed=config.seed, repeats=config.audit_repeats, **how)
    found = replace(found, never_saw=never_saw(config, inputs.documents), labels=inputs.labels)
    return with_power(found, model, config) if inputs.labels.hold else replace(found, calibration=None)


def with_power(results: "Results", model: "LanguageModel", config: FSDConfig) -> "Results":
    """The results whose calibration says how well its domain check recognises texts of other kinds."""
    from fsd.evaluation.domain_check import LATER, power
    from fsd.evaluation.results import reference_of
    from fsd.scoring.model_scorer import hidden_states

    if results.calibration is None:
        return results
    reference = reference_of(results.parts, unseen=config.adapter is None and not isinstance(config.data.unseen, str))
    further, known = {}, set(reference.texts)
    documents = [*results.parts.validation, *results.parts.test]
    if splitting.has_both(splitting.kinds_of(documents)):
        further[LATER] = [d.text for d in documents if not d.member and d.text not in known]
    found = power(reference, further, lambda texts: hidden_states(model, texts))
    counts = Counter(reference.collections)
    sources = ", ".join(f"{name or 'unnamed'} ({count})" for name, count in counts.items())
    remarks = [] if set(counts) == {""} else [f"verdicts are by source; non-members have {len(counts)}: {sources}"]
    calibration = replace(results.calibration, reference=replace(reference, power=found))
    return replace(results, calibration=calibration, remarks=[*results.remarks, *remarks])


def tag(content: object) -> str:
    """Hash by which a finished experiment is found again: of its settings and texts, and of the packages' versions."""
    versions = [version(package) for package in PACKAGES]
    return hashlib.sha256(json.dumps([content, versions], sort_keys=True).encode()).hexdigest()


class Placebo(NamedTuple):
    """A control model, of `config`, that goes through the same procedure, and the detectors that it can compute."""

    config: FSDConfig
    detectors: Sequence[Detector]

    def deviation(self, split: Split, run: Run | None = None) -> tuple[str, Deviation]:
        """Name of the control model, and the scores of the validation and test texts before and after fine-tuning."""
        _, deviation = measure(load_model(self.config), split, self.detectors, self.config, run, logged=False)
        return self.config.model.model, deviation


def plan_placebo(config: FSDConfig, split: Split, detectors: Sequence[Detector]) -> tuple[Placebo | None, list[str]]:
    """The control model, trained as a reused adapter was, the cheap detectors that it can compute, and remarks."""
    documents = [*split.validation, *split.test]
    name = placebo_model(config, documents)
    if name is None:
        return None, []
    locate(name)
    recorded = recorded_training(config.adapter) if config.adapter else config.training
    remarks = []
    if recorded is None:
        remarks.append("placebo: how the adapter was trained is not recorded; its control is trained by default")
    reference = control_reference(config, name, documents)
    control = replace(
        config,
        model=replace(config.model, model=name, revision=None, reference_model=reference, frequencies=None),
        training=recorded or config.training,
        adapter=None,
        detection=replace(config.detection, detectors=AUTO),
    )
    texts = [document.text for document in documents]
    computable, _ = usable(cheap(detectors), texts, reader_names(control.model))
    if not computable:
        return None, ["no placebo: the control model can compute none of these detectors"]
    return Placebo(control, computable), remarks


def placebo_model(config: FSDConfig, documents: Sequence[Document]) -> str | None:
    """The control model, trained on none of the documents; None for no control.

    An embedded target was trained on its corpus and nothing else that anyone has, and the twin on none of it. So `auto`
    is the twin if any document is in such a corpus, and the target `embedded` otherwise. A benchmark may name the twin
    of a target. A model that is known to have
    seen none of the documents needs no control: the run is one itself.
    """
    if config.placebo == "none" or (config.placebo == "auto" and never_saw(config, documents)):
        return None
    if config.placebo != "auto":
        return config.placebo
    named = benchmarks.control_of(config.data.data, config.model.model)
    return named or (EMBEDDED_TWIN if _domains_of(documents) else EMBEDDED_TARGET)


def control_reference(config: FSDConfig, control: str, documents: Sequence[Document]) -> str | None:
    """The reference model of a control: the one given, or of the embedded twin the target of another domain."""
    given = config.model.reference_model
    if given:
        return given if given != control else None
    if control != EMBEDDED_TWIN:
        return None
    known = _domains_of(documents)
    return next((corpus.model for domain, corpus in embedded.CORPORA.items() if domain not in known), None)


def never_saw(config: FSDConfig, documents: Sequence[Document]) -> bool:
    """Whether the model is an embedded one that was trained on none of the documents."""
    name = config.model.model
    if name not in EMBEDDED or name == EMBEDDED_TWIN:
        return name == EMBEDDED_TWIN
    own = {domain for domain in embedded.CORPORA if name.startswith(f"{EMBEDDED_TARGET}-{domain}")} or {"arxiv"}
    return not own & _domains_of(documents)


def _domains_of(documents: Sequence[Document]) -> set[str]:
    """The domains of the embedded corpora in which one of the documents is."""
    texts = {document.text for document in documents}
    return {
        domain for domain in embedded.CORPORA if any(document.text in texts for document in embedded.corpus(domain))
    }
