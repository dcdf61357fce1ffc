"""Score texts by a model as it is, without fine-tuning: the base detectors, also through a completions API.

`python -m pipelines.score --model api:NAME --base-url http://localhost:8000/v1 --data FILE --out scores.parquet`. An API
gives log-probabilities of the text's own tokens and no more; detectors that need more are left out, with a line. Without
`api:` it scores a model whose weights are at hand. Where texts are labelled, AUCs follow.
"""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.config import ScoreConfig
from pipelines._command import command

if TYPE_CHECKING:
    import pandas as pd

    from fsd.completions import CompletionsScorer
    from fsd.deviation import Detector
    from fsd.documents import Document
    from fsd.metrics import Evaluation
    from fsd.stats import Prompt, Scorer, Scores
    from fsd.views import Material

API = "api:"


def main(config: ScoreConfig) -> None:
    """Read, estimate, score, write, judge what is labelled, and keep everything."""
    from fsd import tracking
    from fsd.deviation import evaluate, usable
    from fsd.errors import UsageError
    from fsd.rows import parse_columns, read_files
    from pipelines import _assembly, _case

    out = Path(config.out)
    _case.check_out(out)
    documents = read_files(config.data, parse_columns(config.columns))
    unseen = read_files([config.unseen]) if config.unseen else []
    texts = [document.text for document in documents]
    chosen = _assembly.chosen(config.detection)
    scorers = readers(config, Path(f"{out}.partial"))
    material = _assembly.material(config.model, unseen, shots=config.detection.shots, seed=config.seed)
    detectors, left_out = usable(chosen, texts, scorers, material)
    if left_out and (config.detection.detectors != "all" or not detectors):
        name, reason = next(iter(left_out.items()))
        raise UsageError(f"detector {name} cannot be computed here: {reason}")
    if config.model.model.startswith(API):
        announce(prompts_of(texts, detectors, material), config)
    with tracking.run(f"fsd-{config.domain}", "score", params=params(config), tags={"task": "score"}) as run:
        scores = evaluate(texts, detectors, scorers, material).base
        table = frame(documents, scores)
        _case.write(table, out)
        run.log_dataset("scored", texts, source=", ".join(config.data), context="score")
        run.log_table("scores.parquet", table)
        found, blind = judge(documents, scores, seed=config.seed)
        run.log_metrics(numbers(found))
    shutil.rmtree(f"{out}.partial", ignore_errors=True)
    show(found, blind, [f"{name} left out: {reason}" for name, reason in left_out.items()])
    print(f"wrote {out}: {len(texts)} texts, {len(detectors)} detectors")


def readers(config: ScoreConfig, partial: Path) -> "dict[str, Scorer]":
    """What can read a text: the model as it is, or an API whose answers are kept in `partial`."""
    from fsd import models
    from fsd.cache import CachedScorer, StatsCache
    from pipelines import _assembly

    if not config.model.model.startswith(API):
        settings = config.model
        model = models.load(
            settings.model, revision=settings.revision, device=settings.device, dtype=settings.dtype
        )
        found = _assembly.scorers(model, settings)
        return {name: scorer for name, scorer in found.items() if name != "tuned"}
    remote = _remote(config)
    kept = KeptAPI(remote, StatsCache(partial), remote.key)
    answer: dict[str, Scorer] = {"target": kept}
    if config.model.reference_model:
        answer["reference"] = _assembly.reference_scorer(config.model.reference_model, config.model)
    return answer
