"""Tuning of the adapter's training: each trial trains one adapter."""

import contextlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import optuna

from detectors import Detector
from fsd import tracking
from fsd.config import AdapterConfig, FSDConfig, TuneConfig
from fsd.data.corpus import Corpus
from fsd.errors import UsageError
from fsd.scores import FSD, Score
from fsd.scoring.cache import MemoizedScorer
from fsd.scoring.deviation import ViewStatistics
from fsd.scoring.model import Model
from fsd.search_space import Choice, Range, Search
from fsd.token_stats import FloatArray, Prompt, Scores
from fsd.tracking import Run
from fsd.tuning.objective import Report, Settings, ValidationSet, winner
from fsd.tuning.optuna_study import create_study, search
from pipelines.experiment import detector_settings
from pipelines.experiment.experiment import Experiment
from pipelines.tune.job import Tuned, TuningData

SEARCH: dict[str, Search] = {
    "method": Choice(("lora", "ia3", "adalora")),
    "learning_rate": Range(1e-5, 1e-2, log=True),
    "rank": Choice((8, 16, 32)),
    "epochs": Range(1, 5),
    "unseen": Choice((0.25, 0.5, 1.0)),
    "target_modules": Choice(("auto", "all-linear")),
}
"""Around the FSD paper: methods (table 6), learning rate, rank, epochs (table 16), number of unseen texts (Fig. 4)."""


@dataclass
class AdapterTask:
    """Training settings, evaluated by the mean FSD objective of the detectors on `texts`, those of validation."""

    config: FSDConfig
    unseen: Corpus
    texts: Sequence[Prompt]
    detectors: Sequence[Detector]
    validation: ValidationSet
    parent: Run | None = None
    label: str = "adapter"
    space: Mapping[str, Search] = field(default_factory=lambda: SEARCH)
    _opened: Model | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """The state without the model, which every process loads for itself."""
        return {**vars(self), "_opened": None}

    @property
    def default(self) -> Settings:
        """The training settings of the main job."""
        # The main job trains on all unseen texts, a share of 1.
        return {name: getattr(self.config.training, name, 1.0) for name in self.space}

    def training(self, settings: Settings) -> AdapterConfig:
        """Configuration of the training with these settings."""
        # The share of the unseen texts is no setting of the training.
        changes = dict(settings)
        changes.pop("unseen", None)
        return replace(self.config.training, **changes)

    def unseen_share(self, settings: Settings) -> Corpus:
        """The unseen texts to train on: a random share of them, such that smaller shares are parts of larger ones."""
        size = len(self.unseen)
        order = random.Random(self.config.seed).sample(range(size), size)
        count = max(1, round(settings.get("unseen", 1.0) * size))
        # In their own order: with a share of 1, the training is that of the main job.
        rows = sorted(order[:count])
        return self.unseen.take(np.array(rows, dtype=np.int64))

    def evaluate(self, settings: Settings, report: Report = lambda value, step: None) -> FloatArray:
        """(folds,) mean objective of the detectors' FSD after training; reports the mean after every epoch."""
        pruned = None
        with self._trial_run(settings) as run:

            def after_epoch(epoch: int) -> None:
                means = self.means()
                if run:
                    metrics = {f"validation_{self.validation.objective}/{name}": mean for name, mean in means.items()}
                    run.log_curves({epoch: metrics})
                mean = np.mean(list(means.values()))
                report(float(mean), epoch)

            try:
                self.train(settings, after_epoch=after_epoch)
                return np.asarray(np.mean(list(self.values().values()), axis=0))
            except optuna.TrialPruned as error:
                # Raised outside of the run, which would end as failed.
                pruned = error
                if run:
                    run.set_tags({"pruned": "true"})
        raise pruned

    def _trial_run(self, settings: Settings) -> contextlib.AbstractContextManager[Run | None]:
        """The tracked run of a trial inside that of the job; none without that."""
        if self.parent is None:
            return contextlib.nullcontext()
        name = f"trial {settings['method']} r{settings['rank']} lr {settings['learning_rate']:.2g}"
        return tracking.run(
            f"fsd-{self.config.data.domain}",
            name,
            params={**settings, "unseen_texts": len(self.unseen_share(settings))},
            parent=self.parent,
        )

    def train(self, settings: Settings, after_epoch: Callable[[int], None] | None = None) -> None:
        """Train a fresh adapter."""
        from fsd.models.finetuning import finetune

        finetune(
            self.model().language_model,
            self.unseen_share(settings).prompts,
            self.training(settings),
            seed=self.config.seed,
            after_epoch=after_epoch,
            shown=False,
        )

    def values(self) -> dict[str, FloatArray]:
        """Detector → (folds,) values of its FSD with the present adapter."""
        # The base model's statistics stay the same in all trials.
        statistics = self.statistics(self.texts, self.validation.statistics)
        return {d.name: self.validation.values(statistics.scores(d, FSD)) for d in self.detectors}

    def means(self) -> dict[str, float]:
        """Label of each detector's FSD → its mean over the folds with the present adapter."""
        return {str(Score(name)): float(values.mean()) for name, values in self.values().items()}

    def statistics(self, texts: Sequence[Prompt], base: ViewStatistics | None = None) -> ViewStatistics:
        """Token statistics of the base model, unless `base` has them, and of the model with the present adapter."""
        model = self.model()
        inputs = model.inputs(
            self.unseen.prompts, shots=detector_settings.shots_of(self.config.detection, self.config.model.model)
        )
        return ViewStatistics.compute(texts, self.detectors, model.scorers, inputs, reused=base)

    def model(self) -> Model:
        """The model, opened once in each process."""
        if self._opened is None:
            self._opened = memoized(Experiment(self.config, self.detectors).open())
        return self._opened


def tunable(detectors: Sequence[Detector]) -> list[Detector]:
    """Those that need no labelled texts, by which a trial would fit them anew, and no reference that it would train."""
    return [detector for detector in detectors if not (detector.needs_labels or detector.adapts_reference)]


def memoized(model: Model, *, tuned: bool = False) -> Model:
    """The model with memoized scorers; those of the tuned state, which changes with the adapter, only if it stays."""
    scorers = dict(model.scorers)
    for name, scorer in model.scorers.items():
        if tuned or not name.startswith("tuned"):
            scorers[name] = MemoizedScorer(scorer)
    return replace(model, scorers=scorers)


def tune(config: TuneConfig, data: TuningData, model: Model, run: Run) -> Tuned:
    """Search training settings, then train with the default and the winner's settings, and score the test texts."""
    base_run = config.base_run
    texts = model.prompts(data.split.validation.prompts)
    model = memoized(model)
    asked = Experiment(base_run, detector_settings.load_detectors(base_run.detection), split=data.split)
    plan = asked._replace(detectors=tunable(asked.detectors)).prepare(model)
    task = AdapterTask(base_run, data.split.unseen, texts, plan.detectors, data.validation, run, _opened=model)
    shares = []
    for share in SEARCH["unseen"].grid:
        split = data.split.replace(unseen=task.unseen_share({"unseen": share}))
        # A share that is too small for what was asked by name would be refused after the trials.
        with contextlib.suppress(UsageError):
            asked._replace(split=split).planned(model)
            shares.append(share)
    task.space = SEARCH | {"unseen": Choice(tuple(shares))}
    name, setup = data.study_of(task)
    # A study with another setup is refused before the scoring.
    create_study(name, setup, config.storage)
    base = ViewStatistics.compute(texts, plan.detectors, model.scorers, plan.inputs, states=("base",))
    task.validation = replace(data.validation, statistics=base)
    trials = search(task, name, setup, config)
    # What follows are no trials, so that they have no runs.
    task.parent = None
    best = winner(task, task.evaluate(task.default), trials, folds=config.folds)
    default_means, default_scores = _trained(task, task.default, data)
    # The winner's last: its adapter stays.
    tuned_means, tuned_scores = _trained(task, best.tuned, data)
    # The cross-validated choice maximises the mean over all detectors, so it holds for a detector only if it is alone.
    if len(plan.detectors) > 1:
        best = best._replace(validation_chosen_elsewhere=math.nan)
    winners = [
        best._replace(task=label, validation_default=mean, validation_tuned=tuned_means[label])
        for label, mean in default_means.items()
    ]
    run_config = replace(base_run, training=task.training(best.tuned))
    split = data.split.replace(unseen=task.unseen_share(best.tuned))
    return Tuned(run_config, split, winners, {task.label: trials}, default_scores, tuned_scores, model, plan.remarks)


def _trained(task: AdapterTask, settings: Settings, data: TuningData) -> tuple[dict[str, float], Scores]:
    """Train with the settings; each FSD's mean over the validation folds, and its scores of the test texts."""
    task.train(settings)
    statistics = task.statistics(task.model().prompts(data.split.test.prompts))
    return task.means(), {str(Score(d.name)): statistics.scores(d, FSD) for d in task.detectors}
