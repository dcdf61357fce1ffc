"""Inputs and results of a tuning job, and the identity of its studies."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from optuna.trial import FrozenTrial

from fsd.config import FSDConfig, TuneConfig
from fsd.data.corpus import Split
from fsd.data.documents import digest
from fsd.errors import UsageError, at_least
from fsd.scoring.deviation import ViewStatistics
from fsd.scoring.model import Model
from fsd.token_stats import Scores
from fsd.tuning.objective import DetectorTask, Task, ValidationSet, Winner, grouped_folds
from pipelines.command.job import check_name
from pipelines.experiment.detector_settings import shots_of

# Settings of the tuning and of the model under test on which the value of a trial depends.
OF_TUNING = ("tune", "objective", "sampler", "folds", "repeats")
OF_MODEL = (
    "reference_model",
    "neighbour_model",
    "neighbours",
    "frequencies",
    "dtype",
    "bits",
    "samples",
    "first_token",
    "chats",
    "chat_template",
)


@dataclass(frozen=True)
class TuningData:
    """The texts of a tuning job, and the name of its studies together and, with the task in it, of each."""

    split: Split
    validation: ValidationSet
    setup: Mapping[str, Any]
    study: str
    form: str

    def name_of(self, label: str) -> str:
        """Name of the study of a task of that label."""
        return self.form.format(label)

    def study_of(self, task: Task) -> tuple[str, dict[str, Any]]:
        """Name and setup of the study of a task."""
        space = {name: asdict(search) for name, search in task.space.items()}
        return self.name_of(task.label), {**self.setup, "space": space, "default": task.default}


@dataclass(frozen=True)
class Tuned:
    """Winners, one per task, the scores of the test texts with the default settings and with theirs.

    `run_config` is the base run with the winners' settings. `tasks` are the detectors whose settings are drawn.
    """

    run_config: FSDConfig
    split: Split
    winners: Sequence[Winner]
    trials: Mapping[str, Sequence[FrozenTrial]]
    default: Scores
    tuned: Scores
    model: Model
    remarks: Sequence[str]
    tasks: Sequence[DetectorTask] = ()


def tuning_data(config: TuneConfig, split: Split, fingerprint: str) -> TuningData:
    """Folds of the validation texts, and the identity of the studies; a UsageError for impossible numbers."""
    if config.study is not None:
        check_name("study", config.study)
    at_least(1, trials=config.trials, workers=config.workers)
    if config.timeout is not None and config.timeout <= 0:
        raise UsageError(f"timeout must be above 0 seconds; got {config.timeout}")
    texts = split.validation
    if not texts:
        raise UsageError("validation must hold texts to tune on; got none: give --validation a share above 0")
    folds = grouped_folds(
        texts.members, texts.family.tolist(), folds=config.folds, repeats=config.repeats, seed=config.base_run.seed
    )
    setup = study_setup(config, split, fingerprint)
    # The token statistics follow when the model has read the texts.
    validation = ValidationSet(ViewStatistics({}), texts.members, folds, config.objective)
    if config.study:
        study = config.study
        form = f"{study}/{{}}"
    else:
        domain = config.base_run.data.domain
        # Without a name, every other setup has studies of its own, so that none is mixed with old trials.
        short = hashlib.sha256(json.dumps(setup, sort_keys=True).encode()).hexdigest()[:8]
        study = f"{domain}-{short}"
        form = f"{domain} {{}} seed {config.base_run.seed} {short}"
    return TuningData(split, validation, setup, study, form)


def study_setup(config: TuneConfig, split: Split, fingerprint: str) -> dict[str, Any]:
    """Everything that a trial's value depends on, as JSON values; no test label is part of it."""
    base_run = config.base_run
    setup = {name: getattr(config, name) for name in OF_TUNING}
    setup["seed"] = base_run.seed
    setup["validation_texts"] = digest(split.validation)
    setup["unseen_texts"] = digest(split.unseen)
    setup["base_model"] = fingerprint
    # How a reused adapter was trained is not recorded here.
    setup["training"] = {"adapter": base_run.adapter} if base_run.adapter else asdict(base_run.training)
    for name in OF_MODEL:
        setup[name] = getattr(base_run.model, name)
    setup["shots"] = shots_of(base_run.detection, base_run.model.model)
    # Each detector has a study of its own, so that another choice of detectors continues it.
    setup["detectors"] = base_run.detection.detectors if config.tune == "adapter" else "one a study"
    setup["settings"] = list(base_run.detection.settings)
    return setup
