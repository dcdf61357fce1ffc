"""An audit of the embedded model, fine-tuned in front of you."""

from dataclasses import replace

from fsd.config import AdapterConfig, DetectorConfig, ModelConfig
from fsd.data.embedded import corpus
from fsd.data.splitting import split_labelled
from fsd.models import language_model
from fsd.models.finetuning import finetune
from fsd.scoring.scorers import build_scorers
from pipelines.adapter_audit.audit import judge
from pipelines.adapter_audit.config import AuditConfig
from pipelines.adapter_audit.report import HEADINGS, rows
from pipelines.common import outcome


def main(seed: int) -> None:
    """Fine-tune the embedded model on some abstracts, and tell them from others, with the base and without."""
    detection = DetectorConfig(detectors="loss,min_k,zlib")
    config = AuditConfig(model=ModelConfig(cache="none"), detection=detection, seed=seed)
    others = [document for document in corpus() if not document.member][:100]
    half = len(others) // 2
    documents = [replace(document, member=at < half) for at, document in enumerate(others)]
    parts = split_labelled(documents, validation=config.validation, seed=seed)
    model = language_model.load(config.model)
    training = AdapterConfig(epochs=8, learning_rate=3e-3, batch_size=4)
    finetune(model, [d.text for d in documents if d.member], training, seed=seed)
    scorers = build_scorers(model, config.model)
    lines = []
    for name, tuned in (("fine-tuned on half", "tuned"), ("control, not fine-tuned", "base")):
        results = judge(parts, [], {**scorers, "tuned": scorers[tuned]}, config)
        lines += [[name, *row[:3], row[-1]] for row in rows(results.table, results.calibration.detector)]
    notes = ["the control is the base itself in place of the fine-tuned model: the same texts and labels, no training"]
    headings = ["model", *HEADINGS[:3], HEADINGS[-1]]
    title = f"{len(parts.test)} test texts, half of them fine-tuning data"
    outcome.show_table(title, headings, lines, notes)
