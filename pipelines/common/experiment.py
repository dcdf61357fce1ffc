"""The steps that the main job, tuning and studies share: prepare, fine-tune, score, and the control."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from fsd import distributed as processes
from fsd.config import FSDConfig
from fsd.data import embedded
from fsd.data.documents import Document, Split
from fsd.errors import UsageError
from fsd.models import language_model
from fsd.models.finetuning import finetune, plan
from fsd.models.language_model import LanguageModel
from fsd.net.hub import EMBEDDED
from fsd.scoring.deviation import Detector, Deviation, evaluate, usable
from fsd.scoring.scorers import build_scorers, view_inputs
from fsd.token_stats import Scorer
from fsd.tracking import Run
from fsd.views import ViewInputs


def tune(model: LanguageModel, unseen: Sequence[Document], config: FSDConfig, run: Run | None) -> None:
    """Train a fresh adapter on the unseen texts, logging every step."""

    def log(numbers: Mapping[str, float], step: int) -> None:
        if run:
            run.log_metrics({f"train/{name}": value for name, value in numbers.items()}, step=step)

    texts = [document.text for document in unseen]
    finetune(model, texts, config.training, seed=config.seed, log=log, shown=processes.is_main())


@dataclass(frozen=True)
class Work:
    """All that scoring needs, checked before anything is trained or written."""

    texts: list[str]
    detectors: Sequence[Detector]
    left_out: dict[str, str]
    scorers: Mapping[str, Scorer]
    material: ViewInputs

    def score(self) -> Deviation:
        """Base, tuned and FSD scores of the validation and test texts, in that order; none but in the main process."""
        team = processes.team()
        if team and not team.main:
            team.serve(self.scorers)
            return Deviation()
        with team.leading() if team else nullcontext():
            return evaluate(self.texts, self.detectors, self.scorers, self.material, shown=True)


def prepare(
    model: LanguageModel,
    parts: Split,
    detectors: Sequence[Detector],
    config: FSDConfig,
    scorers: Mapping[str, Scorer] | None = None,
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
    texts = [document.text for document in (*parts.validation, *parts.test)]
    scorers = scorers or build_scorers(model, config.model)
    if "tuned" in scorers and not model.adapted:
        plan(model, [document.text for document in parts.unseen], config.training)
    material = view_inputs(config.model, [d.text for d in parts.unseen], shots=config.detection.shots, seed=config.seed)
    kept, left_out = usable(detectors, texts, scorers, material)
    if left_out and (config.detection.detectors != "all" or not kept):
        name, reason = next(iter(left_out.items()))
        raise UsageError(f"detector {name} cannot be computed here: {reason}")
    return Work(texts, kept, left_out, scorers, material)


def placebo_of(config: FSDConfig, parts: Split, detectors: Sequence[Detector]) -> tuple[str, Deviation] | None:
    """The same job on a model that saw neither side, but for the detectors that cost more than a pass or two."""
    name = placebo_model(config, [*parts.validation, *parts.test])
    if name is None:
        return None
    cheap = [detector for detector in detectors if not {"neighbours", "primed"} & set(detector.views)]
    model = language_model.load(config.model, model=name, revision=None)
    stand_in = replace(
        config,
        model=replace(config.model, model=name, revision=None, reference_model=None, frequencies=None),
        detection=replace(config.detection, detectors="all"),
    )
    work = prepare(model, parts, cheap, stand_in)
    tune(model, parts.unseen, stand_in, None)
    return name, work.score()


def placebo_model(config: FSDConfig, documents: Sequence[Document]) -> str | None:
    """The model for the placebo, or None for no placebo.

    The embedded model saw none of anybody's texts but its own, for which its twin stands in. When it is itself
    asked about texts that it never saw, the run is a placebo already.
    """
    if config.placebo == "none":
        return None
    if config.placebo != "auto":
        return config.placebo
    if config.model.model == "embedded":
        return None if never_saw(config, documents) else "embedded-twin"
    return "embedded"


def never_saw(config: FSDConfig, documents: Sequence[Document]) -> bool:
    """Whether the model is known to have seen none of the texts: an embedded one, asked about others than its own."""
    own = {document.text for document in embedded.corpus()} if config.model.model in EMBEDDED else set()
    return bool(own) and not any(document.text in own for document in documents)
