"""What a command is about to do: made and checked by its `prepare`, printed by --dry-run, done by `run`."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.config import AdapterConfig, ModelConfig, Recipe

if TYPE_CHECKING:
    from fsd.reporting.report import Report
    from fsd.views import Detector

TOKEN = 3.0
"""Characters a token, about, of the small vocabularies of models that are pretrained from scratch."""
Passes = Mapping[str, int]
"""Reader (base, tuned, reference) → number of texts that it scores."""


@dataclass(frozen=True)
class Job:
    """A command whose settings and files have been checked.

    Attributes:
        work: does it.
        reads: what is read → files and numbers of texts.
        model: the model under test; None if none is loaded.
        texts: texts that are scored; None if they are not on this machine, so that they cannot be counted.
        passes: see `Passes`.
        trained: texts that are trained on.
        training: how; None without training.
        rounds: how often training and scoring are repeated, such as by the trials of a tuning.
        writes: what is written.
        experiment: of the tracked run; empty for a command that is not tracked.
        notes: what the numbers leave out.
    """

    work: Callable[[], object]
    reads: Mapping[str, str]
    model: ModelConfig | None = None
    texts: Sequence[str] | None = ()
    passes: Passes = field(default_factory=dict)
    trained: Sequence[str] = ()
    training: AdapterConfig | None = None
    rounds: int = 1
    writes: Sequence[object] = ()
    experiment: str = ""
    notes: Sequence[str] = ()

    def run(self) -> object:
        """Do the work, after a check that its results can be stored."""
        if self.experiment:
            from fsd import distributed, tracking
            from pipelines.common.output import check_space

            check_space([*(self.texts or ()), *self.trained])
            distributed.from_main(tracking.check_store)
        return self.work()

    def plan(self) -> "Report":
        """What would be done, without doing it."""
        import pandas as pd

        from fsd.reporting.report import Report, Section, numbers

        writes = [str(path) for path in self.writes if path]
        writes += [f"a run of the experiment {self.experiment}"] if self.experiment else []
        rows = [*self.reads.items(), *self._model(), ("writes", ", ".join(writes) or "nothing")]
        frame = pd.DataFrame(rows, columns=["what", "value"])
        notes = [*self.notes, "dry run: nothing was trained, scored, written or tracked"]
        return Report(
            headline="dry run", findings=notes, sections=[Section("", tables=[numbers("plan", frame)])], facts=rows
        )

    def _model(self) -> list[tuple[str, str]]:
        """Model, passes, steps, tokens and memory."""
        if self.model is None:
            return []
        from fsd.models.language_model import load_tokenizer, memory
        from fsd.net.hub import model_size

        name = self.model.model
        size = model_size(name, self.model.revision)
        work = ", ".join(f"{count * self.rounds:,} by {reader}" for reader, count in self.passes.items())
        passes = f"{sum(self.passes.values()) * self.rounds:,} texts ({work})"
        steps = 0
        if self.training and self.trained:
            steps = math.ceil(len(self.trained) / self.training.batch_size) * self.training.epochs * self.rounds
        computes = [
            ("forward passes", "unknown before the download" if self.texts is None else passes),
            ("training steps", f"{steps:,}"),
        ]
        if name.startswith("api:"):
            return [("model", f"{name}, behind an API: nothing is loaded"), *computes]
        if size is None:
            absent = f"{name}: not on this machine, to be downloaded; its size is known after that"
            return [("model", absent), *computes]
        shown = f"{name}: {size.parameters:,} parameters, {byte_size(size.size)} in {size.folder}"
        rows = [("model", shown), *computes]
        if self.texts is not None:
            tokenizer, _ = load_tokenizer(name, revision=self.model.revision)
            ids = (
                tokenizer(list(self.texts), add_special_tokens=False, verbose=False)["input_ids"] if self.texts else []
            )
            rows.append(("tokens", f"{sum(map(len, ids)):,} in the texts to score"))
        low, high, device = memory(size, self.model, trained=bool(steps))
        return [*rows, ("memory", f"{byte_size(low)} to {byte_size(high)} on {device}")]


@dataclass
class Stages:
    """Seconds spent in each stage of a run, by metric name."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time of the block to that of the stage `name`."""
        begun = time.perf_counter()
        yield
        before = self.seconds.get(f"seconds/{name}", 0.0)
        self.seconds[f"seconds/{name}"] = before + time.perf_counter() - begun


def passes(
    detectors: "Iterable[Detector]",
    texts: Sequence[str],
    model: ModelConfig,
    *,
    states: Sequence[str] = ("base", "tuned"),
    unseen: bool = True,
) -> Passes:
    """Number of texts that each model scores; a view that several detectors share is computed once."""
    from fsd.scoring.model import WORD_SWAPS, reader_names
    from fsd.scoring.neighbours import NEIGHBOURS
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


def files(names: Iterable[object], texts: int | None = None) -> str:
    """Files with their number of texts, if it is known."""
    listed = list(map(str, names))
    shown = ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
    return shown if texts is None else f"{texts:,} texts in {shown}"


def pretraining(recipe: Recipe, tokens: float) -> dict[str, str]:
    """Size of a model that is pretrained from scratch, and what it is trained on, over all passes and models."""
    count = 12 * recipe.layers * recipe.hidden_size**2 + 2 * recipe.vocabulary * recipe.hidden_size
    return {"model": f"about {count:,} parameters, from scratch", "tokens": f"about {tokens:,.0f} to train on"}


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
