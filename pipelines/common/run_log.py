"""What a run of the main job leaves: its report, and the adapter as a registered model."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from detectors import Detector
from fsd import distributed
from fsd.config import AdapterConfig, DataConfig, FSDConfig, flags
from fsd.data.documents import Document, content_hash, digest
from fsd.data.splitting import Split, without_later
from fsd.evaluation import sentences
from fsd.evaluation.metrics import by_key
from fsd.evaluation.results import Results, summary
from fsd.models.adapters import save_adapter
from fsd.models.language_model import BaseIdentity, LanguageModel
from fsd.reporting import figures
from fsd.reporting.report import Picture, Report, Section, limits
from fsd.reporting.results import contrast_tables, detectors_table, placebo_table
from fsd.scoring.model import TABLE, frequency_file
from fsd.tracking import Run, Version, register
from pipelines.common import adapter_files
from pipelines.common.experiment import BASE
from pipelines.common.job import publish, run_name, tracked_run

SERVING = Path(__file__).parents[1] / "detect" / "mlflow_model.py"


@contextmanager
def start(
    config: FSDConfig, identity: BaseIdentity, sources: Mapping[str, str], detectors: Sequence[Detector]
) -> Iterator[Run | None]:
    """Open the MLflow run of a main job; None in processes other than the main one."""
    if not distributed.is_main_process():
        yield None
        return
    method = "reused adapter" if config.adapter else config.training.method
    name = run_name(config.model.model, config.data.data or (config.data.domain,), method)
    tags = {"texts": named(sources), **_model_tags(config, identity)}
    experiment = f"fsd-{config.data.domain}"
    with tracked_run(config, experiment, name, params=params(config, detectors), tags=tags) as run:
        yield run


def _model_tags(config: FSDConfig, identity: BaseIdentity) -> dict[str, object]:
    """Tags of a run and of a registered version."""
    training = _training(config)
    return {
        "base_model": identity.id,
        "base_revision": identity.revision or "local",
        "base_fingerprint": identity.fingerprint,
        "method": training.method if training else "unknown",
        **({"reused_adapter": config.adapter} if config.adapter else {}),
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


def params(config: FSDConfig, detectors: Sequence[Detector]) -> dict[str, object]:
    """Every setting under its flag's name, and every detector's own settings."""
    values = flags(config)
    values.pop("settings")
    settings = {d.name: {**d.settings, BASE: dict(d.base_settings)} for d in detectors}
    return {**values, "detector": settings}


def track(
    run: Run,
    results: Results,
    config: FSDConfig,
    detectors: Sequence[Detector],
    model: LanguageModel,
    seconds: Mapping[str, float],
    sources: Mapping[str, str],
    *,
    study: str = "",
) -> tuple[Report, Version | None]:
    """Log the report, and register the adapter with its calibration as a new version."""
    log_texts(run, results.parts, config.data, sources)
    found = report(results, config, model.identity, seconds, sources)
    publish(found, run)
    run.describe_experiment(found.description)
    with run.storing(), tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
        files = model_files(results, config, detectors)
        save_adapter(model, Path(scratch))
        version = register(
            run,
            f"fsd-{config.data.domain}",
            Path(scratch),
            SERVING,
            validation_score=results.validation_auc,
            files=files,
            tags=version_tags(results, config, model.identity) | _chosen_by(study, files),
            barred=sentences.barred(results),
            once=tuple(_chosen_by(study, files)),
            description=found.description,
        )
        return found, version
    return found, None


def _chosen_by(study: str, files: Mapping[str, str | Path]) -> dict[str, object]:
    """Tags of the version that a study has chosen; none without one."""
    return {"study": study, "settings": content_hash(str(files[adapter_files.SETUP]))} if study else {}


def log_texts(run: Run, parts: Split, data: DataConfig, sources: Iterable[str]) -> None:
    """Log each part of the texts as a data set, `<domain>-<part>`."""
    for part, documents in zip(Split._fields, parts, strict=True):
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
    """Files that a registered adapter needs to give verdicts: name → content or path."""
    scored = {name.removesuffix(".fsd") for name in results.scores.columns if name.endswith(".fsd")}
    files: dict[str, str | Path] = {
        adapter_files.UNSEEN: unseen_lines(results.parts.unseen),
        adapter_files.SETUP: adapter_files.setup(
            replace(config.model, frequencies=None, cache=None),
            domain=config.data.domain,
            detectors=[detector for detector in detectors if detector.name in scored],
            shots=config.detection.shots,
            seed=config.seed,
            training=_training(config),
        ),
    }
    table = frequency_file(config.model)
    if table:
        files[TABLE] = table
    files[adapter_files.AUDIT] = sentences.audit_summary(results).to_json()
    if results.calibration:
        files[adapter_files.CALIBRATION] = results.calibration.to_json()
    return files


def version_tags(results: Results, config: FSDConfig, identity: BaseIdentity) -> dict[str, object]:
    """Tags of the registered version; the cutoff is that given, else the latest date of a member, "" without dates."""
    dates = (d.date.isoformat() for part in results.parts for d in part if d.member and d.date)
    judged = without_later(results.parts)
    return {
        **_model_tags(config, identity),
        "cutoff": config.data.cutoff or max(dates, default=""),
        "detector": results.best,
        "detector_settings": json.dumps(results.calibration.settings) if results.calibration else "{}",
        "unseen_texts": len(results.parts.unseen),
        "benchmark": f"validation {digest(judged.validation)}, test {digest(judged.test)}",
        "judging": f"split {config.data.split}, seed {config.seed}, state fsd",
    }


def report(
    results: Results,
    config: FSDConfig,
    identity: BaseIdentity,
    seconds: Mapping[str, float],
    sources: Mapping[str, str],
) -> Report:
    """The answer, how sure it is, the method, the results, and what they do not prove."""
    first, *others = pictures(results)
    tables = [*contrast_tables(results), detectors_table(results)]
    tables += [placebo_table(results)] if results.placebo is not None else []
    return Report(
        title=f"Was it in the pretraining data? {config.data.domain}",
        question=f"Can texts that {identity.id} was pretrained on be distinguished from texts that it never saw?",
        answer=sentences.answer(results),
        findings=sentences.notes(results),
        changes=sentences.changes(results),
        sections=[
            Section("The result in a figure", pictures=[first]),
            Section("What was done", paragraphs=[method(results, config, identity)]),
            Section("Every detector", tables=tables),
            Section("Further figures", pictures=others),
            limits(),
        ],
        facts=facts(results, config, identity, sources),
        score=f"{results.best} {results.auc.short}",
        description=sentences.description(results),
        metrics={**sentences.metrics(results), **results.metrics(), **seconds},
        artifacts={
            "scores.parquet": results.scores,
            "summary.csv": summary(results.table, "; ".join(sentences.caveats(results))),
            "leaks.json": [leak._asdict() for leak in results.audit.leaks.pairs],
        },
    )


def pictures(results: Results) -> list[Picture]:
    """The figures; at the root of the run, where MLflow compares them."""
    test = results.judged
    member = test["label"].to_numpy(bool)
    base, fsd = (
        {name.removesuffix(state): test[name].to_numpy() for name in test.columns if name.endswith(state)}
        for state in (".base", ".fsd")
    )
    rows = by_key(results.table)
    chosen = figures.headline_scores(results.compared, results.best)
    aucs = (
        f"{label} AUC {row.estimate}"
        for column, label in chosen.items()
        if (row := rows.get((*column.rpartition(".")[::2], "auc")))
    )
    drawn = [
        Picture(
            figures.png(figures.headline(figures.headline_curves(results.compared, chosen, results.table))),
            "How many members are found, for each share of non-members wrongly called members, by the best score "
            "before fine-tuning (base) and the best fine-tuned score deviation (FSD). The higher the curve, the "
            "better; the dotted line is guessing. In the bands lies the true value at each rate in 95 of 100 cases.",
            f"Two panels of ROC curves with bands, linear and logarithmic: {'; '.join(aucs)}.",
            "headline.png",
        ),
        Picture(
            figures.png(figures.roc(member, base, fsd)),
            "The same for every detector, without bands.",
            "ROC curves of every detector before and after fine-tuning; the areas under them are in the table.",
            "roc.png",
        ),
        Picture(
            figures.png(figures.score_distributions(member, base, fsd)),
            "Distribution of the scores of members and non-members. Scores beyond the axis, at most 2 %, are counted "
            "in the bars on grey ground; where one bar holds most of the texts, their scores are almost equal and a "
            "few differ much.",
            "Histograms of the scores of members and non-members, for every detector, base and FSD.",
            "scores.png",
        ),
    ]
    if results.calibration:
        p_values = results.calibration.p_values({name: column[~member] for name, column in fsd.items()})
        reliability = figures.reliability(
            results.best,
            p_values,
            calibration=results.calibration.groups,
            texts=test.loc[~member, "group"].nunique(),
        )
        caption = (
            f"How often {results.best} wrongly calls a text a member: for each chosen error rate, the share of the "
            "non-members among the test texts that is called members. If the error rates are right, the whole line "
            "stays in the grey band in 95 of 100 such tests. Above the band are more wrong calls than chosen, below "
            "it fewer. This figure says nothing about membership."
        )
        alt = (
            f"Share of the held-out non-members that {results.best} calls members, against the chosen error rate, "
            "with the band for valid error rates."
        )
        drawn.append(Picture(figures.png(reliability), caption, alt, "reliability.png"))
    if results.contrasts:
        caption = (
            "AUC of every detector, with 95 % intervals, by the base score and by the FSD. On the left, what a "
            "benchmark split by time measures; in the middle, texts that the model was never trained on, "
            "distinguished by their period alone; on the right, texts of one period, some of which it was trained "
            "on. The grey line is guessing."
        )
        alt = (
            "AUC of every detector in three comparisons of members, contemporaries and later texts; the numbers are "
            "in the tables."
        )
        drawn.append(Picture(figures.png(figures.contrasts(results.table)), caption, alt, "contrasts.png"))
    return drawn


def method(results: Results, config: FSDConfig, identity: BaseIdentity) -> str:
    """The method in plain words."""
    parts = results.parts
    unseen = f"{len(parts.unseen)} texts that the model cannot have seen"
    if config.adapter:
        trained = f"The model {identity.id} was combined with the adapter {config.adapter}, fine-tuned on {unseen}."
    else:
        trained = f"The model {identity.id} was fine-tuned briefly on {unseen}."
    if parts.validation:
        choices = (
            f"Thresholds and the detector of the findings, {results.best}, were chosen on {len(parts.validation)} "
            "validation texts; no test text was used to choose anything."
        )
    else:
        choices = (
            f"There were no validation texts: thresholds and the detector of the findings, {results.best}, were chosen "
            "on the test texts themselves, which makes these numbers optimistic."
        )
    return (
        f"{trained} Every detector then scored {len(parts.test)} test texts before and after fine-tuning. Scores of "
        "texts from the training data move less than scores of others; the difference is the fine-tuned score "
        f"deviation (FSD). {choices}"
    )


def facts(
    results: Results, config: FSDConfig, identity: BaseIdentity, sources: Mapping[str, str]
) -> list[tuple[str, str]]:
    """What is needed to repeat the run."""
    training = config.training
    return [
        ("Model", identity_text(identity)),
        ("Texts", named(sources)),
        ("Split", f"{config.data.split}: " + ", ".join(f"{len(p)} {n}" for n, p in results.parts._asdict().items())),
        (
            "Adapter",
            config.adapter
            or f"{training.method}, rank {training.rank}, learning rate {training.learning_rate}, "
            f"{training.epochs} epochs, batch {training.batch_size}",
        ),
        ("Placebo", results.placebo or "none"),
        ("Calibration", _calibrated(results)),
        ("Seed", str(config.seed)),
    ]


def _calibrated(results: Results) -> str:
    if results.calibration is None:
        return "none: there are no validation texts"
    who = "contemporaries" if sentences.audit_summary(results).contemporaries else "non-members"
    return f"{results.best}, on {results.calibration.groups} groups of held-out {who}"


def unseen_lines(documents: Sequence[Document]) -> str:
    """The manifest of the texts used for fine-tuning, one JSON object per line."""
    rows = (
        {
            "text": document.text,
            "group": document.group,
            "date": document.date.isoformat() if document.date else None,
            "source": document.source,
            "sha256": content_hash(document.text),
            **({"period": document.period} if document.period else {}),
        }
        for document in documents
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
