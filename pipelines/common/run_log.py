"""What a run of the main job leaves: its report, and the adapter as a registered model."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path

from detectors import Detector
from fsd import distributed
from fsd.config import AdapterConfig, DataConfig, FSDConfig, flags
from fsd.data.documents import content_hash, digest
from fsd.data.splitting import VALIDATION, Split, without_later
from fsd.evaluation import sentences
from fsd.evaluation.metrics import by_state
from fsd.evaluation.results import Results, Score, summary
from fsd.models.adapters import save_adapter
from fsd.models.language_model import BaseIdentity, LanguageModel
from fsd.net.hub import EMBEDDED
from fsd.reporting import figures
from fsd.reporting.report import Picture, Report, Section, document, limits, markdown
from fsd.reporting.results import contrast_tables, detectors_table, placebo_table
from fsd.scoring.model import reference_name
from fsd.token_stats import FloatArray
from fsd.tracking import Run, Version, register
from fsd.tracking import versions as own_versions
from pipelines.common import adapter_files
from pipelines.common.experiment import BASE, Placebo
from pipelines.common.job import publish, run_name, tracked_run

OF_LORA = ("rank", "alpha", "dropout")
"""Settings of the training that IA3 does not have."""

DRAWN = 6
"""Detectors in the figures of single ones."""


@contextmanager
def start(
    config: FSDConfig,
    model: LanguageModel,
    sources: Mapping[str, str],
    detectors: Sequence[Detector],
    placebo: Placebo | None,
) -> Iterator[Run | None]:
    """Open the MLflow run of a main job; None in processes other than the main one."""
    if not distributed.is_main_process():
        yield None
        return
    method = "reused adapter" if config.adapter else config.training.method
    name = run_name(config.model.model, config.data.data or (config.data.domain,), f"{method} · seed {config.seed}")
    tags = {"texts": named(sources), **_model_tags(config, model.identity)}
    settings = params(config, detectors, sources, placebo) | chosen_params(config, detectors)
    settings["device"] = str(model.device)
    with tracked_run(config, f"fsd-{config.data.domain}", name, params=settings, tags=tags) as run:
        yield run


def _model_tags(config: FSDConfig, identity: BaseIdentity) -> dict[str, object]:
    training = _training(config)
    reused = {"reused_adapter": config.adapter} if config.adapter else {}
    return {
        "base_model": identity.id,
        "base_revision": identity.revision or "local",
        "base_fingerprint": identity.fingerprint,
        "method": training.method if training else "unknown",
        **reused,
    }


def _training(config: FSDConfig) -> AdapterConfig | None:
    """How the adapter of the run was trained; None for a reused one that does not record it. Main process only."""
    return adapter_files.recorded_training(config.adapter, collective=False) if config.adapter else config.training


def identity_text(identity: BaseIdentity) -> str:
    """The model with its revision and the hash of its weights, for reports."""
    return f"{identity.id}, revision {identity.revision or 'local'}, weights {identity.fingerprint}"


def named(sources: Mapping[str, str]) -> str:
    """The files and benchmarks that texts were read from, with their versions."""
    return ", ".join(f"{name} {version}" for name, version in sources.items())


def params(
    config: FSDConfig, detectors: Sequence[Detector], sources: Iterable[str], placebo: Placebo | None
) -> dict[str, object]:
    """The settings that tuning leaves as they are, as they are in effect, under their flags' names."""
    given = {name: value for name, value in flags(config).items() if name not in ("settings", *_OF_TRAINING)}
    share = VALIDATION if config.data.split == "grouped" else 0.0
    return given | {
        "data": list(sources),
        "validation": share if config.data.validation is None else config.data.validation,
        "reference_model": reference_name(config.model),
        "detectors": [detector.name for detector in detectors],
        "placebo": placebo.config.model.model if placebo else "none",
    }


_OF_TRAINING = {entry.name for entry in fields(AdapterConfig)}


def chosen_params(
    config: FSDConfig, detectors: Sequence[Detector], model: LanguageModel | None = None
) -> dict[str, object]:
    """The settings that tuning may choose: of the training, and of every detector."""
    own = {d.name: {**d.settings, BASE: dict(d.base_settings)} for d in detectors}
    return {**training_params(_training(config), model), "detector": own}


def training_params(training: AdapterConfig | None, model: LanguageModel | None = None) -> dict[str, object]:
    """The settings of a training that its method has, with the modules that it adapted if they are known."""
    if training is None:
        return {}
    settings = asdict(training)
    if model and model.adapted:
        settings["target_modules"] = ", ".join(sorted(model.model.active_peft_config.target_modules))
    unknown = ("target_modules",) if settings["target_modules"] == "auto" else ()
    left_out = (*unknown, *(OF_LORA if training.method == "ia3" else ()))
    return {name: value for name, value in settings.items() if name not in left_out}


def track(
    run: Run,
    results: Results,
    config: FSDConfig,
    detectors: Sequence[Detector],
    model: LanguageModel,
    sources: Mapping[str, str],
    *,
    study: str = "",
    edit: Callable[[Report], Report] = lambda report: report,
) -> tuple[Report, Version | None]:
    """Log the report, and register the adapter with its calibration as a new version, which a study may have chosen."""
    log_texts(run, results.parts, config.data, sources)
    run.log_params(chosen_params(config, detectors, model))
    found = edit(report(results, config, model.identity, sources))
    publish(found, run)
    run.describe_experiment(found.description)
    with run.storing(), tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
        files, tags = model_files(results, config, detectors), _model_tags(config, model.identity)
        save_adapter(model, Path(scratch))
        name = f"fsd-{config.data.domain}"
        version = register(
            run,
            name,
            Path(scratch),
            adapter_files.SERVING,
            validation_score=results.validation_auc,
            files=files,
            tags={"base_model": tags["base_model"], "method": tags["method"], "detector": results.best},
            judged_on=judged_on(results, config, model.identity),
            barred=barred(results, detectors),
            once=f"{study} {content_hash(str(files[adapter_files.SETUP]))}" if study else "",
            description=found.description,
            card=card(name, results, config, model.identity, sources),
            example=adapter_files.example(results.parts),
        )
        return found, version
    return found, None


def barred(results: Results, detectors: Iterable[Detector]) -> str:
    """Why the version must not become champion; empty if it may."""
    judging = {one.detector for one in results.calibration.candidates} if results.calibration else set()
    needing = next((d.name for d in detectors if d.name in judging and d.labelled), "")
    return sentences.barred(results) or (
        f"{needing} needs texts with known labels, which detect has not" if needing else ""
    )


def log_texts(run: Run, parts: Split, data: DataConfig, sources: Iterable[str]) -> None:
    """Log each part of the texts as a data set, `<domain>-<part>`."""
    for part, documents in parts._asdict().items():
        if documents:
            unseen = data.unseen if part == "unseen" and isinstance(data.unseen, str) else None
            run.log_dataset(
                f"{data.domain}-{part}",
                [document.text for document in documents],
                labels=[document.member for document in documents],
                source=unseen or ", ".join(sources),
                context=part,
            )


def model_files(results: Results, config: FSDConfig, detectors: Sequence[Detector]) -> dict[str, str | Path]:
    """Name → content or path of what verdicts need; the cutoff is that given, else a member's latest date."""
    dates = (d.date.isoformat() for part in results.parts for d in part if d.member and d.date)
    return adapter_files.contents(
        config.model,
        config.detection,
        [detector for detector in detectors if f"{detector.name}.fsd" in results.scores],
        sentences.audit_summary(results),
        results.calibration,
        domain=config.data.domain,
        seed=config.seed,
        training=_training(config),
        unseen=results.parts.unseen,
        cutoff=config.data.cutoff or max(dates, default=""),
    )


def judged_on(results: Results, config: FSDConfig, identity: BaseIdentity) -> dict[str, str]:
    """What two versions must share for their validation scores to be comparable."""
    judged = without_later(results.parts)
    return {
        "benchmark": f"validation {digest(judged.validation)}, test {digest(judged.test)}",
        "base_fingerprint": identity.fingerprint,
        "judging": f"split {config.data.split}, seed {config.seed}, state fsd",
    }


def card(name: str, results: Results, config: FSDConfig, identity: BaseIdentity, sources: Mapping[str, str]) -> str:
    """The adapter's card, in the form of the model hub."""
    training, parts = _training(config), results.parts._asdict()
    return document(
        "card.md",
        name=name,
        base=identity,
        loadable=identity.id not in EMBEDDED,
        method=training.method if training else "unknown",
        training=", ".join(f"{key} {value}" for key, value in training_params(training).items()) or "not recorded",
        unseen=len(results.parts.unseen),
        detector=results.best,
        texts=named(sources),
        digests=[(part, f"{len(texts)} texts, digest {digest(texts)}") for part, texts in parts.items() if texts],
        made_by=", ".join(f"{what} {which}" for what, which in own_versions().items()),
        headline=sentences.headline(results),
        signs=sentences.signs(results),
        table=markdown(detectors_table(results)),
        limits=limits().points,
    )


def report(
    results: Results,
    config: FSDConfig,
    identity: BaseIdentity,
    sources: Mapping[str, str],
) -> Report:
    """The answer, how sure it is, the method, the results, and what they do not prove."""
    first, *others = pictures(results)
    detectors = detectors_table(results)
    tables = [*contrast_tables(results), detectors]
    tables += [placebo_table(results)] if results.placebo is not None else []
    training, parts = config.training, results.parts._asdict()
    trained = (
        f"{training.method}, rank {training.rank}, learning rate {training.learning_rate}, {training.epochs} epochs, "
        f"batch {training.batch_size}"
    )
    calibrated = "none: there are no validation texts" if results.labels.hold else "none: the labels do not hold"
    if results.calibration:
        who = "contemporaries" if sentences.audit_summary(results).contemporaries else "non-members"
        calibrated = f"{results.best}, on {results.calibration.groups} groups of held-out {who}"
    return Report(
        title=f"Was it in the pretraining data? {config.data.domain}",
        question=f"Can texts that {sentences.of_model(identity.id)} was pretrained on be distinguished from texts that "
        "it never saw?",
        headline=sentences.headline(results),
        answer=sentences.answer(results),
        sure=sentences.sure(results),
        findings=sentences.notes(results),
        brief=replace(detectors, title=""),
        signs=sentences.signs(results),
        changes=sentences.changes(results),
        sections=[
            Section("The result in a figure", pictures=[first]),
            Section("What was done", paragraphs=[method(results, config, identity)]),
            Section("Every detector", tables=tables),
            Section("Further figures", pictures=others),
            limits(),
        ],
        facts=[
            ("Model", identity_text(identity)),
            ("Texts", named(sources)),
            ("Split", f"{config.data.split}: " + ", ".join(f"{len(part)} {name}" for name, part in parts.items())),
            ("Adapter", config.adapter or trained),
            ("Placebo", results.placebo or "none"),
            ("Calibration", calibrated),
            ("Seed", str(config.seed)),
        ],
        score=f"{results.named(results.top)} {results.top_auc.short}",
        verdicts=results.calibration is not None,
        description=sentences.description(results),
        metrics=results.metrics(),
        artifacts={
            "scores.parquet": results.scores,
            "summary.csv": summary(results.table, "; ".join(sentences.caveats(results))),
            "leaks.json": [leak._asdict() for leak in results.audit.leaks.pairs],
        },
    )


def pictures(results: Results) -> list[Picture]:
    """The figures, of the best detectors; at the root of the run, where MLflow compares them."""
    test, curves = results.judged, _headline_curves(results)
    member, columns = test["label"].to_numpy(bool), by_state(test)
    base, fsd = ({name: of[name] for name in results.ranked[:DRAWN] if name in of} for of in columns.values())
    others = len(results.ranked) - DRAWN
    chosen = f"The scores were chosen on {'validation' if results.parts.validation else 'these very'} texts."
    which = f"The {DRAWN} best detectors; fsd.plot draws the other {others} from scores.parquet. " if others > 0 else ""
    drawn = [
        (
            "headline.png",
            figures.headline(member, test["group"].tolist(), curves),
            "How many members are found, for each share of non-members wrongly called members. The higher the curve, "
            f"the better; the dotted line is guessing. {chosen} In the bands lies the true value at each rate in 95 of "
            "100 cases.",
            f"Two panels of ROC curves with bands, linear and logarithmic: {'; '.join(curves)}.",
        ),
        (
            "roc.png",
            figures.roc(member, base, fsd),
            f"{which}Members found for each share of non-members wrongly called members, with few of these enlarged.",
            "ROC curves of the best detectors before and after fine-tuning; the areas under them are in the table.",
        ),
        (
            "scores.png",
            figures.score_distributions(member, base, fsd),
            f"{which}Share of the members (dark) and of the non-members (grey) that have at least each score: the "
            "wider the coloured gap, the better they are distinguished. The axes leave out 1 % of the texts at either "
            "end.",
            "Cumulative distributions of the scores of members and non-members, for the best detectors, base and FSD.",
        ),
    ]
    if results.calibration:
        p_values = results.calibration.p_values({name: column[~member] for name, column in columns["fsd"].items()})
        groups, texts = results.calibration.groups, test.loc[~member, "group"].nunique()
        colour = figures.FSD if results.best in columns["base"] else figures.BOTH
        drawn.append(
            (
                "reliability.png",
                figures.reliability(results.best, p_values, calibration=groups, texts=texts, colour=colour),
                f"How often “{results.best}” wrongly calls a text a member: for each chosen error rate, the share of "
                "the non-members among the test texts that is called members. If the error rates are right, the whole "
                "line stays in the grey band in 95 of 100 such tests. Above the band are more wrong calls than chosen, "
                "below it fewer. This figure says nothing about membership.",
                f"Share of the held-out non-members that {results.best} calls members, against the chosen error rate, "
                "with the band for valid error rates.",
            )
        )
    if results.contrasts:
        drawn.append(
            (
                "contrasts.png",
                figures.contrasts(results.rows),
                "AUC of every detector, with 95 % intervals, by the base score, by the FSD, or by both models. On the "
                "left, what a benchmark split by time measures; in the middle, texts that the model was never trained "
                "on, distinguished by their period alone; on the right, texts of one period, some of which it was "
                "trained on. The dotted line is guessing.",
                "AUC of every detector in three comparisons of members, contemporaries and later texts; the numbers "
                "are in the tables.",
            )
        )
    return [Picture(figures.png(figure), caption, alt, name) for name, figure, caption, alt in drawn]


def _headline_curves(results: Results) -> dict[str, tuple[FloatArray, str]]:
    """The best base score, the best fine-tuned one and `combined`, each with its AUC, and the control of the best."""
    combined = Score("combined", "fsd")
    chosen = [Score(results.base, "base")] if results.base else []
    chosen += dict.fromkeys([Score(results.best, "fsd"), *([combined] if str(combined) in results.scores else [])])
    curves = {}
    for score in chosen:
        alone = (score.detector, "base", "auc") not in results.rows
        colour = figures.BASE if score.state == "base" else figures.BOTH if alone else figures.FSD
        name = f"{results.named(score)}{' (both models)' if alone else ''}"
        curves[f"{name}: AUC {results.rows[*score, 'auc'].estimate}"] = (
            results.judged[str(score)].to_numpy(float),
            colour,
        )
    if results.control is not None:
        label = f"{results.named(results.top)} on the control model: AUC {results.of_top('placebo_auc')}"
        curves[label] = results.control, figures.CONTROL
    return curves


def method(results: Results, config: FSDConfig, identity: BaseIdentity) -> str:
    """The method in plain words."""
    unseen, validation, test = map(len, results.parts)
    model = sentences.of_model(identity.id)
    how = f"was combined with the adapter {config.adapter}, fine-tuned" if config.adapter else "was fine-tuned briefly"
    chosen = f"thresholds and the detector of the findings, “{results.best}”, were chosen on"
    if validation:
        choices = f"T{chosen[1:]} {validation} validation texts; no test text was used to choose anything."
    else:
        start = "There were no validation texts:"
        choices = f"{start} {chosen} the test texts themselves, which makes these numbers optimistic."
    return (
        f"{model[0].upper()}{model[1:]} {how} on {unseen} texts that the model cannot have seen. Every detector then "
        f"scored {test} test texts before and after fine-tuning. Scores of texts from the training data move less than "
        f"scores of others; the difference is the fine-tuned score deviation (FSD). {choices}"
    )
