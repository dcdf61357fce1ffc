"""Was a whole data set in the training data? Four tests, one p-value each, corrected for their number.

`fsd contamination FILE --model MODEL --known FILE` tests whether the model prefers the file's order to
random ones, and compares the file with texts known to be non-members, of the same source, time and kind. Through an API
(--model api:NAME) all but the test that fine-tunes the model.

Examples:
    fsd contamination questions.jsonl --model ./my-model --known others.jsonl
    fsd contamination lm-eval:arc_easy lm-eval:sciq --models ./old ./new
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from fsd.api import (
    AdapterConfig,
    APIConfig,
    Columns,
    DetectorConfig,
    Domain,
    ModelConfig,
    OptionalDay,
    OptionalPath,
    OptionalPaths,
)


@dataclass(frozen=True)
class ContaminationConfig:
    """Data set, known non-members, model and tests."""

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE [FILE ...]", help_behavior_hint="")]
    """The data set: JSONL, CSV or Parquet with a column `text`, in the order in which it was published; or several."""
    known: OptionalPaths = ()
    """Texts known to be non-members, of the same source, time and kind; without them only the order is tested."""
    models: Annotated[tuple[str, ...], arg(metavar="MODEL [MODEL ...]", help_behavior_hint="")] = ()
    """Several models in place of --model: one table of models and data sets, of which finished cells are kept."""
    model: ModelConfig = field(default_factory=ModelConfig)
    api: APIConfig = field(default_factory=APIConfig)
    training: AdapterConfig = field(default_factory=lambda: AdapterConfig(epochs=1))
    detection: DetectorConfig = field(default_factory=DetectorConfig)
    columns: Columns = ""
    near_duplicates: Literal["refuse", "drop"] = "refuse"
    """Known texts that are near-duplicates of the data set: an error, or left out, counted and named."""
    cutoff: OptionalDay = None
    """Last day of the model's data, if it is not a known one: known non-members must be later."""
    shard: int = 5
    """Consecutive texts per shard of the test of order."""
    orders: int = 19
    """Random orders per shard."""
    sets: int = 19
    """Sets of known non-members among which the data set is ranked; the smallest p-value is 1 / (sets + 1)."""
    level: float = 0.05
    """Significance level of the conclusion."""
    answers: OptionalPath = None
    """File that keeps the answers of an API, so that an interrupted job goes on. Default: FILE.answers."""
    domain: Domain = "contamination"
    seed: int = 42
    """Random seed for orders, sets, halves and fine-tuning."""
