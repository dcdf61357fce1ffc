"""Canaries: random text published with documents, whose rank among unpublished alternatives is exact evidence.

`fsd canary make` draws and seals them, `test` ranks them with any model, `demo` shows both offline.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from fsd.api import (
    Columns,
    DetectorConfig,
    Domain,
    ExaminedConfig,
    OptionalInt,
    OptionalModel,
    OptionalName,
    OptionalPaths,
    Paths,
)


@dataclass(frozen=True)
class MakeConfig:
    """Draw one of N equally likely variants for each document, to publish it, and seal the list.

    `fsd canary make --data FILE --out DIR` writes DIR/published.jsonl (publish it), DIR/sealed.json
    (keep it secret until the test) and DIR/commitment.txt (publish it, so that nobody can doubt the list later).

    Examples:
        fsd canary make --data documents.jsonl --out canaries
        fsd canary make --data novel.txt --out canaries
    """

    data: Paths
    """Files (JSONL, CSV, Parquet) with a column `text`, .txt files of one document each, or folders of the ones or
    others; for paraphrases JSONL with a list `variants` in each row."""
    out: Annotated[str, arg(metavar="PATH")]
    """Output folder; must not exist, or be empty."""
    kind: Literal["words", "digits", "paraphrase"] = "words"
    """Random words after each document, a string of digits, or one of the document's own paraphrases in its place,
    which suits authors: nothing is added that their readers would see."""
    variants: int = 1000
    """Number N of equally likely canaries per document: the smallest p-value of one document is 1/N."""
    length: int = 8
    """Words or digits per canary."""
    rarity: Literal["common", "medium", "rare"] = "rare"
    """Which third of the words to draw from, by their frequency."""
    words: OptionalPaths = ()
    """Files of text whose words are drawn from. Default: the documents."""
    repetitions: tuple[int, ...] = (1,)
    """How often a document is published; several numbers are assigned to equal shares of the documents at random."""
    tokenizer: OptionalModel = None
    """Draw only words of equally many tokens for this model (`embedded`, folder or hub id)."""
    alpha: float = 0.001
    """Significance level that the rank of a single document must be able to reach."""
    columns: Columns = ""
    seed: OptionalName = None
    """Secret from which, with the documents, all draws follow. Default: 128 random bits, stored in sealed.json."""


@dataclass(frozen=True)
class RankConfig(ExaminedConfig):
    """Rank the published canaries among the withheld ones: exact evidence that a model was trained on them.

    `fsd canary test DIR --model MODEL` reads the folder that `make` wrote, checks it against its
    commitment, and scores all variants of every canary. A model that was not trained on the documents gives uniform
    ranks.

    Examples:
        fsd canary test canaries --model ./my-model
        fsd canary test canaries --model ./my-model --withheld 99 --dry-run
    """

    folder: Annotated[Positional[str], arg(metavar="DIR")]
    """Folder that `make` wrote."""
    detection: DetectorConfig = field(default_factory=lambda: DetectorConfig(detectors="loss"))
    withheld: OptionalInt = None
    """Withheld variants to score per document, drawn at random. Default: all."""
    alpha: float = 0.05
    """Significance level at which a single document counts as found."""
    domain: Domain = "canaries"
    seed: int = 42
    """Random seed for the choice of withheld variants and the combined test."""


@dataclass(frozen=True)
class DemoConfig:
    """Canaries on the embedded model, which is trained on some of them in front of you: a minute, offline.

    `fsd canary demo` publishes canaries 1, 4 and 16 times with abstracts written for this project,
    trains the embedded model on what was published, and tests it. The model before this training, which saw none, is
    the control.

    Examples:
        fsd canary demo
    """

    seed: int = 42
    """Random seed for the documents, the canaries and the training."""
