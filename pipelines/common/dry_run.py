"""Dry runs: what a command would read, load, download and compute, about how long it takes, and in which memory."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.config import AdapterConfig, ModelConfig, Recipe

if TYPE_CHECKING:
    from fsd.views import Detector

TOKEN = 3.0
"""Characters a token, about, of the small vocabularies of models that are pretrained from scratch."""
Passes = Mapping[str, int]
"""Reader (base, tuned, reference) → number of texts that it reads."""


@dataclass(frozen=True)
class Plan:
    """What a command would do.

    Attributes:
        reads: what is read → files and numbers of texts.
        model: the model under test; None if none is loaded.
        texts: texts that are scored; None if they are not on this machine, so that they cannot be counted.
        passes: see `Passes`.
        trained: texts that are trained on.
        training: how; None without training.
        rounds: how often training and scoring are repeated, such as by the trials of a tuning.
        writes: what is written.
        notes: what the estimate leaves out.
    """

    reads: Mapping[str, str]
    model: ModelConfig | None = None
    texts: Sequence[str] | None = ()
    passes: Passes = field(default_factory=dict)
    trained: Sequence[str] = ()
    training: AdapterConfig | None = None
    rounds: int = 1
    writes: Sequence[str] = ()
    notes: Sequence[str] = ()


def show(plan: Plan) -> None:
    """Print the plan, on stdout alone."""
    import pandas as pd

    from fsd.reporting import console
    from pipelines.common import outcome

    rows = [*plan.reads.items(), *_model(plan), ("writes", ", ".join(plan.writes) or "nothing")]
    notes = [*plan.notes, "dry run: nothing was trained, scored, written or tracked"]
    found = outcome.Outcome("dry run", {"plan": pd.DataFrame(rows, columns=["what", "value"])}, notes)

    def text() -> None:
        console.facts(rows)
        console.table([], [], notes)

    outcome.show(found, None, text)


def _model(plan: Plan) -> list[tuple[str, str]]:
    """Model, passes, steps, time and memory."""
    if plan.model is None:
        return []
    from fsd.models import cost

    name, revision = plan.model.model, plan.model.revision
    size = cost.model_size(name, revision)
    passes = sum(plan.passes.values()) * plan.rounds
    steps = 0
    if plan.training and plan.trained:
        steps = math.ceil(len(plan.trained) / plan.training.batch_size) * plan.training.epochs * plan.rounds
    work = ", ".join(f"{count * plan.rounds:,} by {reader}" for reader, count in plan.passes.items())
    computes = [
        ("forward passes", f"{passes:,} texts ({work})" if plan.texts is not None else "unknown before the download"),
        ("training steps", f"{steps:,}"),
    ]
    if name.startswith("api:"):
        return [("model", f"{name}, behind an API: nothing is loaded"), *computes]
    if size is None:
        loaded = f"{name}: not on this machine, to be downloaded; its size is known after that"
        return [("model", loaded), *computes, ("time", "unknown before the download")]
    shown = f"{name}: {cost.parameters(size):,} parameters, {byte_size(size.size)} in {size.folder}"
    machine = cost.machine(plan.model)
    memory = cost.memory(size, machine, trained=bool(steps))
    rows = [("model", shown), *computes]
    if plan.texts is not None:
        read = cost.tokens(name, revision, list(plan.texts)) if plan.texts else 0
        trained = cost.tokens(name, revision, list(plan.trained)) if steps else 0
        epochs = plan.training.epochs if plan.training else 0
        share = passes / max(1, len(plan.texts))
        time = cost.seconds(read * share, trained * epochs * plan.rounds, size, machine.speed)
        rows.append(
            (
                "time",
                f"{_seconds(time.low)} to {_seconds(time.high)} on {machine.device}, from {read:,} tokens and "
                f"{machine.speed / 1e9:,.0f} GFLOP/s measured; rough, and without what the cache has",
            )
        )
    return [*rows, ("memory", f"{byte_size(memory.low)} to {byte_size(memory.high)} on {machine.device}")]


def passes(
    detectors: "Iterable[Detector]",
    texts: Sequence[str],
    model: ModelConfig,
    *,
    states: Sequence[str] = ("base", "tuned"),
    unseen: bool = True,
) -> Passes:
    """Number of texts that each model reads; a view that several detectors share is computed once.

    Args:
        detectors: the requested detectors; those that cannot be computed are left out.
        texts: the texts to score.
        model: with its reference and neighbours.
        states: of the model.
        unseen: whether there are unseen texts, for prefixes and neighbours.
    """
    from fsd.scoring.masked_lm import NEIGHBOURS
    from fsd.scoring.scorers import WORD_SWAPS, reader_names
    from fsd.views import ViewInputs, usable, view_in

    readers = reader_names(model)
    words = model.neighbour_model in (None, "words")
    has_neighbours = unseen and (model.neighbour_model is not None or model.model == "embedded")
    inputs = ViewInputs("a prefix" if unseen else "", (lambda _: ()) if has_neighbours else None)
    sizes = {"neighbours": model.neighbours or (WORD_SWAPS if words else NEIGHBOURS)}
    views = set()
    for detector in usable(list(detectors), texts, readers, inputs)[0]:
        views |= {view_in(state, view) for state in states for view in detector.views}
    counts = Counter[str]()
    for view in views:
        if view.reader != "unigram":
            counts[view.reader] += len(texts) * sizes.get(view.form, 1)
    return dict(sorted(counts.items()))


def files(names: Iterable[str], texts: int | None = None) -> str:
    """Files with their number of texts, if it is known."""
    listed = list(names)
    shown = ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
    return shown if texts is None else f"{texts:,} texts in {shown}"


def tracked(experiment: str, *others: object) -> list[str]:
    """What a tracked command writes."""
    return [*(str(other) for other in others if other), f"a run of the experiment {experiment}"]


def pretraining(recipe: Recipe, tokens: float, device: str) -> dict[str, str]:
    """Size of a model that is pretrained from scratch, and about how long its training takes.

    Args:
        recipe: architecture of the model.
        tokens: that are trained on, over all passes and models.
        device: that it is trained on.

    Raises:
        UsageError: for an unknown device.
    """
    from fsd.models import cost

    count = 12 * recipe.layers * recipe.hidden_size**2 + 2 * recipe.vocabulary * recipe.hidden_size
    machine = cost.machine(ModelConfig(device=device))
    time = cost.seconds(0, tokens, cost.ModelSize(Path(), 0, count), machine.speed)
    shown = f"{_seconds(time.low)} to {_seconds(time.high)} on {machine.device}, from about {tokens:,.0f} tokens and "
    return {
        "model": f"about {count:,} parameters, from scratch",
        "time": f"{shown}{machine.speed / 1e9:,.0f} GFLOP/s measured; rough",
    }


def on_this_machine(name: str) -> bool:
    """Whether a file or model can be read without the network."""
    from fsd.net.hub import EMBEDDED

    return name in EMBEDDED or Path(name).expanduser().exists()


def byte_size(number: float) -> str:
    """A number of bytes in a fitting unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def _seconds(number: float) -> str:
    if number < 90:
        return f"{number:.0f} s"
    return f"{number / 60:.0f} min" if number < 5400 else f"{number / 3600:.1f} h"
