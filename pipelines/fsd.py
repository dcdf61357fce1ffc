"""Fine-tune a model a little on texts it cannot have seen, and see whose scores move (the FSD paper, end to end).

`python -m pipelines.fsd --domain arxiv` runs offline on the embedded model and corpus. With --model it asks a
model of your own, with --data it reads texts of your own. Runs, figures and adapters go to MLflow (`make ui`).
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fsd.config import Dtype, FSDConfig
from pipelines.common.cli import command

if TYPE_CHECKING:
    from detectors import Detector
    from fsd.data.documents import Split
    from fsd.models.language_model import LanguageModel
    from pipelines.common import experiment


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
    from fsd import distributed as processes
    from fsd import tracking
    from fsd.evaluation import results as _outcome
    from fsd.models import adapters, language_model
    from fsd.reporting import console as _terminal
    from pipelines.common import datasets, detection, experiment
    from pipelines.common import run_log as _record

    stages = Stages()
    detectors = detection.load_detectors(config.detection)
    with stages("data"):
        gathered = datasets.gather(config.data, config.model)
        parts, remarks = datasets.divide(gathered.documents, config.data, config.seed)
    source = config.adapter
    adapter = processes.from_main(lambda: tracking.fetch_adapter(source)) if source else None
    with stages("model"):
        asked = config.model
        model = language_model.load(asked)
        if adapter:
            adapters.attach(model, adapter)
            parts = datasets.trained_on(parts, config.adapter)
        config = replace(config, model=replace(asked, dtype=cast("Dtype", model.dtype)))
        work = experiment.prepare(model, parts, detectors, config)
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
                experiment.tune(model, parts.unseen, config, run)
        with stages("scoring"):
            deviation = work.score()
        with stages("placebo"):
            placebo = experiment.placebo_of(config, parts, detectors)
        with stages("judging"):
            outcome = _outcome.judge(
                parts,
                deviation,
                placebo,
                detectors,
                remarks=remarks + [f"{name} left out: {reason}" for name, reason in work.left_out.items()],
                never_saw=experiment.never_saw(config, gathered.documents),
                seed=config.seed,
            )
        with tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
            folder = Path(scratch) / "adapter"
            adapters.save_adapter(model, folder)
            _record.track(run, outcome, config, model.identity, folder, stages.seconds)
    _terminal.show(outcome)


def help_main(
    work: "experiment.Work", parts: "Split", detectors: "Sequence[Detector]", config: FSDConfig, model: "LanguageModel"
) -> None:
    """What a process beside the main one does: train with it and read for it, and leave everything else to it."""
    from pipelines.common import experiment

    if not config.adapter:
        experiment.tune(model, parts.unseen, config, None)
    work.score()
    experiment.placebo_of(config, parts, detectors)


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
