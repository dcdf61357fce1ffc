"""How the adapter is trained, tuned by training one a trial; the base model reads the validation texts once."""

import contextlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna

from detectors import Detector
from fsd import tracking
from fsd.config import AdapterConfig, FSDConfig, TuneConfig
from fsd.data.documents import Document
from fsd.errors import UsageError
from fsd.scoring.cache import MemoizedScorer
from fsd.scoring.deviation import ViewStatistics, usable
from fsd.scoring.scorers import build_scorers, view_inputs
from fsd.search_space import Choice, Range, Search
from fsd.token_stats import FloatArray, Scorer
from fsd.tracking import Run
from fsd.tuning.objective import Settings, ValidationSet, Winner, winner
from fsd.tuning.optuna_study import importance, search
from fsd.views import ViewInputs
from pipelines.common import detection
from pipelines.tune import run_log as _tuning_record
from pipelines.tune.job import Field, Tuned, plan_of

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel

SEARCH: dict[str, Search] = {
    "method": Choice(("lora", "ia3", "adalora")),
    "learning_rate": Range(1e-5, 1e-2, log=True),
    "rank": Choice((8, 16, 32)),
    "epochs": Range(1, 5),
    "unseen": Choice((0.25, 0.5, 1.0)),
    "target_modules": Choice(("auto", "all-linear")),
}
"""Around the papers' tables: methods (T6), learning rate, rank and epochs (T16), number of unseen texts (Fig. 4)."""


def _silent(value: float, step: int) -> None:
    """For values that nobody waits for."""


@dataclass
class AdapterTask:
    """Training settings, judged by the FSD of the detectors on the validation texts, averaged over them.

    Attributes:
        config: the main job.
        unseen: texts to train on, of which a trial may take a share.
        texts: the validation texts.
        detectors: those whose scores count.
        validation_set: labels and folds, with the readings that the adapter does not change.
        parent: the run that trials are logged under.
        space: what is tuned, by names of `AdapterConfig`, and `unseen`.
    """

    config: FSDConfig
    unseen: Sequence[Document]
    texts: Sequence[str]
    detectors: Sequence[Detector]
    validation_set: ValidationSet
    parent: Run | None = None
    label: str = "adapter"
    space: Mapping[str, Search] = field(default_factory=lambda: SEARCH)
    _loaded: "tuple[LanguageModel, Mapping[str, Scorer]] | None" = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without the model, which every process loads for itself."""
        return {**vars(self), "_loaded": None}

    @property
    def default(self) -> Settings:
        """The main job's own training."""
        training = asdict(self.config.training)
        return {name: training.get(name, 1.0) for name in self.space}

    def training(self, settings: Settings) -> AdapterConfig:
        """The training that the settings describe."""
        return replace(self.config.training, **{k: v for k, v in settings.items() if k != "unseen"})

    def portion(self, settings: Settings) -> list[Document]:
        """The unseen texts that are trained on: a share of them, drawn once, so that a smaller one is in a larger."""
        order = random.Random(self.config.seed).sample(range(len(self.unseen)), len(self.unseen))
        count = max(1, round(settings.get("unseen", 1.0) * len(order)))
        return [self.unseen[at] for at in sorted(order[:count])]

    def evaluate(self, settings: Settings, report: Callable[[float, int], None] = _silent) -> FloatArray:
        """(folds,) mean objective of the detectors' FSD after training; told of after every epoch."""
        given_up: optuna.TrialPruned | None = None
        with self._logged(settings) as run:

            def look(epoch: int) -> None:
                values = self.values()
                means = {name: float(found.mean()) for name, found in values.items()}
                if run:
                    run.log_metrics(
                        {f"validation_{self.validation_set.objective}/{n}.fsd": v for n, v in means.items()}, epoch
                    )
                report(float(np.mean(list(means.values()))), epoch)

            try:
                self.train(settings, after_epoch=look)
                return np.mean(list(self.values().values()), axis=0)  # type: ignore[no-any-return]  # an array
            except optuna.TrialPruned as error:  # no failure: the trial's run ends well
                given_up = error
                if run:
                    run.set_tags({"pruned": "true"})
        raise given_up

    def _logged(self, settings: Settings) -> Any:
        """A nested run for the trial, or nothing."""
        if self.parent is None:
            return contextlib.nullcontext()
        name = f"{settings['method']} r{settings['rank']} lr {settings['learning_rate']:.2g}"
        params = {**settings, "unseen_texts": len(self.portion(settings))}
        return tracking.run(f"fsd-{self.config.data.domain}", f"trial {name}", params=params, parent=self.parent)

    def train(self, settings: Settings, after_epoch: Callable[[int], None] | None = None) -> None:
        """Give the model a fresh adapter."""
        from fsd.models.finetuning import finetune

        texts = [document.text for document in self.portion(settings)]
        model, _ = self.loaded()
        config = self.training(settings)
        finetune(model, texts, config, seed=self.config.seed, after_epoch=after_epoch, shown=False)

    def values(self) -> dict[str, FloatArray]:
        """Detector → (folds,) values of its FSD with the adapter as it is now."""
        readings = self.readings(self.texts, self.validation_set.statistics)
        return {d.name: self.validation_set.values(readings.scores(d, "fsd")) for d in self.detectors}

    def readings(self, texts: Sequence[str], known: ViewStatistics | None = None) -> ViewStatistics:
        """What base and tuned model say about the texts; only what is not known is read."""
        return ViewStatistics.compute(texts, self.detectors, self.loaded()[1], self.material(), known=known)

    def material(self) -> ViewInputs:
        """Of all unseen texts, whatever share is trained on."""
        shots = self.config.detection.shots
        return view_inputs(self.config.model, [d.text for d in self.unseen], shots=shots, seed=self.config.seed)

    def use(self, model: "LanguageModel", scorers: Mapping[str, Scorer]) -> None:
        """Take a model that is loaded already."""
        self._loaded = model, scorers

    def loaded(self) -> "tuple[LanguageModel, Mapping[str, Scorer]]":
        """The model and what reads with it."""
        if self._loaded is None:
            from fsd.models import language_model

            model = language_model.load(self.config.model)
            self._loaded = model, lasting(build_scorers(model, self.config.model))
        return self._loaded


def lasting(scorers: Mapping[str, Scorer]) -> dict[str, Scorer]:
    """The scorers, remembering all but what changes with the adapter."""
    return {name: scorer if name == "tuned" else MemoizedScorer(scorer) for name, scorer in scorers.items()}


def tune(config: TuneConfig, given: Field, model: "LanguageModel", run: Run) -> Tuned:
    """Search training settings, then train default and winner again and open the test texts for both.

    Args:
        config: of the command.
        given: the texts and their folds.
        model: the base.
        run: the parent of the trials' runs.
    """
    task, told = _task(config, given, model, run)
    plan = plan_of(config)
    name, setup = given.study(task)
    tried = search(task, name, setup, plan)
    task.parent = None
    default = task.evaluate(task.default)
    best = winner(task, default, tried, folds=config.folds)
    scores, validation = [], []
    for settings in (task.default, best.settings):  # the winner last: its adapter stays
        task.train(settings)
        validation.append({n: float(v.mean()) for n, v in task.values().items()})
        readings = task.readings([d.text for d in given.parts.test])
        scores.append({f"{d.name}.fsd": readings.scores(d, "fsd") for d in task.detectors})
    figures = {"history.png": _tuning_record.history({task.label: tried}, config.objective)}
    shares = _tuning_record.importance({task.label: importance(name, plan.storage)})
    return Tuned(
        job=replace(config.job, training=task.training(best.settings)),
        parts=given.parts._replace(unseen=tuple(task.portion(best.settings))),
        winners=_by_detector(best, validation),
        trials={task.label: tried},
        figures=figures | ({"importance.png": shares} if shares else {}),
        default=scores[0],
        tuned=scores[1],
        scorers=task.loaded()[1],
        remarks=told,
    )


def _task(config: TuneConfig, given: Field, model: "LanguageModel", run: Run) -> tuple[AdapterTask, list[str]]:
    job = config.job
    scorers = lasting(build_scorers(model, job.model))
    material = view_inputs(job.model, [d.text for d in given.parts.unseen], shots=job.detection.shots, seed=job.seed)
    chosen = detection.load_detectors(job.detection)
    left_out = usable(chosen, given.texts, scorers, material)[1]
    kept = [detector for detector in chosen if detector.name not in left_out]
    if left_out and (job.detection.detectors != "all" or not kept):
        name, reason = next(iter(left_out.items()))
        raise UsageError(f"detector {name} cannot be computed here: {reason}")
    base = ViewStatistics.compute(given.texts, kept, scorers, material, states=("base",))
    validation_set = ValidationSet(base, given.member, given.folds, config.objective)
    task = AdapterTask(job, given.parts.unseen, given.texts, kept, validation_set, run)
    task.use(model, scorers)
    return task, [f"{name} left out: {reason}" for name, reason in left_out.items()]


def _by_detector(best: Winner, validation: Sequence[Mapping[str, float]]) -> list[Winner]:
    """The winner once for each detector, with its own values on validation.

    What is chosen elsewhere is known of the mean over the detectors, so of a detector only where it is alone.
    """
    before, after = validation
    cross_validated = best.cross_validated if len(before) == 1 else math.nan
    return [
        replace(
            best, label=f"{name}.fsd", default_value=before[name], value=after[name], cross_validated=cross_validated
        )
        for name in before
    ]
