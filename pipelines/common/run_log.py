"""What a run leaves in MLflow: metrics, tables, figures, the report, and the adapter as a registered model."""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from detectors import Detector
from fsd import distributed, tracking
from fsd.config import FSDConfig
from fsd.data.documents import Document, content_hash
from fsd.data.splitting import Split
from fsd.evaluation.intervals import Estimate
from fsd.evaluation.results import Outcome, notes
from fsd.models.adapters import save_adapter
from fsd.models.language_model import BaseIdentity, LanguageModel
from fsd.reporting import figures as plots
from fsd.reporting import html as report
from fsd.scoring.scorers import TABLE, frequency_file
from fsd.token_stats import Scores
from fsd.tracking import Run, Version, register
from pipelines.common import adapter_files, detection

SERVING = Path(__file__).parents[1] / "detect" / "mlflow_model.py"


@dataclass
class Stages:
    """Seconds spent in each stage of a run, by metric name."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time the block as the stage `name`."""
        begun = time.perf_counter()
        yield
        self.seconds[f"seconds/{name}"] = time.perf_counter() - begun


@contextmanager
def start(
    config: FSDConfig, identity: BaseIdentity, sources: Mapping[str, str], detectors: Sequence[Detector]
) -> Iterator[Run | None]:
    """Open the MLflow run of a main job; None in processes other than the main one."""
    if not distributed.is_main():
        yield None
        return
    name = f"{Path(config.model.model).name} {'reused adapter' if config.adapter else config.training.method}"
    tags = {
        "texts": ", ".join(f"{name} {version}" for name, version in sources.items()),
        "base_model": identity.id,
        "base_revision": identity.revision or "local",
        "base_fingerprint": identity.fingerprint,
        "method": "reused" if config.adapter else config.training.method,
    }
    with tracking.run(f"fsd-{config.data.domain}", name, params=params(config, detectors), tags=tags) as run:
        yield run


def params(config: FSDConfig, detectors: Sequence[Detector]) -> dict[str, object]:
    """Every setting under its flag's name, and every detector's own settings."""
    values = asdict(config)
    flat = {
        key: value for group in ("data", "model", "training", "detection") for key, value in values.pop(group).items()
    }
    flat.pop("settings")
    return {**flat, **values, "detector": {detector.name: dict(detector.settings) for detector in detectors}}


def track(run: Run, outcome: Outcome, config: FSDConfig, model: LanguageModel, seconds: Mapping[str, float]) -> Version:
    """Log all that the outcome holds, and register the adapter with its calibration as a new version."""
    for part, documents in zip(Split._fields, outcome.parts, strict=True):
        if documents:
            source = ", ".join(config.data.data) or "benchmark of the domain"
            run.log_dataset(config.data.domain, [d.text for d in documents], source=source, context=part)
    run.log_table("scores.parquet", scores_frame(outcome))
    run.log_table("summary.csv", summary_frame(outcome))
    run.log_json("leaks.json", [leak_row(leak) for leak in outcome.audit.leaks.pairs])
    figures = pictures(outcome)
    for name, content in figures.items():
        run.log_bytes(name, content)
    run.log_text("report.html", report.html(content_of(outcome, config, model.identity, figures)))
    run.log_metrics({**metrics(outcome), **seconds})
    files = travelling(outcome, config)
    for name, file in files.items():
        run.log_bytes(name, file.encode() if isinstance(file, str) else file.read_bytes())
    with tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
        adapter = Path(scratch) / "adapter"
        save_adapter(model, adapter)
        return register(
            run,
            f"fsd-{config.data.domain}",
            adapter,
            SERVING,
            validation_score=outcome.validation.get(outcome.best, float("nan")),
            files=files,
            tags=version_tags(outcome, config, model.identity),
        )


def travelling(outcome: Outcome, config: FSDConfig) -> dict[str, str | Path]:
    """Files that a registered adapter needs to give verdicts."""
    model = replace(config.model, frequencies=None, cache=None)
    scored = outcome.deviation.fsd
    files: dict[str, str | Path] = {
        adapter_files.UNSEEN: unseen_lines(outcome.parts.unseen),
        adapter_files.SETUP: adapter_files.setup(
            model,
            domain=config.data.domain,
            detectors={
                d.name: dict(d.settings) for d in detection.load_detectors(config.detection) if d.name in scored
            },
            shots=config.detection.shots,
            seed=config.seed,
            training=adapter_files.recorded_training(config.adapter) if config.adapter else config.training,
        ),
    }
    table = frequency_file(config.model)
    if table:
        files[TABLE] = table
    if outcome.calibration:
        files[adapter_files.CALIBRATION] = outcome.calibration.to_json()
    return files


def version_tags(outcome: Outcome, config: FSDConfig, identity: BaseIdentity) -> dict[str, object]:
    """What the registry says of a version."""
    return {
        "base_model": identity.id,
        "base_revision": identity.revision or "local",
        "base_fingerprint": identity.fingerprint,
        "method": "reused" if config.adapter else config.training.method,
        "cutoff": cutoff(outcome.parts),
        "detector": outcome.best,
        "detector_settings": json.dumps(outcome.calibration.settings) if outcome.calibration else "{}",
        "unseen_texts": len(outcome.parts.unseen),
    }


def pictures(outcome: Outcome) -> dict[str, bytes]:
    """File name → PNG; at the root of the run, where MLflow compares them."""
    test = slice(len(outcome.parts.validation), None)
    member = np.array([bool(document.member) for document in outcome.parts.test])

    def rows(scores: Scores) -> Scores:
        return {name: column[test] for name, column in scores.items()}

    base, fsd = rows(outcome.deviation.base), rows(outcome.deviation.fsd)
    figures = {"roc.png": plots.roc(member, base, fsd), "scores.png": plots.score_distributions(member, base, fsd)}
    if outcome.calibration:
        p_values = outcome.calibration.p_values(fsd[outcome.best][~member])
        figures["reliability.png"] = plots.reliability({outcome.best: p_values})
    return {name: plots.png(figure) for name, figure in figures.items()}


def content_of(
    outcome: Outcome, config: FSDConfig, identity: BaseIdentity, figures: Mapping[str, bytes]
) -> report.ReportContent:
    """The report: what was asked, done and found, and what it does not prove."""
    parts = outcome.parts
    done = (
        f"The model {identity.id} was "
        + (f"given the adapter {config.adapter}" if config.adapter else "fine-tuned a little")
        + f" on {len(parts.unseen)} texts that it cannot have seen. Every detector then scored {len(parts.test)} test "
        "texts before and after. Scores of texts from the training data move less than scores of others; the "
        f"difference is the fine-tuned score deviation (FSD). Thresholds come from {len(parts.validation)} validation "
        "texts; no test text was used to choose anything."
    )
    tables = [report.results_table(outcome.results)]
    if outcome.placebo:
        tables.append(report.placebo_table(outcome.results, outcome.placebo[1]))
    captions = {
        "roc.png": "Share of members found against share of non-members accused, before (base) and after (FSD).",
        "scores.png": "How the scores of members and non-members are spread.",
        "reliability.png": f"Error rates of {outcome.best} promised and kept, on test texts that are no members.",
    }
    return report.ReportContent(
        title=f"Was it in the pretraining data? {config.data.domain}",
        question=f"Can texts that {identity.id} was pretrained on be told from texts that it never saw?",
        findings=notes(outcome),
        sections=[
            report.Section("What was done", paragraphs=[done]),
            report.Section("Results", tables=tables),
            report.Section("Figures", pictures=[report.Picture(p, captions[name]) for name, p in figures.items()]),
            report.limits(),
        ],
        facts=facts(outcome, config, identity),
    )


def facts(outcome: Outcome, config: FSDConfig, identity: BaseIdentity) -> list[tuple[str, str]]:
    """What is needed to do it again."""
    training = config.training
    return [
        ("Model", f"{identity.id}, revision {identity.revision or 'local'}, weights {identity.fingerprint}"),
        ("Texts", ", ".join(config.data.data) or f"benchmark of the domain {config.data.domain}"),
        ("Split", f"{config.data.split}: " + ", ".join(f"{len(p)} {n}" for n, p in outcome.parts._asdict().items())),
        (
            "Adapter",
            config.adapter
            or f"{training.method}, rank {training.rank}, learning rate {training.learning_rate}, "
            f"{training.epochs} epochs, batch {training.batch_size}",
        ),
        ("Placebo", outcome.placebo[0] if outcome.placebo else "none"),
        ("Calibration", _calibrated(outcome)),
        ("Seed", str(config.seed)),
        ("Date", date.today().isoformat()),
    ]


def _calibrated(outcome: Outcome) -> str:
    if outcome.calibration is None:
        return "none: there are no validation texts"
    many = len(outcome.deviation.fsd)
    note = (
        f"; it is the best of {many} on the same validation texts, which makes its error rates run a little higher "
        "than promised (about a tenth in simulation)"
    )
    groups = outcome.calibration.groups
    return f"{outcome.best}, on {groups} groups of held-out non-members{note if many > 1 else ''}"


def leak_row(leak: Any) -> dict[str, str]:
    """A pair of texts that the split tore apart."""
    return {
        "part": leak.part,
        "other_part": leak.other_part,
        "reason": leak.reason,
        "text": leak.first.text,
        "other_text": leak.second.text,
    }


def metrics(outcome: Outcome) -> dict[str, float]:
    """Every number under the name that all runs share."""
    found = outcome.audit.metrics()
    for row in outcome.results:
        for state, numbers in (("base", row.base), ("fsd", row.fsd)):
            if numbers is None:
                continue
            for name in ("auc", "tpr_at_1fpr", "tpr_at_5fpr", "tpr_at_10fpr", "accuracy"):
                estimate = getattr(numbers, name)
                if estimate is not None:
                    found[f"{name}/{row.detector}.{state}"] = estimate.value
            found[f"auc_low/{row.detector}.{state}"] = numbers.auc.low
            found[f"auc_high/{row.detector}.{state}"] = numbers.auc.high
        if row.comparison is not None:
            found[f"auc_gain/{row.detector}"] = row.comparison.gain.value
            found[f"auc_gain_p/{row.detector}"] = row.comparison.p
            found[f"auc_gain_p_holm/{row.detector}"] = row.comparison.p_holm
    found |= {f"validation_auc/{name}.fsd": value for name, value in outcome.validation.items()}
    for name, sham in outcome.placebo[1].items() if outcome.placebo else ():
        found[f"placebo_auc/{name}.fsd"] = sham.auc.value
        found[f"placebo_lead/{name}.fsd"] = sham.lead.gain.value
        found[f"placebo_lead_p/{name}.fsd"] = sham.lead.p
    return found


def scores_frame(outcome: Outcome) -> pd.DataFrame:
    """One row a scored text: id, text, label, group, split, and every detector's base, tuned and FSD score."""
    split = ["validation"] * len(outcome.parts.validation) + ["test"] * len(outcome.parts.test)
    columns: dict[str, Any] = {
        "id": [content_hash(document.text)[:16] for document in outcome.scored],
        "text": [document.text for document in outcome.scored],
        "label": [int(bool(document.member)) for document in outcome.scored],
        "group": [str(family) for family in outcome.groups],
        "split": split,
    }
    for name, fsd in outcome.deviation.fsd.items():
        if name in outcome.deviation.base:
            columns[f"{name}.base"] = outcome.deviation.base[name]
            columns[f"{name}.tuned"] = outcome.deviation.tuned[name]
        columns[f"{name}.fsd"] = fsd
    return pd.DataFrame(columns)


def _ends(estimate: Estimate) -> Iterator[tuple[str, float]]:
    return zip(("", "_low", "_high"), estimate, strict=True)


def summary_frame(outcome: Outcome) -> pd.DataFrame:
    """One row a detector: every number with the ends of its interval."""
    rows = []
    for result in outcome.results:
        row: dict[str, Any] = {"detector": result.detector}
        for state, numbers in (("base", result.base), ("fsd", result.fsd)):
            for name in ("auc", "tpr_at_1fpr", "tpr_at_5fpr", "tpr_at_10fpr", "accuracy"):
                estimate = getattr(numbers, name) if numbers else None
                for end in ("value", "low", "high"):
                    label = f"{state}_{name}" + ("" if end == "value" else f"_{end}")
                    row[label] = getattr(estimate, end) if estimate else None
        if result.comparison:
            row |= {"gain": result.comparison.gain.value, "gain_low": result.comparison.gain.low}
            row |= {
                "gain_high": result.comparison.gain.high,
                "p": result.comparison.p,
                "p_holm": result.comparison.p_holm,
            }
        sham = outcome.placebo[1].get(result.detector) if outcome.placebo else None
        if sham:
            row |= {f"placebo_fsd_auc{end}": value for end, value in _ends(sham.auc)}
            row |= {f"placebo_lead{end}": value for end, value in _ends(sham.lead.gain)}
            row["placebo_lead_p"] = sham.lead.p
        rows.append(row)
    return pd.DataFrame(rows)


def unseen_lines(documents: Sequence[Document]) -> str:
    """The manifest of the texts that were trained on, one JSON object a line."""
    rows = (
        {
            "text": document.text,
            "group": document.group,
            "date": document.date.isoformat() if document.date else None,
            "source": document.source,
            "sha256": content_hash(document.text),
        }
        for document in documents
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def cutoff(parts: Split) -> str:
    """The last day that a member was published on, where members are dated: what unseen texts must come after."""
    dates: list[date] = [d.date for part in parts for d in part if d.member and d.date]
    return max(dates).isoformat() if dates else ""
