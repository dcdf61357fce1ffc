"""Where the scoring of the default run spends its time, and what two ways of computing it gain: --help.

    OMP_WAIT_POLICY=passive python -m benchmarks.run_profile --texts 80 --rounds 2

Every view of `fsd run --domain arxiv` (what is read, in which state of the model) is scored in two ways, in turns
within one process: `before` is one pass at a time on all threads, every text with all of its context, as until 22
November 2026; `now` is several batches at a time, with keys and values of a shared context computed once. No statistics
are read from the cache; the adapter is.
"""

import time
from dataclasses import dataclass
from datetime import date

import numpy as np
import torch
import tyro

from fsd.config import FSDConfig
from fsd.scoring import model_scorer
from fsd.scoring.model_scorer import ModelScorer, windows
from fsd.token_stats import FloatArray, Prompt
from fsd.views import DRAWS, FORMS
from pipelines.experiment import experiment
from pipelines.experiment.detector_settings import shots_of

WAYS = {"before": (1, 10**9), "now": (model_scorer.WORKERS, model_scorer.SHARED)}


@dataclass(frozen=True)
class Settings:
    """How much is scored, and how often."""

    texts: int = 357
    """Texts of the run, at most all of them."""
    rounds: int = 1
    """Rounds of each way, of which the best is taken."""


def timed(scorer: ModelScorer, prompts: list[Prompt]) -> tuple[FloatArray, float, float]:
    """(4, n) statistics of all tokens, and wall and processor seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    found = list(scorer(prompts))
    spent = time.perf_counter() - wall, time.process_time() - processor
    return np.concatenate([[stats.logp, stats.mean, stats.std, stats.top] for stats in found], axis=1), *spent


def main(settings: Settings) -> None:
    """Print a row for each view: tokens, seconds in either way, and their ratio."""
    inputs = experiment.read(FSDConfig())
    config, split = inputs.config, inputs.split
    opened = inputs.open()
    model = opened.language_model
    inputs.train(opened, None)
    texts = [Prompt(document.text) for document in (*split.validation, *split.test)][: settings.texts]
    unseen = [document.text for document in split.unseen]
    given = opened.inputs(unseen, shots=shots_of(config.detection, config.model.model))
    print(f"{date.today()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {len(texts)} texts")
    print("state, what is read | tokens | " + " | ".join(f"{way}: s wall (s cpu)" for way in WAYS) + " | ratio")
    totals, tokens, furthest = dict.fromkeys(WAYS, 0.0), 0, 0.0
    for form in [form for form in FORMS if form not in DRAWS]:
        prompts = list(dict.fromkeys(prompt for text in texts for prompt in FORMS[form].prompts(text, given)))
        if not prompts:  # the run has none of the further texts that this form reads
            continue
        for tuned in (False, True):
            scorer, numbers = ModelScorer(model, tuned=tuned), []
            best: dict[str, tuple[float, float]] = {}
            ids, firsts = scorer._tokens(prompts)
            read = sum(
                w.size for i, first in enumerate(firsts) for w in windows(i, len(ids[i]) - 1, first, model.context)
            )
            for _ in range(settings.rounds):
                for way, (model_scorer.WORKERS, model_scorer.SHARED) in WAYS.items():
                    found, wall, processor = timed(scorer, prompts)
                    numbers.append(found)
                    best[way] = min(best.get(way, (np.inf, np.inf)), (wall, processor))
            furthest = max(furthest, *(float(abs(numbers[0] - other).max()) for other in numbers))
            cells = " | ".join(f"{wall:.2f} ({processor:.2f})" for wall, processor in best.values())
            before, after = (wall for wall, _ in best.values())
            print(f"{'tuned' if tuned else 'base'}, {form} | {read:,} | {cells} | {before / after:.2f}", flush=True)
            tokens += read
            totals = {way: totals[way] + best[way][0] for way in WAYS}
    before, after = totals.values()
    print(f"all | {tokens:,} | {before:.2f} | {after:.2f} | {before / after:.2f}")
    print(f"largest difference of a number of a token: {furthest:.1e} nats")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
