"""Was this text in the fine-tuning data of a model whose base is public?

`fsd adapter-audit --model BASE --adapter URI --data FILE` scores texts with the adapter on and off. The
base is the perfect reference: it differs from the fine-tuned model in the fine-tuning alone. FILE has texts labelled 1
(in the fine-tuning data) and 0 (not), and may have texts without a label, which are judged. An adapter is registered
with its calibration, so that `fsd detect` judges further texts. `--demo` shows it offline.

Examples:
    fsd adapter-audit --model ./my-model --adapter ./adapter --data corpus.jsonl
    fsd adapter-audit --demo
"""

from dataclasses import dataclass, field

from fsd.api import (
    FPR,
    Columns,
    DetectorConfig,
    Domain,
    ModelConfig,
    OptionalModel,
    OptionalPath,
    OptionalPaths,
    OptionalURI,
)


@dataclass(frozen=True)
class AuditConfig:
    """Base, fine-tuned model, and texts."""

    data: OptionalPaths = ()
    """Files (JSONL, CSV, Parquet) with text, label (1 in the fine-tuning data, 0 not, empty to be judged), group; or
    with messages, prompt and completion, or prompt, chosen and rejected in place of text."""
    members: OptionalPaths = ()
    """Files or folders of texts in the fine-tuning data, in place of labels in --data; also .txt files."""
    nonmembers: OptionalPaths = ()
    """Files or folders of texts that are not, beside --members."""
    model: ModelConfig = field(default_factory=ModelConfig)
    adapter: OptionalURI = None
    """Adapter of the fine-tuned model: models:/NAME@ALIAS, runs:/<id>/adapter, a folder or a hub id."""
    tuned: OptionalModel = None
    """The fine-tuned model as a whole (merged, or fully fine-tuned), in place of --adapter: a folder or a hub id."""
    detection: DetectorConfig = field(default_factory=DetectorConfig)
    columns: Columns = ""
    validation: float = 0.5
    """Share of the labelled texts on which the detector is chosen; the others measure and calibrate it."""
    fpr: float = FPR
    """False-positive rate of the verdicts on texts without a label."""
    same_source: bool = False
    """Assert that these texts are of the source, time and kind of the labelled ones, where that is not tested."""
    out: OptionalPath = None
    """Output file for scores and verdicts: .parquet, .csv or .jsonl. The tracked run has a copy in any case."""
    domain: Domain = "adapter-audit"
    seed: int = 42
    """Random seed for the split and the bootstrap."""
    demo: bool = False
    """Fine-tune the embedded model in front of you, and audit it; the other flags have no effect."""

    @property
    def places(self) -> tuple[str, ...]:
        """All files and folders of texts."""
        return (*self.data, *self.members, *self.nonmembers)

    @property
    def name(self) -> str:
        """The fine-tuned model's."""
        return str(self.adapter or self.tuned)
