"""Can passages of a work be extracted from a model? The probability of each continuation, and that of a control.

`fsd extract BOOK.txt --model MODEL --control OTHER.txt` gives 50 tokens of the book at every tenth
position and computes how probable its next 50 are. `--demo` shows it on an embedded model, offline in about a minute.

Examples:
    fsd extract book.txt --model ./my-model --control other.txt
    fsd extract --demo
"""

from dataclasses import dataclass, field
from typing import Annotated

from tyro.conf import Positional, arg

from fsd.config import (
    APIConfig,
    Domain,
    ModelConfig,
    OptionalInt,
    OptionalPath,
    OptionalPaths,
)


@dataclass(frozen=True)
class ExtractConfig:
    """Work, controls, model and passages."""

    book: Annotated[Positional[str], arg(metavar="BOOK", help_behavior_hint="")] = ""
    """Text file in UTF-8: the work in question."""
    control: OptionalPaths = ()
    """Text files that the model cannot have seen: by the same author unpublished, or of the same kind and period."""
    model: ModelConfig = field(default_factory=ModelConfig)
    api: APIConfig = field(default_factory=APIConfig)
    prefix: int = 50
    """Tokens of the work that are given."""
    suffix: int = 50
    """Tokens of the work that are to follow."""
    stride: int = 10
    """Tokens from the beginning of a passage to that of the next one."""
    temperature: float = 1.0
    """Temperature of a third way of sampling, beside plain sampling and greedy decoding."""
    top_k: OptionalInt = None
    """Number of most probable tokens that the third way of sampling draws from. Default: all."""
    answers: OptionalPath = None
    """File that keeps the answers of an API, so that an interrupted job goes on. Default: BOOK.answers."""
    domain: Domain = "extraction"
    demo: bool = False
    """Train the embedded model on a text in front of you, and extract it; the other flags have no effect."""

    @property
    def names(self) -> list[str]:
        """The work in question and its controls."""
        return [self.book, *self.control]
