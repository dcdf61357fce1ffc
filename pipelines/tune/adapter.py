"""Tuning of the adapter's training: each trial trains one adapter."""

import contextlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna

from detectors import Detector
from fsd import tracking
from fsd.config import AdapterConfig, FSDConfig, TuneConfig
from fsd.data.documents import Document
from fsd.scoring.cache import MemoizedScorer
from fsd.scoring.deviation import ViewStatistics
from fsd.scoring.model import build_scorers, view_inputs
from fsd.search_space import Choice, Range, Search
from fsd.token_stats import FloatArray, Scorer
from fsd.tracking import Run
from fsd.tuning.objective import Report, Settings, ValidationSet, Winner, winner
from fsd.tuning.optuna_study import create_study, importance, search
from pipelines.common import experiment
from pipelines.tune import report
from pipelines.tune.job import Tuned, TuningData

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
"""Around the tables of the FSD paper: methods (T6), learning rate, rank and epochs (T16), number of unseen texts
(Fig. 4)."""


@dataclass
class AdapterTask:
    """Training settings, evaluated by the mean FSD objective of the detectors on `texts`, those of validation."""

    config: FSDConfig
    unseen: Sequence[Document]
    texts: Sequence[str]
    detectors: Sequence[Detector]
    validation: ValidationSet
    parent: Run | None = None
    label: str = "adapter"
    space: Mapping[str, Search] = field(default_factory=lambda: SEARCH)
    _loaded: "tuple[LanguageModel, Mapping[str, Scorer]] | None" = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """The state without the model, which every process loads for itself."""
        return {**vars(self), "_loaded": None}

    @property
    def default(self) -> Settings:
        """The training settings of the main job."""
        return {name: getattr(self.config.training, name, 1.0) for name in self.space}

    def training(self, settings: Settings) -> AdapterConfig:
        """Configuration of the training with these settings."""
        return replace(self.config.training, **{k: v for k, v in settings.items() if k != "unseen"})

    def unseen_share(self, settings: Settings) -> list[Document]:
        """The unseen texts to train on: a random share of them, such that smaller shares are parts of larger ones."""
        order = random.Random(self.config.seed).sample(range(len(self.unseen)), len(self.unseen))
        count = max(1, round(settings.get("unseen", 1.0) * len(order)))
        return [self.unseen[at] for at in sorted(order[:count])]

    def evaluate(self, settings: Settings, report: Report = lambda value, step: None) -> FloatArray:
        """(folds,) mean objective of the detectors' FSD after training; reports the mean after every epoch."""
        pruned: optuna.TrialPruned | None = None
        name = f"trial {settings['method']} r{settings['rank']} lr {settings['learning_rate']:.2g}"
        params = {**settings, "unseen_texts": len(self.unseen_share(settings))}
        of_trial: contextlib.AbstractContextManager[Run | None] = contextlib.nullcontext()
        if self.parent:
            of_trial = tracking.run(f"fsd-{self.config.data.domain}", name, params=params, parent=self.parent)
        with of_trial as run:

            def after_epoch(epoch: int) -> None:
                means = {f"{name}.fsd": float(values.mean()) for name, values in self.values().items()}
                if run:
                    objective = self.validation.objective
                    run.log_metrics({f"validation_{objective}/{name}": mean for name, mean in means.items()}, epoch)
                report(float(np.mean(list(means.values()))), epoch)

            try:
                self.train(settings, after_epoch=after_epoch)
                return np.asarray(np.mean(list(self.values().values()), axis=0))
            except optuna.TrialPruned as error:  # raised outside of the run, which has not failed
                pruned = error
                if run:
                    run.set_tags({"pruned": "true"})
        raise pruned

    def train(self, settings: Settings, after_epoch: Callable[[int], None] | None = None) -> None:
        """Train a fresh adapter."""
        from fsd.models.finetuning import finetune

        texts = [document.text for document in self.unseen_share(settings)]
        training, seed = self.training(settings), self.config.seed
        finetune(self.model()[0], texts, training, seed=seed, after_epoch=after_epoch, shown=False)

    def values(self) -> dict[str, FloatArray]:
        """Detector → (folds,) values of its FSD with the present adapter."""
        statistics = self.statistics(self.texts, self.validation.statistics)
        return {d.name: self.validation.values(statistics.scores(d, "fsd")) for d in self.detectors}

    def statistics(self, texts: Sequence[str], known: ViewStatistics | None = None) -> ViewStatistics:
        """Token statistics of the base model and of the model with the present adapter."""
        config, unseen = self.config, [document.text for document in self.unseen]
        inputs = view_inputs(config.model, unseen, shots=config.detection.shots, seed=config.seed)
        return ViewStatistics.compute(texts, self.detectors, self.model()[1], inputs, known=known)

    def model(self) -> "tuple[LanguageModel, Mapping[str, Scorer]]":
        """The model and its scorers, loaded once in each process."""
        if self._loaded is None:
            model = experiment.load_model(self.config)
            self._loaded = model, memoized(model, self.config)
        return self._loaded


def memoized(model: "LanguageModel", config: FSDConfig, *, tuned: bool = False) -> dict[str, Scorer]:
    """The scorers of the model, memoized; `tuned`, which changes with the adapter, only where that stays."""
    scorers = build_scorers(model, config.model, seed=config.seed)
    return {
        name: MemoizedScorer(scorer) if tuned or not name.startswith("tuned") else scorer
        for name, scorer in scorers.items()
    }


def tune(config: TuneConfig, data: TuningData, model: "LanguageModel", run: Run) -> Tuned:
    """Search training settings, then train with the default and the winner's settings, and score the test texts."""
    job, texts = config.job, [document.text for document in data.split.validation]
    scorers = memoized(model, job)
    every = experiment.load_detectors(job.detection)
    requested = [detector for detector in every if not detector.labelled]
    scoring = experiment.prepare(model, data.split, requested, job, scorers)
    detectors = [detector for detector in requested if detector.name not in scoring.left_out]
    task = AdapterTask(job, data.split.unseen, texts, detectors, data.validation, run, _loaded=(model, scorers))
    name, setup = data.study_of(task)
    create_study(name, setup, config.storage)  # a study with another setup is refused before the scoring
    base = ViewStatistics.compute(texts, detectors, scorers, scoring.inputs, states=("base",))
    task.validation = replace(data.validation, statistics=base)
    trials = {task.label: search(task, name, setup, config)}
    task.parent = None
    best = winner(task, task.evaluate(task.default), trials[task.label], folds=config.folds)
    scores, means = [], []
    for settings in (task.default, best.tuned):  # the winner's last: its adapter stays
        task.train(settings)
        means.append({name: float(values.mean()) for name, values in task.values().items()})
        statistics = task.statistics([document.text for document in data.split.test])
        scores.append({f"{d.name}.fsd": statistics.scores(d, "fsd") for d in detectors})
    # The cross-validated choice maximises the mean over all detectors, so it holds for a detector only if it is alone.
    chosen = best.validation_chosen_elsewhere if len(detectors) == 1 else math.nan
    winners = [
        Winner(f"{name}.fsd", best.default, best.tuned, best.settings_tried, mean, means[1][name], chosen)
        for name, mean in means[0].items()
    ]
    return Tuned(
        job=replace(job, training=task.training(best.tuned)),
        split=data.split._replace(unseen=tuple(task.unseen_share(best.tuned))),
        winners=winners,
        trials=trials,
        figures=report.draw(trials, {task.label: importance(name, config.storage)}, config.objective),
        default=scores[0],
        tuned=scores[1],
        scorers=scorers,
        remarks=scoring.remarks,
    )
