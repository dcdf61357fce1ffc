"""An audit of the embedded model, fine-tuned in front of you."""

from dataclasses import replace
from functools import partial

from fsd.config import AdapterConfig, DetectorConfig, ModelConfig
from fsd.data.embedded import corpus
from fsd.data.splitting import split_labelled
from fsd.models import language_model
from fsd.models.finetuning import finetune
from fsd.reporting.report import Report, Section, plain
from fsd.scoring.model import build_scorers
from pipelines.adapter_audit.audit import judge
from pipelines.adapter_audit.config import AuditConfig
from pipelines.adapter_audit.report import detectors_table
from pipelines.common.job import Job, show


def prepare(seed: int) -> Job:
    """Nothing to check: the demonstration is always the same."""
    return Job(partial(run, seed), {"texts": "100 embedded abstracts"})


def run(seed: int) -> None:
    """Fine-tune the embedded model on some abstracts, and distinguish them from others, with the base and without."""
    detection = DetectorConfig(detectors="loss,min_k,zlib")
    config = AuditConfig(model=ModelConfig(cache="none"), detection=detection, seed=seed)
    others = [document for document in corpus() if not document.member][:100]
    documents = [replace(document, member=at < len(others) // 2) for at, document in enumerate(others)]
    parts = split_labelled(documents, validation=config.validation, seed=seed)
    model = language_model.load(config.model)
    training = AdapterConfig(epochs=8, learning_rate=3e-3, batch_size=4)
    finetune(model, [d.text for d in documents if d.member], training, seed=seed)
    scorers = build_scorers(model, config.model)
    tuned, control = (
        detectors_table(judge(parts, [], {**scorers, "tuned": scorers[name]}, config)) for name in ("tuned", "base")
    )
    shown = plain(
        ["model", *(column.heading for column in tuned.columns)],
        [
            *(["fine-tuned on half", *row] for row in tuned.rows),
            *(["control, not fine-tuned", *row] for row in control.rows),
        ],
        words=(0, 1),
        title=f"{len(parts.test)} test texts, half of them fine-tuning data",
        name="results",
        kept=(0, 1, 3, 2),
        source="--json",
    )
    found = f"{tuned.rows[0][0]}, fine-tuned minus base: AUC {tuned.rows[0][2]}; the control: {control.rows[0][2]}"
    note = "the control is the base itself in place of the fine-tuned model: the same texts and labels, no training"
    show(Report(findings=[found, note], sections=[Section("", tables=[shown])]))
