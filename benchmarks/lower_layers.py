"""What the domain check saves by reading the lower layers alone, in processor time: --help.

    OMP_WAIT_POLICY=passive python -m benchmarks.lower_layers

The hidden states of texts in the middle of the embedded model, in turns within one process: `whole` passes through all
layers, as until 25 November 2026, and `lower` through those below the states.
"""

import time
from dataclasses import dataclass
from datetime import date
from unittest.mock import patch

import numpy as np
import torch
import tyro

from fsd.data import embedded
from fsd.data.corpus import Corpus
from fsd.models.language_model import LanguageModel, load
from fsd.scoring.model_scorer import LowerLayers, hidden_states
from fsd.token_stats import FloatArray


@dataclass(frozen=True)
class Settings:
    """How much is read, and how often."""

    texts: int = 150
    """Texts of the embedded corpus."""
    rounds: int = 3
    """Rounds of each way, of which the best is taken."""


def timed(model: LanguageModel, texts: list[str]) -> tuple[FloatArray, float]:
    """(N, D) hidden states, and processor seconds."""
    started = time.process_time()
    states = hidden_states(model, texts)
    return states, time.process_time() - started


def main(settings: Settings) -> None:
    """Print the seconds of either way, and their ratio."""
    model = load("embedded")
    texts = Corpus(embedded.corpus("arxiv")).texts[: settings.texts]
    print(f"{date.today()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {len(texts)} texts")
    whole_seconds, lower_seconds = [], []
    for _ in range(settings.rounds):
        # Without a layer to stop at, every pass goes through all of them.
        with patch.object(LowerLayers, "_layer", lambda *_: None):
            whole, seconds = timed(model, texts)
        whole_seconds.append(seconds)
        lower, seconds = timed(model, texts)
        lower_seconds.append(seconds)
    if not np.array_equal(whole, lower):
        raise AssertionError("both ways must give bitwise the same states")
    before = min(whole_seconds)
    after = min(lower_seconds)
    print(f"whole {before:.2f} s | lower {after:.2f} s | ratio {before / after:.2f}, bitwise the same")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
