"""The tracked run of the main job, and its adapter as a registered model."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from detectors import Detector
from fsd import distributed, tracking
from fsd.config import AdapterConfig, DataConfig, FSDConfig, flags
from fsd.data.corpus import Split
from fsd.data.documents import content_hash, digest
from fsd.data.splitting import DEFAULT_VALIDATION
from fsd.evaluation import sentences
from fsd.evaluation.answer import Answer
from fsd.evaluation.results import Results
from fsd.models.adapters import copy_adapter, save_adapter, target_names
from fsd.models.language_model import BaseIdentity, LanguageModel
from fsd.net.hub import EMBEDDED
from fsd.reporting.report import Report, document, limits, markdown
from fsd.reporting.results import detectors_table
from fsd.scores import Score
from fsd.scoring.model import Model
from fsd.scoring.scorers import reference_name
from fsd.tracking import Run, Version, register
from fsd.tracking import versions as own_versions
from fsd.tracking.registry import DIGESTS
from pipelines.command.context import context
from pipelines.command.deliver import publish, run_name, tracked_run
from pipelines.experiment import adapter_files
from pipelines.experiment.detector_settings import BASE
from pipelines.experiment.experiment import Experiment
from pipelines.experiment.report import named, report

# Settings of the training that IA3 does not have.
OF_LORA = ("rank", "alpha", "dropout")


@contextmanager
def start(experiment: Experiment, model: LanguageModel, control: Experiment | None) -> Iterator[Run | None]:
    """Open the MLflow run of a main job; None in processes other than the main one."""
    if not distributed.is_main_process():
        yield None
        return
    config = experiment.config
    domain = config.data.domain
    method = "reused adapter" if config.adapter else config.training.method
    name = run_name(config.model.model, config.data.places or (domain,), f"{method} s{config.seed}")
    settings = params(experiment, control) | chosen_params(config, experiment.detectors)
    settings["device"] = str(model.device)
    tags = {"texts": named(experiment.sources), **_model_tags(config, model.identity)}
    with tracked_run(config, f"fsd-{domain}", name, params=settings, tags=tags) as run:
        yield run


def _model_tags(config: FSDConfig, identity: BaseIdentity) -> dict[str, object]:
    tags: dict[str, object] = {
        "base_model": identity.id,
        "base_revision": identity.revision or "local",
        "base_fingerprint": identity.fingerprint,
        "method": _method(config),
    }
    if config.adapter:
        tags["reused_adapter"] = config.adapter
    return tags


def _training(config: FSDConfig) -> AdapterConfig | None:
    """How the adapter of the run was trained; None for a reused one that does not record it."""
    if not config.adapter:
        return config.training
    # Only the main process gets here: a collective call would wait for the others without an end.
    return adapter_files.recorded_training(config.adapter, collective=False)


def _method(config: FSDConfig) -> str:
    training = _training(config)
    return training.method if training else "unknown"


def params(experiment: Experiment, control: Experiment | None) -> dict[str, object]:
    """The settings that tuning leaves as they are, as they are in effect, under their flags' names."""
    config = experiment.config
    settings = flags(config)
    # Those of `chosen_params`, where they are nested.
    for name in ("settings", *flags(config.training)):
        del settings[name]
    if config.data.validation is None:
        # The default depends on the split.
        settings["validation"] = DEFAULT_VALIDATION[config.data.split]
    # What the flags stand for, in place of `auto`.
    settings["data"] = list(experiment.sources)
    settings["reference_model"] = reference_name(config.model)
    settings["detectors"] = [detector.name for detector in experiment.detectors]
    settings["shots"] = experiment.shots
    settings["placebo"] = control.config.model.model if control else "none"
    return settings


def chosen_params(
    config: FSDConfig, detectors: Sequence[Detector], model: LanguageModel | None = None
) -> dict[str, object]:
    """The settings that tuning may choose: of the training, and of every detector."""
    settings = training_params(_training(config), model)
    if model is None:
        # It waits as well: experts that are fused have none.
        settings.pop("dropout", None)
    settings["detector"] = {d.name: {**d.settings, BASE: dict(d.base_settings)} for d in detectors}
    return settings


def training_params(training: AdapterConfig | None, model: LanguageModel | None = None) -> dict[str, object]:
    """The settings of a training that its method has, with the modules that it adapted if they are known."""
    if training is None:
        return {}
    settings = asdict(training)
    # MLflow refuses another value of a parameter, so that `auto` must wait for the modules that it stands for.
    if settings["target_modules"] == "auto":
        del settings["target_modules"]
        if model and model.adapted:
            settings["target_modules"] = target_names(model)
    if model and model.adapted:
        settings["dropout"] = getattr(model.model.active_peft_config, "lora_dropout", None)
    if training.method == "ia3":
        for name in OF_LORA:
            del settings[name]
    return settings


def track(
    run: Run,
    results: Results,
    experiment: Experiment,
    opened: Model,
    *,
    study: str = "",
    edit: Callable[[Report], Report] = lambda report: report,
) -> tuple[Report, Version | None]:
    """Log the report, and register the adapter with its calibration as a new version, which a study may have chosen."""
    # matplotlib is imported where something is drawn, and nowhere else.
    from pipelines.experiment.pictures import pictures

    config = experiment.config
    model = opened.language_model
    answer = Answer(results)
    log_texts(run, results.parts, config.data, experiment.sources)
    run.log_params(chosen_params(config, experiment.detectors, model))
    edited = edit(report(answer, experiment, model.identity, pictures(results)))
    publish(edited, run)
    version = None
    # What cannot be stored is raised at the end of the run; the report is shown all the same.
    with run.storing(), tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
        adapter = Path(scratch)
        if config.adapter:
            copy_adapter(tracking.fetch_adapter(config.adapter), model.identity, adapter)
        else:
            save_adapter(model, adapter)
        if experiment.adapting and opened.reference:
            save_adapter(opened.load_reference(), adapter / adapter_files.REFERENCE)
        name = f"fsd-{config.data.domain}"
        files = model_files(answer, experiment)
        # A study that is continued registers what it chose once.
        once = f"{study} {content_hash(str(files[adapter_files.SETUP]))}" if study else ""
        version = register_adapter(
            run,
            answer,
            model.identity,
            f"split {config.data.split}, seed {config.seed}",
            {"method": _method(config)},
            name=name,
            adapter=adapter,
            files=files,
            once=once,
            description=edited.description,
            card=card(name, answer, experiment, model.identity, model),
        )
    if version and version.present:
        run.mark_repetition(version.uri, renamed=not context().invocation.name)
    return edited, version


def register_adapter(
    run: Run, answer: Answer, identity: BaseIdentity, division: str, tags: dict[str, str], **options: Any
) -> Version | None:
    """Register an adapter with what an answer says of it; for the options see `fsd.tracking.register`."""
    results = answer.results
    score = results.verdict_score
    told = {"base_model": identity.id, "detector": score.detector, "state": score.state}
    told |= judged_on(results.parts, division, identity) | tags
    rows = adapter_files.served_rows(results.parts, results.calibration)
    return register(
        run,
        code=adapter_files.SERVING,
        validation_score=results.validation_auc,
        tags=told,
        barred=answer.barred,
        rows=rows,
        **options,
    )


def log_texts(run: Run, parts: Split, data: DataConfig, sources: Iterable[str]) -> None:
    """Log each part of the texts as a data set, `<domain>-<part>`."""
    for part, documents in parts._asdict().items():
        if not documents:
            continue
        source = ", ".join(sources)
        if part == "unseen" and isinstance(data.unseen, str):
            source = data.unseen
        run.log_dataset(
            f"{data.domain}-{part}",
            documents.texts,
            labels=[document.member for document in documents],
            source=source,
            context=part,
        )


def model_files(answer: Answer, experiment: Experiment) -> dict[str, str | Path]:
    """Name → content or path of what verdicts need; the cutoff is that given, else a member's latest date."""
    config = experiment.config
    results = answer.results
    cutoff = config.data.cutoff
    if not cutoff:
        days = []
        for part in results.parts:
            for document in part:
                day = document.date
                if document.member and day:
                    days.append(day.isoformat())
        cutoff = max(days, default="")
    detectors = []
    for detector in experiment.detectors:
        column = str(Score(detector.name))
        if column in results.scores:
            detectors.append(detector)
    return adapter_files.contents(
        config.model,
        experiment.shots,
        detectors,
        answer.audit,
        results.calibration,
        domain=config.data.domain,
        seed=config.seed,
        training=_training(config),
        unseen=results.parts.unseen,
        cutoff=cutoff,
        adapting=list(map(content_hash, experiment.adapting.texts)),
    )


def judged_on(parts: Split, division: str, identity: BaseIdentity) -> dict[str, str]:
    """Tags: on what a version was judged, and what two must share for their validation scores to be comparable."""
    # Later texts are left out of the scores, so other ones do not matter.
    judged = parts.without_later()
    texts = f"{len(judged.validation):,} validation and {len(judged.test):,} test texts"
    division += ", by the best score of any state"
    digests = {
        "benchmark": f"validation {digest(judged.validation)}, test {digest(judged.test)}",
        "base_fingerprint": identity.fingerprint,
        "judging": division,
    }
    return {"judged_on": f"{texts}; {division}", DIGESTS: json.dumps(digests)}


def card(
    name: str, answer: Answer, experiment: Experiment, identity: BaseIdentity, model: LanguageModel | None = None
) -> str:
    """The adapter's card, in the form of the model hub; of a trained `model` also what was decided for it."""
    results = answer.results
    training = training_params(_training(experiment.config), model)
    settings = ", ".join(f"{key} {value}" for key, value in training.items())
    digests = []
    for part, texts in results.parts._asdict().items():
        if texts:
            digests.append((part, f"{len(texts)} texts, digest {digest(texts)}"))
    return document(
        "card.md",
        name=name,
        base=identity,
        loadable=identity.id not in EMBEDDED,
        method=_method(experiment.config),
        training=settings or "not recorded",
        unseen=len(results.parts.unseen),
        detector=results.title(results.verdict_score),
        texts=named(experiment.sources),
        digests=digests,
        made_by=named(own_versions()),
        headline=sentences.headline(answer),
        signs=sentences.signs(answer),
        table=markdown(detectors_table(results)),
        limits=limits().points,
    )
