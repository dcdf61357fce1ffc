"""One experiment of the main job, of tuning and of studies: the training, the scoring, and what they measure."""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detectors import Detector
from fsd import distributed, tracking
from fsd.config import AUTO, FSDConfig, ModelConfig
from fsd.data import benchmarks, splitting
from fsd.data.corpus import Corpus
from fsd.data.splitting import Split
from fsd.files import digest
from fsd.net.hub import fingerprint, locate
from fsd.scoring import model as scoring
from fsd.scoring.deviation import ScoreTable
from fsd.scoring.model import Model, outline
from fsd.scoring.plan import ScoringPlan
from fsd.scoring.scorers import STATES, cache_folder, cache_store, frequency_file, hidden_state_reader, reference_name
from fsd.tracking import Run
from pipelines.command.job import OWN_TEXTS, Job, Stated, files, names
from pipelines.experiment.adapter_files import recorded_training
from pipelines.experiment.control import control_model, control_reference, never_saw, uncontrolled
from pipelines.experiment.detector_settings import calibrated_scores, cheap, shots_of
from pipelines.experiment.inputs import Inputs, labelled_texts

if TYPE_CHECKING:
    from fsd.evaluation.results import Results
    from fsd.models.language_model import LanguageModel
    from fsd.text_audit.audited import Audit

# Folder in the cache with the trainings.
TRAINING = "training"
# An upgrade of one of them may change numbers, so finished experiments run again after it.
PACKAGES = ("fsd", "torch", "transformers", "peft", "numpy")


def job(work: Callable[[], object], inputs: Inputs) -> Job:
    """The job of a run."""
    config = inputs.config
    split = inputs.split
    reads: dict[str, str] = {"texts": _reads(inputs)}
    if config.adapter:
        reads["adapter"] = config.adapter
    notes = list(inputs.labels.notes)
    if config.placebo != "none":
        notes.append(f"the control model ({config.placebo}) is not part of the numbers: it takes about as much again")
    if split.validation:
        notes.append(OWN_TEXTS)
    texts = split.judged.texts
    counts: Mapping[str, int] = {}
    if texts:
        model = outline(config.model, states_of(split), seed=config.seed)
        plan = planned(model, split, inputs.detectors, config)
        counts = plan.passes
        lacking = uncontrolled(config, split.judged, plan.detectors)
        if lacking:
            notes.append(f"{lacking}: where one of these is the best, the answer stays open")
    scored = texts if inputs.texts_are_local else None  # those of a benchmark are counted when it has been downloaded
    trained = split.unseen.texts
    training = None if config.adapter else config.training
    domain_experiment = f"fsd-{config.data.domain}"
    control_models = _control_models(inputs)
    return Job(
        work,
        reads,
        config.model,
        scored,
        counts,
        trained,
        training,
        writes=["a registered adapter"],
        experiment=domain_experiment,
        notes=notes,
        adapter=config.adapter,
        further=control_models,
        read=inputs.read,
    )


def _control_models(inputs: Inputs) -> dict[str, str]:
    """The control model by its flag, as far as it is known before the texts are here."""
    config = inputs.config
    control: str | None = config.placebo
    if inputs.texts_are_local:
        control = control_model(config, inputs.split.judged)
    elif control in (AUTO, "none"):
        control = None
    if control:
        return {"placebo": control}
    return {}


def _reads(inputs: Inputs) -> Stated:
    data = inputs.config.data
    if not inputs.texts_are_local:
        published = names(list(filter(benchmarks.is_name, data.data)), f"the published benchmark of {data.domain}")
        return Stated(f"{published}: downloaded, if it is not in the cache", {"benchmarks": published.value})
    sizes = {name: len(part) for name, part in inputs.split._asdict().items()}
    words = ", ".join(f"{size:,} {name}" for name, size in sizes.items())
    return files(data.places or ["the embedded corpus"], sum(sizes.values()), f": {words}", **sizes)


def states_of(split: Split) -> Sequence[str]:
    """The states in which texts are scored: the base alone without unseen texts, since nothing is trained then."""
    if not split.unseen:
        return ("base",)
    return STATES


def planned(model: Model, split: Split, detectors: Sequence[Detector], config: FSDConfig) -> ScoringPlan:
    """The scoring of the validation and test texts, with what the split has for the detectors."""
    # Those that will be learned, too.
    model.check_chats(split.unseen.prompts)
    inputs = model.inputs(
        split.unseen.prompts,
        shots=shots_of(config.detection, config.model.model),
        labelled=labelled_texts(split, detectors),
    )
    return model.plan(detectors, split.judged.prompts, inputs, strict=config.detection.named)


def prepare(model: Model, split: Split, detectors: Sequence[Detector], config: FSDConfig) -> ScoringPlan:
    """Check that the validation and test texts can be scored, and the model trained, as the configuration says."""
    from fsd.models.finetuning import plan

    # With an adapter, or without the tuned state, nothing is trained.
    if "tuned" in model.scorers and not config.adapter and not model.language_model.adapted:
        # For its refusals: the plan itself is made anew when the training begins.
        plan(model.language_model, split.unseen.prompts, config.training)
    return planned(model, split, detectors, config)


def open_with_adapter(config: FSDConfig) -> Model:
    """The model of a run, with the adapter attached if one is reused."""
    adapter = None
    uri = config.adapter
    if uri:
        adapter = distributed.from_main(lambda: tracking.fetch_adapter(uri))
    return scoring.open_model(config.model, states=STATES, adapter=adapter, seed=config.seed)


def train_adapter(model: "LanguageModel", unseen: Corpus, config: FSDConfig, run: Run | None) -> None:
    """Fine-tune a fresh adapter on the unseen texts, or take it from the cache, and log every step to the run."""
    from fsd.models.finetuning import finetune

    def log(steps: Mapping[int, Mapping[str, float]]) -> None:
        if run is None:
            return
        curves = {}
        for step, numbers in steps.items():
            metrics = {f"train/{name}": value for name, value in numbers.items()}
            # They differ where a method adds a penalty to the loss, such as adalora; else one curve is enough.
            if numbers.get("lm_loss") == numbers["loss"]:
                del metrics["train/lm_loss"]
            curves[step] = metrics
        run.log_curves(curves)

    finetune(
        model,
        unseen.prompts,
        config.training,
        seed=config.seed,
        log=log,
        shown=distributed.is_main_process(),
        cache=_trainings(config),
    )


def _trainings(config: FSDConfig) -> Path | None:
    """The folder of trainings in the cache, if there is one."""
    cache = cache_folder(config.model)
    if cache:
        return cache / TRAINING
    return None


def audited(split: Split, config: FSDConfig) -> "Audit":
    """The text audit, made once for the same texts and settings."""
    from fsd.evaluation.remembered import remembered
    from fsd.text_audit.audit import audit
    from fsd.text_audit.audited import Audit

    settings = {"seed": config.seed, "repeats": config.audit_repeats}

    def depends() -> list[object]:
        judged = split.judged
        texts = [list(map(asdict, part)) for part in split]
        return [settings, texts, judged.family.tolist(), judged.kind.tolist()]

    return remembered(partial(audit, split, **settings), Audit, cache_store(config.model), depends)


def measure(
    language_model: "LanguageModel", split: Split, detectors: Sequence[Detector], config: FSDConfig, run: Run | None
) -> tuple[ScoringPlan, ScoreTable]:
    """Prepare, fine-tune a fresh adapter, and score before and after; base scores alone without unseen texts."""
    # The model may have the adapter of another experiment, so that the states are those of this one.
    model = scoring.open_model(config.model, states=states_of(split), local=language_model, seed=config.seed)
    plan = prepare(model, split, detectors, config)
    if split.unseen:
        train_adapter(language_model, split.unseen, config, run)
    return plan, plan.score()


def compute_results(
    inputs: Inputs,
    split: Split,
    scored: ScoreTable,
    control: tuple[str, ScoreTable] | None,
    *,
    remarks: Sequence[str],
    **how: Any,
) -> "Results":
    """The results of what was measured, with what is known of the model and the inputs; calibrated if labels hold."""
    from fsd.evaluation import results

    config = inputs.config
    remarks = list(inputs.remarks) + list(remarks)
    judged = results.compute_results(
        split,
        scored,
        control,
        inputs.detectors,
        remarks=remarks,
        seed=config.seed,
        audited=partial(audited, split, config),
        **how,
    )
    best = [detector for detector in inputs.detectors if detector.name == judged.headline.detector]
    lacking = "" if judged.lead else uncontrolled(config, split.judged, best)
    judged = replace(judged, never_saw=never_saw(config, inputs.documents), labels=inputs.labels, uncontrolled=lacking)
    # Error rates are shares of the non-members, which therefore must be non-members.
    if not inputs.labels.hold:
        return replace(judged, calibration=None)
    return judged


def with_power(results: "Results", model: Model, config: FSDConfig) -> "Results":
    """The results whose calibration says how well its domain check recognises texts of other kinds.

    The model, whose adapter is that of the run, also writes texts of its own, by which the check is tried.
    """
    from fsd.evaluation.remembered import remembered
    from fsd.evaluation.results import reference_of
    from fsd.scoring.sampling import own_texts
    from fsd.verdicts.domain_check import LATER, Earlier, Trial, trial

    if results.calibration is None:
        return results
    language_model = model.language_model
    several = distributed.num_processes() > 1
    # Texts of a file, or of a reused adapter, need not be of the benchmark's kind.
    own_unseen = config.adapter is None and not isinstance(config.data.unseen, str)
    reference = reference_of(results.parts, unseen=own_unseen)
    judged = results.parts.judged
    further = {}
    if splitting.has_both(judged.kind):
        compared = set(reference.texts)
        nonmembers = judged.take(~judged.members).wholes
        further[LATER] = [text for text in nonmembers if text not in compared]
    states = hidden_state_reader(language_model, config.model)
    # The other processes have ended.
    with distributed.alone():
        if several:
            model = scoring.open_model(
                config.model, states=states_of(results.parts), local=language_model, seed=config.seed
            )
        earlier = Earlier(model.earlier, tuple(map(tuple, model.typicality(reference.texts).tolist())))
        reference = replace(reference, earlier=earlier)

        def depends() -> list[object]:
            return [reference.texts, reference.families, reference.sources, earlier, further, states.key]

        write = partial(own_texts, language_model)
        tried = partial(trial, reference, further, states, model.typicality, write)
        reference = remembered(tried, Trial, states.store, depends).added_to(reference)
        inputs = model.inputs(results.parts.unseen.prompts, shots=shots_of(config.detection, config.model.model))
        reference = reference.with_own_scores(partial(calibrated_scores, model, results.calibration, inputs=inputs))
    remarks = list(results.remarks)
    counts = Counter(reference.sources)
    if set(counts) != {""}:
        sources = ", ".join(f"{name or 'unnamed'} ({count})" for name, count in counts.items())
        remarks.append(f"verdicts are by source; non-members have {len(counts)}: {sources}")
    calibration = replace(results.calibration, reference=reference)
    return replace(results, calibration=calibration, remarks=remarks)


def tag(content: object) -> str:
    """Hash by which a finished experiment is found again: of its settings and texts, and of the packages' versions."""
    versions = list(map(version, PACKAGES))
    hashed = json.dumps([content, versions], sort_keys=True)
    return hashlib.sha256(hashed.encode()).hexdigest()


@functools.cache
def weights_of(model: str, revision: str | None = None) -> str:
    """Hash of a model's weights; once: for a large model it takes minutes, and many cells share it."""
    return fingerprint(locate(model, revision)[0])


def read_besides(model: ModelConfig, detectors: Iterable[Detector]) -> dict[str, str | None]:
    """Hashes of what the detectors read besides the model; what none of them reads leaves finished cells valid."""
    views: set[str] = set()
    for detector in detectors:
        views.update(detector.views)
    hashes: dict[str, str | None] = {}
    reference = reference_name(model)
    if reference and {"reference", "difference"} & views:
        hashes["reference"] = weights_of(reference)
    if "unigram" in views:
        table = frequency_file(model)
        hashes["frequencies"] = digest(table) if table else None
    if model.neighbour_model not in (None, "words"):
        hashes["neighbours"] = weights_of(str(model.neighbour_model))
    return hashes


class ControlModel(NamedTuple):
    """A control model, of `config`, that goes through the same procedure, and the detectors that it can compute."""

    config: FSDConfig
    detectors: Sequence[Detector]

    def score(self, split: Split) -> tuple[str, ScoreTable]:
        """Name of the control model, and the scores of the validation and test texts before and after fine-tuning."""
        from fsd.models.language_model import load

        model = self.config.model
        # The steps of its training are not logged to the run, which has those of the model under test.
        _, scored = measure(load(model), split, self.detectors, self.config, None)
        return model.model, scored


def plan_control(
    config: FSDConfig, split: Split, detectors: Sequence[Detector]
) -> tuple[ControlModel | None, list[str]]:
    """The control model, trained as a reused adapter was, the cheap detectors that it can compute, and remarks."""
    documents = split.judged
    name = control_model(config, documents)
    if name is None:
        return None, []
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
    outlined = outline(model, seed=config.seed)
    # The same prefix as that of the model under test, whichever the control is.
    shots = shots_of(config.detection, config.model.model)
    inputs = outlined.inputs(split.unseen.prompts, shots=shots)
    computable = outlined.plan(cheap(detectors), documents.prompts, inputs).detectors
    if not computable:
        return None, ["no control model: it can compute none of these detectors"]
    # Detectors that were named for the model need not be computable by its control.
    detection = replace(config.detection, detectors=AUTO, shots=shots)
    control = replace(config, model=model, training=training, adapter=None, detection=detection)
    return ControlModel(control, computable), remarks
