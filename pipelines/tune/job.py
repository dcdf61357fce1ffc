"""Inputs and results of a tuning job, and the identity of its studies."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fsd.config import FSDConfig, TuneConfig
from fsd.data.documents import digest
from fsd.data.near_duplicates import families
from fsd.data.splitting import Split
from fsd.errors import UsageError, at_least
from fsd.scoring.deviation import ViewStatistics
from fsd.token_stats import Scorer, Scores
from fsd.tuning.objective import Task, Trial, ValidationSet, Winner, grouped_folds
from pipelines.common.job import check_name


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
    """Winners, one per task, the scores of the test texts with the default settings and with theirs, and their job."""

    job: FSDConfig
    split: Split
    winners: Sequence[Winner]
    trials: Mapping[str, Sequence[Trial]]
    figures: Mapping[str, bytes]
    default: Scores
    tuned: Scores
    scorers: Mapping[str, Scorer]
    remarks: Sequence[str]


def tuning_data(config: TuneConfig, split: Split, fingerprint: str) -> TuningData:
    """Folds of the validation texts, and the identity of the studies."""
    if config.study is not None:
        check_name("study", config.study)
    at_least(1, trials=config.trials, workers=config.workers)
    if config.timeout is not None and config.timeout <= 0:
        raise UsageError(f"timeout must be above 0 seconds; got {config.timeout}")
    texts = split.validation
    if not texts:
        raise UsageError("validation must hold texts to tune on; got none: give --validation a share above 0")
    member = np.array([bool(document.member) for document in texts])
    folds = grouped_folds(member, families(texts), folds=config.folds, repeats=config.repeats, seed=config.job.seed)
    setup = study_setup(config, split, fingerprint)
    short = hashlib.sha256(json.dumps(setup, sort_keys=True).encode()).hexdigest()[:8]
    domain, seed = config.job.data.domain, config.job.seed
    form = f"{config.study}/{{}}" if config.study else f"{domain} {{}} seed {seed} {short}"
    validation = ValidationSet(ViewStatistics({}), member, folds, config.objective)
    return TuningData(split, validation, setup, config.study or f"{domain}-{short}", form)


def study_setup(config: TuneConfig, split: Split, fingerprint: str) -> dict[str, Any]:
    """Everything that a trial's value depends on, as JSON values; no test label is part of it."""
    job = config.job
    of_model = (
        "reference_model",
        "neighbour_model",
        "frequencies",
        "dtype",
        *(name for name in ("bits", "samples") if getattr(job.model, name)),
    )
    return {
        **{name: getattr(config, name) for name in ("tune", "objective", "sampler", "folds", "repeats")},
        "seed": job.seed,
        "validation_texts": digest(split.validation),
        "unseen_texts": digest(split.unseen),
        "base_model": fingerprint,
        "training": {"adapter": job.adapter} if job.adapter else asdict(job.training),
        **{name: getattr(job.model, name) for name in of_model},
        "shots": job.detection.shots,
        "detectors": job.detection.detectors if config.tune == "adapter" else "one a study",
        "settings": list(job.detection.settings),
    }
