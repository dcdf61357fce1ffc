"""One experiment of the main job, of tuning and of studies: its texts, the training, the scoring, and the results."""

import functools
import hashlib
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detectors import Detector
from fsd import distributed, tracking
from fsd.config import AUTO, AdapterConfig, FSDConfig, ModelConfig, check_training
from fsd.data import benchmarks
from fsd.data.corpus import Corpus, Split
from fsd.data.knowledge_cutoffs import HOLDING, Labels
from fsd.data.periods import has_both
from fsd.data.readers import read_files
from fsd.data.reading import read_otherwise
from fsd.files import digest
from fsd.net.hub import EMBEDDED, fingerprint, locate
from fsd.scoring import model as scoring
from fsd.scoring.deviation import ScoreTable
from fsd.scoring.model import Model, outline
from fsd.scoring.plan import ScoringPlan
from fsd.scoring.scorers import STATES, cache_folder, cache_store, frequency_file, hidden_state_reader, reference_name
from fsd.token_stats import chats_of
from fsd.tracking import Run
from fsd.views import ViewInputs, reading
from pipelines.command.job import OWN_TEXTS, Job, Passes, Stated, files, names
from pipelines.experiment.adapter_files import UNSEEN, recorded_training
from pipelines.experiment.control import control_model, control_reference, never_saw, uncontrolled
from pipelines.experiment.detector_settings import calibrated_scores, cheap, load_detectors, shots_of
from pipelines.experiment.inputs import (
    check_tokenizers,
    continuable,
    labelled_texts,
    load_texts,
    split_texts,
    texts_to_adapt,
    with_embedded_model,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from fsd.evaluation.results import Results
    from fsd.models.finetuning import StepLog
    from fsd.models.language_model import LanguageModel
    from fsd.text_audit.audited import Audit
    from fsd.verdicts.domain_check import Reference

# Folder in the cache with the trainings.
TRAINING = "training"
# An upgrade of one of them may change numbers, so finished experiments run again after it.
PACKAGES = ("fsd", "torch", "transformers", "peft", "numpy")


class Experiment(NamedTuple):
    """Settings, detectors and texts, made by `read`; texts of a published benchmark are not here before `fetched`.

    The control model has one of its own: the same texts with another model.
    """

    config: FSDConfig
    detectors: Sequence[Detector]
    texts_are_local: bool = False
    documents: Corpus = Corpus()
    split: Split = Split((), (), ())
    sources: Mapping[str, str] = {}
    remarks: Sequence[str] = ()
    labels: Labels = HOLDING
    read: str = ""
    """What was read of files, in words, where it is not the plain case."""

    def fetched(self) -> "Experiment":
        """The same with the texts, downloaded if they are a published benchmark."""
        if self.texts_are_local:
            return self
        config = self.config
        texts = load_texts(config.data, config.model)
        documents, too_short = continuable(texts.documents, self.detectors)
        check_tokenizers(config, documents)
        split, left_out = split_texts(documents, config.data, config.seed)
        remarks = list(texts.remarks) + too_short + left_out
        words = read_otherwise(documents) if config.data.places else ""
        labels = texts.labels(config)
        fetched = self._replace(texts_are_local=True, documents=documents, split=split, sources=texts.sources)
        return fetched._replace(remarks=remarks, labels=labels, read=words)

    def with_adapter_texts(self) -> "Experiment":
        """The same with the unseen texts that a reused adapter was trained on, if recorded: for audit and `recall`."""
        adapter = self.config.adapter
        file = adapter and distributed.from_main(lambda: tracking.fetch_model_file(adapter, UNSEEN))
        if not file:
            return self
        # The file has no labels, since all of them are unseen.
        unseen = [replace(document, member=False) for document in read_files([file], answers=True)]
        return self._replace(split=self.split.replace(unseen=unseen))

    @property
    def states(self) -> Sequence[str]:
        """The states in which texts are scored: the base alone without unseen texts, since nothing is trained then."""
        if not self.split.unseen:
            return ("base",)
        return STATES

    @property
    def shots(self) -> int:
        """Number of unseen texts in the prefix of `recall`."""
        return shots_of(self.config.detection, self.config.model.model)

    def job(self, work: Callable[[], object]) -> Job:
        """The job of a run."""
        config = self.config
        split = self.split
        reads: dict[str, str] = {"texts": self._reads()}
        if config.adapter:
            reads["adapter"] = config.adapter
        notes = list(self.labels.notes)
        if config.placebo != "none":
            notes.append(
                f"the control model ({config.placebo}) is not part of the numbers: it takes about as much again"
            )
        if split.validation:
            notes.append(OWN_TEXTS)
        texts = split.judged.texts
        counts: Passes = {}
        if texts:
            plan = self.planned(outline(config.model, self.states, seed=config.seed))
            counts = plan.passes
            learned = self._replace(detectors=plan.detectors).adapting
            if learned:
                steps = math.ceil(len(learned) / config.training.batch_size)
                notes.append(
                    f"the reference model is fine-tuned as well, in {steps} more steps: once on {len(learned)} of the "
                    "unseen texts"
                )
            lacking = uncontrolled(config, split.judged, plan.detectors)
            if lacking:
                notes.append(f"{lacking}: where one of these is the best, the answer stays open")
        scored = texts if self.texts_are_local else None  # those of a benchmark are counted when it has been downloaded
        training = None if config.adapter else config.training
        return Job(
            work,
            reads,
            config.model,
            scored,
            counts,
            split.unseen.texts,
            training,
            writes=["a registered adapter"],
            experiment=f"fsd-{config.data.domain}",
            notes=notes,
            adapter=config.adapter,
            further=self._control_names(),
            read=self.read,
        )

    def _control_names(self) -> dict[str, str]:
        """The control model by its flag, as far as it is known before the texts are here."""
        control: str | None = self.config.placebo
        if self.texts_are_local:
            control = control_model(self.config, self.split.judged)
        if control in (None, AUTO, "none"):
            return {}
        return {"placebo": control}

    def _reads(self) -> Stated:
        data = self.config.data
        if not self.texts_are_local:
            published = names(list(filter(benchmarks.is_name, data.data)), f"the published benchmark of {data.domain}")
            return Stated(f"{published}: downloaded, if it is not in the cache", {"benchmarks": published.value})
        sizes = {name: len(part) for name, part in self.split._asdict().items()}
        words = ", ".join(f"{size:,} {name}" for name, size in sizes.items())
        return files(data.places or ["the embedded corpus"], sum(sizes.values()), f": {words}", **sizes)

    def open(self) -> Model:
        """The model, with the adapter attached if one is reused."""
        adapter = None
        uri = self.config.adapter
        if uri:
            adapter = distributed.from_main(lambda: tracking.fetch_adapter(uri))
        return scoring.open_model(self.config.model, states=STATES, adapter=adapter, seed=self.config.seed)

    @property
    def adapting(self) -> Corpus:
        """The unseen texts that the reference model is fine-tuned on, if a detector asks for that."""
        if not any(detector.adapts_reference for detector in self.detectors):
            return Corpus()
        return texts_to_adapt(self.split.unseen, self.config.seed)

    def _given(self, model: Model, **labelled: Any) -> ViewInputs:
        """What the unseen texts are for the detectors, and perhaps the `labelled` texts."""
        return model.inputs(self.split.unseen.prompts, shots=self.shots, adapting=self.adapting.prompts, **labelled)

    def planned(self, model: Model) -> ScoringPlan:
        """The scoring of the validation and test texts, with what the split has for the detectors."""
        # Those that will be learned, too.
        model.check_chats(self.split.unseen.prompts)
        inputs = self._given(model, labelled=labelled_texts(self.split, self.detectors))
        return model.plan(self.detectors, self.split.judged.prompts, inputs, strict=self.config.detection.named)

    def prepare(self, model: Model) -> ScoringPlan:
        """Check that the validation and test texts can be scored, and the model trained, as the configuration says."""
        from fsd.models.finetuning import plan

        # With an adapter, or without the tuned state, nothing is trained.
        if "tuned" in model.scorers and not self.config.adapter and not model.language_model.adapted:
            # For its refusals: the plan itself is made anew when the training begins.
            plan(model.language_model, self.split.unseen.prompts, self.config.training)
        return self.planned(model)

    def trains(self, model: Model) -> bool:
        """Whether an adapter is trained, and not taken from the cache."""
        from fsd.models.finetuning import FINISHED, pieces_of, stored

        config = self.config
        if config.adapter:
            return False
        pieces = list(pieces_of(model.language_model, self.split.unseen.prompts))
        place = stored(model.language_model, pieces, config.training, config.seed, self._trainings())
        return not place or not (place / FINISHED).exists()

    def train(self, model: Model, run: Run | None) -> None:
        """Fine-tune a fresh adapter on the unseen texts, or take it from the cache, and log every step to the run."""

        def log(steps: Mapping[int, Mapping[str, float]]) -> None:
            if run:
                run.log_curves(_curves(steps))

        if not self.config.adapter:
            self._finetune(model.language_model, self.split.unseen, self.config.training, log)
        self.adapt_reference(model)

    def adapt_reference(self, model: Model) -> None:
        """Fine-tune the reference model as well, on its part of the unseen texts, if a detector asks for it.

        It reads them once: more passes made the scores against it worse (docs/lab/second_reference.md).
        """
        learned = self.adapting
        if learned and model.reference:
            reference: LanguageModel = model.load_reference()
            if chats_of(learned.prompts):
                # Chats are learned as they are scored: by the template of the target.
                reference.template = reference.template or model.language_model.chats.template
            training = self.config.training
            # AdaLoRA needs more steps than a pass has.
            method = "lora" if training.method == "adalora" else training.method
            if not reference.adapted:
                self._finetune(reference, learned, replace(training, method=method, epochs=1))

    def _finetune(
        self, model: "LanguageModel", texts: Corpus, training: AdapterConfig, log: "StepLog | None" = None
    ) -> None:
        from fsd.models.finetuning import finetune

        finetune(
            model,
            texts.prompts,
            training,
            seed=self.config.seed,
            log=log,
            shown=distributed.is_main_process(),
            cache=self._trainings(),
        )

    def _trainings(self) -> Path | None:
        """The folder of trainings in the cache, if there is one."""
        cache = cache_folder(self.config.model)
        if cache:
            return cache / TRAINING
        return None

    def measure(self, language_model: "LanguageModel", run: Run | None) -> tuple[ScoringPlan, ScoreTable]:
        """Prepare, fine-tune a fresh adapter, and score before and after; base scores alone without unseen texts."""
        # The model may have the adapter of another experiment, so that the states are those of this one.
        config = self.config
        model = scoring.open_model(config.model, states=self.states, local=language_model, seed=config.seed)
        plan = self.prepare(model)
        if self.split.unseen:
            self._replace(detectors=plan.detectors).train(model, run)
        return plan, plan.score()

    def control(self) -> tuple["Experiment | None", list[str]]:
        """The same with the control model, trained as a reused adapter was, and remarks; None without a control.

        Its detectors are the cheap ones that it can compute.
        """
        config = self.config
        documents = self.split.judged
        name = control_model(config, documents)
        if name is None:
            return None, []
        # A model that is not there is refused before the training of the one under test.
        locate(name)
        remarks = []
        training = config.training
        if config.adapter:
            recorded = recorded_training(config.adapter)
            if recorded:
                training = recorded
            else:
                remarks.append("control model: trained by default settings, as those of the adapter are not recorded")
        # The revision is one of the model under test, and so are the token frequencies, of its tokenizer.
        model = replace(
            config.model,
            model=name,
            revision=None,
            reference_model=control_reference(config, name, documents),
            frequencies=None,
        )
        # The same prefix as that of the model under test. Detectors that were named for the model need not be
        # computable by its control.
        detection = replace(config.detection, detectors=AUTO, shots=self.shots)
        control = self._replace(
            config=replace(config, model=model, training=training, adapter=None, detection=detection)
        )
        outlined = outline(model, seed=config.seed)
        plan = outlined.plan(cheap(self.detectors), documents.prompts, control._given(outlined))
        if not plan.detectors:
            return None, ["no control model: it can compute none of these detectors"]
        return control._replace(detectors=plan.detectors), remarks

    @contextmanager
    def scored_beside(self) -> "Iterator[Future[None] | None]":
        """What scores an embedded control into the cache, in a process beside this one; None for others.

        Such models are so small that they leave cores idle, and take no memory worth counting.
        """
        if distributed.num_processes() > 1 or self.config.model.model not in EMBEDDED or not self._trainings():
            yield None
            return
        from joblib.externals.loky import ProcessPoolExecutor

        # Where this process is killed, the other ends after its work. It returns nothing, which nobody might fetch.
        with ProcessPoolExecutor(1, timeout=10, initializer=_in_the_background) as executor:
            yield executor.submit(_score_into_cache, self)

    def scores_of_control(self) -> tuple[str, ScoreTable]:
        """Name of the model, a control, and the scores of the validation and test texts before and after training."""
        from fsd.models.language_model import load

        # The steps of its training are not logged to the run, which has those of the model under test.
        _, scored = self.measure(load(self.config.model), None)
        return self.config.model.model, scored

    def audit(self) -> "Audit":
        """The text audit, made once for the same texts and settings."""
        from fsd.evaluation.remembered import remembered
        from fsd.text_audit.audit import audit
        from fsd.text_audit.audited import Audit

        settings = {"seed": self.config.seed, "repeats": self.config.audit_repeats}

        def depends() -> list[object]:
            judged = self.split.judged
            texts = [list(map(asdict, part)) for part in self.split]
            return [settings, texts, judged.family.tolist(), judged.kind.tolist()]

        store = cache_store(self.config.model)
        return remembered(partial(audit, self.split, **settings), Audit, store, depends)

    def results(
        self, scored: ScoreTable, control: tuple[str, ScoreTable] | None, remarks: Sequence[str], **how: Any
    ) -> "Results":
        """The results of what was measured, with what is known of model and texts; calibrated if labels hold."""
        from fsd.evaluation.results import compute_results

        config = self.config
        remarks = list(self.remarks) + list(remarks)
        results = compute_results(
            self.split, scored, control, self.detectors, remarks=remarks, seed=config.seed, audited=self.audit, **how
        )
        best = [detector for detector in self.detectors if detector.name == results.headline.detector]
        lacking = "" if results.lead else uncontrolled(config, self.split.judged, best)
        seen_none = never_saw(config, self.documents)
        results = replace(results, never_saw=seen_none, labels=self.labels, uncontrolled=lacking)
        # Error rates are shares of the non-members, which therefore must be non-members.
        if not self.labels.hold:
            return replace(results, calibration=None)
        return results

    def with_power(self, results: "Results", model: Model) -> "Results":
        """The results whose calibration says how well its domain check recognises texts of other kinds."""
        if results.calibration is None:
            return results
        # The other processes have ended.
        with distributed.alone():
            if distributed.num_processes() > 1:
                model = scoring.open_model(
                    self.config.model, states=self.states, local=model.language_model, seed=self.config.seed
                )
            reference = self.tried(model)
            inputs = self._given(model)
            reference = reference.with_own_scores(partial(calibrated_scores, model, results.calibration, inputs=inputs))
        remarks = list(results.remarks)
        counts = Counter(reference.sources)
        if set(counts) != {""}:
            sources = ", ".join(f"{name or 'unnamed'} ({count})" for name, count in counts.items())
            remarks.append(f"verdicts are by source; non-members have {len(counts)}: {sources}")
        return replace(results, calibration=replace(results.calibration, reference=reference), remarks=remarks)

    def tried(self, model: Model) -> "Reference":
        """What texts are compared with, and how well that tells texts of other kinds: tried once for the same texts.

        The model, whose adapter is that of the run, also writes texts of its own, by which the check is tried.
        """
        from fsd.evaluation.remembered import remembered
        from fsd.evaluation.results import reference_of
        from fsd.scoring.sampling import own_texts
        from fsd.verdicts.domain_check import LATER, Earlier, Trial, trial

        config = self.config
        language_model = model.language_model
        # Texts of a file, or of a reused adapter, need not be of the benchmark's kind.
        own_unseen = config.adapter is None and not isinstance(config.data.unseen, str)
        reference = reference_of(self.split, unseen=own_unseen)
        judged = self.split.judged
        further = {}
        if has_both(judged.kind):
            compared = set(reference.texts)
            nonmembers = judged.take(~judged.members).wholes
            further[LATER] = [text for text in nonmembers if text not in compared]
        states = hidden_state_reader(language_model, config.model)
        earlier = Earlier(model.earlier, tuple(map(tuple, model.typicality(reference.texts).tolist())))
        reference = replace(reference, earlier=earlier)

        def depends() -> list[object]:
            return [reference.texts, reference.families, reference.sources, earlier, further, states.key]

        write = partial(own_texts, language_model)
        tried = partial(trial, reference, further, states, model.typicality, write)
        return remembered(tried, Trial, states.store, depends).added_to(reference)


def _score_into_cache(control: Experiment) -> None:
    control.scores_of_control()


def _in_the_background() -> None:
    """Leave the cores to the run, and show no progress."""
    os.nice(10)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the process ends


def _curves(steps: Mapping[int, Mapping[str, float]]) -> dict[int, dict[str, float]]:
    """The numbers of each step of a training, under the names of curves."""
    curves = {}
    for step, numbers in steps.items():
        metrics = {f"train/{name}": value for name, value in numbers.items()}
        # They differ where a method adds a penalty to the loss, such as adalora; else one curve is enough.
        if numbers.get("lm_loss") == numbers["loss"]:
            del metrics["train/lm_loss"]
        curves[step] = metrics
    return curves


def read(config: FSDConfig) -> Experiment:
    """The texts and detectors of a run; texts of a published benchmark are left for `Experiment.fetched`."""
    config = with_embedded_model(config)
    experiment = Experiment(config, load_detectors(config.detection))
    if config.adapter is None:
        check_training(config.training)
    # Checks, and dry runs, shall not wait for a download.
    if any(map(benchmarks.is_name, config.data.data)):
        return experiment
    if not config.data.places and config.model.model not in EMBEDDED:
        return experiment
    return experiment.fetched()


def tag(content: object) -> str:
    """Hash by which a finished experiment is found again: of its settings and texts, and of the packages' versions."""
    versions = list(map(version, PACKAGES))
    hashed = json.dumps([content, versions], sort_keys=True)
    return hashlib.sha256(hashed.encode()).hexdigest()


@functools.cache
def weights_of(model: str, revision: str | None = None) -> str:
    """Hash of a model's weights; once: for a large model it takes minutes, and many cells share it."""
    return fingerprint(locate(model, revision)[0])


def read_besides(model: ModelConfig, detectors: Sequence[Detector]) -> dict[str, str | None]:
    """Hashes of what the detectors read besides the model; what none of them reads leaves finished cells valid."""
    hashes: dict[str, str | None] = {}
    reference = reference_name(model)
    if reference and any(detector.reads_reference for detector in detectors):
        hashes["reference"] = weights_of(reference)
    if reading({"unigram"}, detectors):
        table = frequency_file(model)
        hashes["frequencies"] = digest(table) if table else None
    if model.neighbour_model not in (None, "words"):
        hashes["neighbours"] = weights_of(str(model.neighbour_model))
    return hashes
