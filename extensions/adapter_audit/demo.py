"""What `fsd adapter-audit --demo` shows: an adapter of the embedded model, and the base in place of it."""

from dataclasses import replace

from extensions.adapter_audit.audit import Inputs, measure
from extensions.adapter_audit.report import detectors_table
from extensions.adapter_audit.settings import AuditConfig
from fsd.api import (
    FOR,
    STATES,
    AdapterConfig,
    Corpus,
    DetectorConfig,
    Finding,
    ModelConfig,
    corpus,
    finetune,
    open_model,
    split_labelled,
)
from pipelines.api import show_demonstration, stage


def demo(seed: int) -> None:
    """Fine-tune the embedded model on half of some abstracts, and distinguish these from the others."""
    with stage("model"):
        config = AuditConfig(
            model=ModelConfig(cache="none"), detection=DetectorConfig(detectors="loss,min_k,zlib"), seed=seed
        )
        unread = [document for document in corpus() if not document.member][:100]
        half = len(unread) // 2
        trained_on = [replace(document, member=True) for document in unread[:half]]
        inputs = Inputs(split_labelled(trained_on + unread[half:], validation=config.validation, seed=seed))
        # with the tuned state, of the adapter that is trained below
        model = open_model(config.model, states=STATES)
        training = AdapterConfig(epochs=8, learning_rate=3e-3, batch_size=4)
        finetune(model.language_model, Corpus(trained_on).texts, training, seed=seed)
        # the base compared with itself: every difference is 0, as without fine-tuning
        untouched = replace(model, scorers={**model.scorers, "tuned": model.scorers["base"]})
    with stage("scoring"):
        table = detectors_table(measure(inputs, model.audited(), config))
        control = detectors_table(measure(inputs, untouched.audited(), config))
    detector, _, auc, *_ = table.rows[0]
    result = f"{detector}, fine-tuned minus base: AUC {auc}; without fine-tuning {control.rows[0][2]}"
    meaning = "without it, the base takes the place of the fine-tuned model: the same texts and labels, no training"
    show_demonstration(
        [Finding(result), Finding(meaning, FOR)],
        replace(table, source="--json", caption=""),
        "fsd adapter-audit --model BASE --adapter DIR --data FILE",
    )
