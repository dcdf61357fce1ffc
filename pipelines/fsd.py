"""Fine-tune a model a little on texts it cannot have seen, and see whose scores move (the FSD paper, end to end).

`python -m pipelines.fsd --domain arxiv` runs offline on the embedded model and corpus. With --model it asks a
model of your own, with --data it reads texts of your own. Runs, figures and adapters go to MLflow (`make ui`).
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fsd.config import Dtype, FSDConfig
from pipelines._command import command

if TYPE_CHECKING:
    from detectors import Detector
    from fsd import deviation as engine
    from fsd.deviation import Deviation
    from fsd.documents import Document, Split
    from fsd.models import LanguageModel
    from fsd.stats import Scorer
    from fsd.tracking import Run
    from fsd.views import Material


@dataclass
class Stages:
    """Seconds spent in each stage of a run."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time the block as the stage `name`."""
        begun = time.perf_counter()
        yield
        self.seconds[f"seconds/{name}"] = time.perf_counter() - begun


def main(config: FSDConfig) -> None:
    """Split, fine-tune or reuse, score before and after, judge, and keep everything."""
    from fsd import models, processes, tracking
    from pipelines import _assembly, _outcome, _record, _terminal

    stages = Stages()
    detectors = _assembly.chosen(config.detection)
    with stages("data"):
        gathered = _assembly.gather(config.data, config.model)
        parts, remarks = _assembly.divide(gathered.documents, config.data, config.seed)
    source = config.adapter
    adapter = processes.from_main(lambda: tracking.fetch_adapter(source)) if source else None
    with stages("model"):
        asked = config.model
        model = models.load(
            asked.model, revision=asked.revision, device=asked.device, dtype=asked.dtype, bits=asked.bits
        )
        if adapter:
            models.attach(model, adapter)
            parts = _assembly.trained_on(parts, config.adapter)
        config = replace(config, model=replace(asked, dtype=cast("Dtype", model.dtype)))
        work = prepare(model, parts, detectors, config)
    if not processes.is_main():
        help_main(work, parts, detectors, config, model)
        return
    with tracking.run(
        f"fsd-{config.data.domain}",
        _name(config),
        params=_params(config, detectors),
        tags=_tags(config, model, gathered.sources),
    ) as run:
        if not adapter:
            with stages("finetuning"):
                tune(model, parts.unseen, config, run)
        with stages("scoring"):
            deviation = work.score()
        with stages("placebo"):
            placebo = placebo_of(config, parts, detectors)
        with stages("judging"):
            outcome = _outcome.judge(
                parts,
                deviation,
                placebo,
                detectors,
                remarks=remarks + [f"{name} left out: {reason}" for name, reason in work.left_out.items()],
                never_saw=_assembly.never_saw(config, gathered.documents),
                seed=config.seed,
            )
        with tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
            folder = Path(scratch) / "adapter"
            models.save_adapter(model, folder)
            _record.track(run, outcome, config, model.identity, folder, stages.seconds)
    _terminal.show(outcome)


def tune(model: "LanguageModel", unseen: "Sequence[Document]", config: FSDConfig, run: "Run | None") -> None:
    """Train a fresh adapter on the unseen texts, logging every step."""
    from fsd import processes
    from fsd.finetuning import finetune

    def log(numbers: Mapping[str, float], step: int) -> None:
        if run:
            run.log_metrics({f"train/{name}": value for name, value in numbers.items()}, step=step)

    texts = [document.text for document in unseen]
    finetune(model, texts, config.training, seed=config.seed, log=log, shown=processes.is_main())


def help_main(
    work: "Work", parts: "Split", detectors: "Sequence[Detector]", config: FSDConfig, model: "LanguageModel"
) -> None:
    """What a process beside the main one does: train with it and read for it, and leave everything else to it."""
    if not config.adapter:
        tune(model, parts.unseen, config, None)
    work.score()
    placebo_of(config, parts, detectors)


@dataclass(frozen=True)
class Work:
    """All that scoring needs, checked before anything is trained or written."""

    texts: list[str]
    detectors: "Sequence[engine.Detector]"
    left_out: dict[str, str]
    scorers: "Mapping[str, Scorer]"
    material: "Material"

    def score(self) -> "Deviation":
        """Base, tuned and FSD scores of the validation and test texts, in that order; none but in the main process."""
        from fsd import processes
        from fsd.deviation import Deviation, evaluate

        team = processes.team()
        if team and not team.main:
            team.serve(self.scorers)
            return Deviation()
        with team.leading() if team else nullcontext():
            return evaluate(self.texts, self.detectors, self.scorers, self.material, shown=True)


def prepare(
    model: "LanguageModel",
    parts: "Split",
    detectors: "Sequence[Detector]",
    config: FSDConfig,
    scorers: "Mapping[str, Scorer] | None" = None,
) -> Work:
    """Which detectors can be computed on the validation and test texts, what they read, and why others are left out.

    Args:
        model: the base; if it has no adapter yet, it must be trainable as the settings say.
        parts: the split; the unseen texts give the prefix of recall and the words of neighbours.
        detectors: those to compute.
        config: of the run.
        scorers: readers to use in place of the model's own: ones that remember, say.

    Raises:
        UsageError: if a detector that was asked for by name cannot be computed, or none can, or the training is
            impossible.
    """
    from fsd.deviation import usable
    from fsd.errors import UsageError
    from fsd.finetuning import plan
    from pipelines import _assembly

    texts = [document.text for document in (*parts.validation, *parts.test)]
    scorers = scorers or _assembly.scorers(model, config.model)
    if "tuned" in scorers and not model.adapted:
        plan(model, [document.text for document in parts.unseen], config.training)
    material = _assembly.material(config.model, parts.unseen, shots=config.detection.shots, seed=config.seed)
    kept, left_out = usable(detectors, texts, scorers, material)
    if left_out and (config.detection.detectors != "all" or not kept):
        name, reason = next(iter(left_out.items()))
        raise UsageError(f"detector {name} cannot be computed here: {reason}")
    return Work(texts, kept, left_out, scorers, material)


def placebo_of(config: FSDConfig, parts: "Split", detectors: "Sequence[Detector]") -> "tuple[str, Deviation] | None":
    """The same job on a model that saw neither side, but for the detectors that cost more than a pass or two."""
    from fsd import models
    from pipelines import _assembly

    name = _assembly.placebo_model(config, [*parts.validation, *parts.test])
    if name is None:
        return None
    cheap = [detector for detector in detectors if not {"neighbours", "primed"} & set(detector.views)]
    model = models.load(name, device=config.model.device, dtype=config.model.dtype, bits=config.model.bits)
    stand_in = replace(
        config,
        model=replace(config.model, model=name, revision=None, reference_model=None, frequencies=None),
        detection=replace(config.detection, detectors="all"),
    )
    work = prepare(model, parts, cheap, stand_in)
    tune(model, parts.unseen, stand_in, None)
    return name, work.score()


def _name(config: FSDConfig) -> str:
    return f"{Path(config.model.model).name} {'reused adapter' if config.adapter else config.training.method}"


def _params(config: FSDConfig, detectors: "Sequence[Detector]") -> dict[str, object]:
    """Every setting under its flag's name, and every detector's own settings."""
    values = asdict(config)
    flat = {
        key: value for group in ("data", "model", "training", "detection") for key, value in values.pop(group).items()
    }
    flat.pop("settings")
    return {**flat, **values, "detector": {detector.name: dict(detector.settings) for detector in detectors}}


def _tags(config: FSDConfig, model: "LanguageModel", sources: Mapping[str, str]) -> dict[str, object]:
    return {
        "texts": ", ".join(f"{name} {version}" for name, version in sources.items()),
        "base_model": model.identity.id,
        "base_revision": model.identity.revision or "local",
        "base_fingerprint": model.identity.fingerprint,
        "method": "reused" if config.adapter else config.training.method,
    }


if __name__ == "__main__":
    command(FSDConfig, main, __doc__ or "", parallel=True)
