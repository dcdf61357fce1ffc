"""The steps that the main job, tuning and studies share: read, prepare, fine-tune, score, and the placebo."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version

from fsd import distributed, tracking
from fsd.config import FSDConfig
from fsd.data import benchmarks, embedded, splitting
from fsd.data.documents import Document
from fsd.data.splitting import Split
from fsd.evaluation.domain_check import LATER, power
from fsd.evaluation.results import Results, reference_of
from fsd.models import language_model
from fsd.models.adapters import attach, check_adapter
from fsd.models.finetuning import check_training, finetune
from fsd.models.language_model import LanguageModel
from fsd.net.hub import EMBEDDED, EMBEDDED_TWIN, locate
from fsd.scoring import model as scoring
from fsd.scoring.deviation import Deviation
from fsd.scoring.model import ScoringJob, cache_folder, reader_names
from fsd.scoring.model_scorer import hidden_states
from fsd.token_stats import Scorer
from fsd.tracking import Run
from fsd.views import Detector, usable
from pipelines.common import datasets
from pipelines.common.adapter_files import recorded_training
from pipelines.common.detection import cheap, load_detectors
from pipelines.common.job import Job, files, passes

NOTHING = Split((), (), ())
TRAINING = "training"
"""Folder in the cache with the checkpoints of trainings."""
EMBEDDED_TARGET = "embedded"
PACKAGES = ("fsd", "torch", "transformers", "peft", "numpy")
"""Packages whose upgrade makes finished experiments run again."""


@dataclass(frozen=True)
class Inputs:
    """What a run reads: made by `read`.

    Attributes:
        config: of the run, with the embedded model of the domain where neither a model nor texts are given.
        detectors: the requested detectors.
        here: whether the texts have been read; those of a published benchmark are by `fetched`.
        documents: members and non-members.
        split: the same in parts.
        sources: file, embedded corpus or published benchmark → its version.
        remarks: what was left out, for the report.
    """

    config: FSDConfig
    detectors: Sequence[Detector]
    here: bool = False
    documents: Sequence[Document] = ()
    split: Split = NOTHING
    sources: Mapping[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()

    def fetched(self) -> "Inputs":
        """The same with the texts, downloaded if they are a published benchmark."""
        if self.here:
            return self
        data = self.config.data
        labelled = datasets.load_texts(data, self.config.model)
        split, remarks = datasets.split_texts(labelled.documents, data, self.config.seed)
        remarks = [*labelled.remarks, *remarks]
        return Inputs(self.config, self.detectors, True, labelled.documents, split, labelled.sources, remarks)


def read(config: FSDConfig) -> Inputs:
    """The texts and detectors of a run; texts of a published benchmark are left for `Inputs.fetched`."""
    config = datasets.with_embedded_model(config)
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
        passes=passes(inputs.detectors, texts, config.model, unseen=bool(split.unseen)) if texts else {},
        trained=[document.text for document in split.unseen],
        training=None if config.adapter else config.training,
        writes=["a registered adapter"],
        experiment=f"fsd-{data.domain}",
        notes=[] if config.placebo == "none" else [f"the placebo ({config.placebo}) is not part of the numbers"],
    )


def prepare(
    model: LanguageModel,
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
        strict=config.detection.detectors != "all",
        shots=config.detection.shots,
        seed=config.seed,
    )


def load_model(config: FSDConfig) -> LanguageModel:
    """The base model, with the adapter attached if one is reused."""
    uri = config.adapter
    adapter = distributed.from_main(lambda: tracking.fetch_adapter(uri)) if uri else None
    if adapter:
        check_adapter(adapter)  # before the base, which takes long
    model = language_model.load(config.model)
    if adapter:
        attach(model, adapter)
    return model


def train_adapter(
    model: LanguageModel, unseen: Sequence[Document], config: FSDConfig, run: Run | None, *, logged: bool = True
) -> None:
    """Fine-tune a fresh adapter on the unseen texts, and log every step to the run.

    The checkpoint of the training is in the cache until everything of the run is stored.
    """

    def log(numbers: Mapping[str, float], step: int) -> None:
        if run:
            run.log_metrics({f"train/{name}": value for name, value in numbers.items()}, step=step)

    texts = [document.text for document in unseen]
    cache = cache_folder(config.model)
    checkpoint = finetune(
        model,
        texts,
        config.training,
        seed=config.seed,
        log=log if logged else None,
        shown=distributed.is_main_process(),
        cache=cache / TRAINING if cache else None,
    )
    if run and checkpoint:
        run.when_stored.append(partial(shutil.rmtree, checkpoint, ignore_errors=True))


def with_power(results: Results, model: LanguageModel, config: FSDConfig) -> Results:
    """The results whose calibration says how well its domain check recognises texts of other kinds."""
    if results.calibration is None:
        return results
    of_benchmark = config.adapter is None and not isinstance(config.data.unseen, str)
    reference = reference_of(results.parts, unseen=of_benchmark)
    further = {}
    kind = splitting.kinds_of([*results.parts.validation, *results.parts.test])
    if splitting.has_both(kind):
        later = [d.text for d in (*results.parts.validation, *results.parts.test) if not d.member]
        further[LATER] = [text for text in later if text not in reference.texts]
    found = power(reference, further, lambda texts: hidden_states(model, texts))
    counts = Counter(reference.collections)
    sources = ", ".join(f"{name or 'unnamed'} ({count})" for name, count in counts.items())
    remarks = [] if set(counts) == {""} else [f"verdicts are by source; non-members have {len(counts)}: {sources}"]
    calibration = replace(results.calibration, reference=replace(reference, power=found))
    return replace(results, calibration=calibration, remarks=[*results.remarks, *remarks])


def measure(
    model: LanguageModel,
    split: Split,
    detectors: Sequence[Detector],
    config: FSDConfig,
    run: Run | None,
    *,
    scorers: Mapping[str, Scorer] | None = None,
    logged: bool = True,
) -> tuple[ScoringJob, Deviation]:
    """Prepare, fine-tune a fresh adapter, and score before and after; base scores alone if `scorers` lack `tuned`."""
    work = prepare(model, split, detectors, config, scorers)
    if "tuned" in work.scorers:
        train_adapter(model, split.unseen, config, run, logged=logged)
    return work, work.score()


def tag(content: object) -> str:
    """Hash by which a finished experiment is found again: of its settings and texts, and of the packages' versions."""
    versions = [version(package) for package in PACKAGES]
    return hashlib.sha256(json.dumps([content, versions], sort_keys=True).encode()).hexdigest()


# The placebo: the same procedure on a model that was trained on none of the texts


@dataclass(frozen=True)
class Placebo:
    """A control model that goes through the same procedure; made by `plan_placebo` before anything is trained.

    Attributes:
        config: of the control run; `config.model.model` is the control model.
        detectors: the detectors that can be computed on it.
    """

    config: FSDConfig
    detectors: Sequence[Detector]

    def deviation(self, split: Split, run: Run | None = None) -> tuple[str, Deviation]:
        """Name of the control model, and the scores of the validation and test texts before and after fine-tuning."""
        _, deviation = measure(load_model(self.config), split, self.detectors, self.config, run, logged=False)
        return self.config.model.model, deviation


def plan_placebo(config: FSDConfig, split: Split, detectors: Sequence[Detector]) -> tuple[Placebo | None, list[str]]:
    """The control model of a run and the detectors that it can compute, and remarks for the report.

    Detectors that take many forward passes (`recall`, `neighbour`) are left out. With a reused adapter the control is
    trained as that adapter was.
    """
    name = placebo_model(config, [*split.validation, *split.test])
    if name is None:
        return None, []
    locate(name)
    remarks = []
    training = config.training
    if config.adapter:
        recorded = recorded_training(config.adapter)
        training = recorded or training
        if recorded is None:
            remarks.append("placebo: how the adapter was trained is not recorded; its control is trained by default")
    reference = control_reference(config, name, [*split.validation, *split.test])
    model = replace(config.model, model=name, revision=None, reference_model=reference, frequencies=None)
    control = replace(
        config,
        model=model,
        training=training,
        adapter=None,
        detection=replace(config.detection, detectors="all"),
    )
    texts = [document.text for document in (*split.validation, *split.test)]
    computable, _ = usable(cheap(detectors), texts, reader_names(model))
    if not computable:
        return None, ["no placebo: the control model can compute none of these detectors"]
    return Placebo(control, computable), remarks


def placebo_model(config: FSDConfig, documents: Sequence[Document]) -> str | None:
    """The control model, trained on none of the documents; None for no control.

    An embedded target was trained on its corpus and nothing else that anyone has, and the twin on none of it. So `auto`
    is the twin if any document is in such a corpus, and the target `embedded` otherwise. A model that is known to have
    seen none of the documents needs no control: the run is one itself.
    """
    if config.placebo == "none":
        return None
    if config.placebo != "auto":
        return config.placebo
    if never_saw(config, documents):
        return None
    return EMBEDDED_TWIN if _domains_of(documents) else EMBEDDED_TARGET


def control_reference(config: FSDConfig, control: str, documents: Sequence[Document]) -> str | None:
    """The reference model of a control: the one given, or of the embedded twin the target of another domain."""
    given = config.model.reference_model
    if given:
        return given if given != control else None
    if control != EMBEDDED_TWIN:
        return None
    read = _domains_of(documents)
    return next((corpus.model for domain, corpus in embedded.CORPORA.items() if domain not in read), None)


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
