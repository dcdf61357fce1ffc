"""What tuning is given and what it gives, whichever kind it is."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fsd.config import FSDConfig, TuneConfig
from fsd.data.documents import Document
from fsd.data.near_duplicates import families
from fsd.data.splitting import Split
from fsd.errors import UsageError
from fsd.evaluation.intervals import BoolArray
from fsd.token_stats import IntArray, Scorer, Scores
from fsd.tuning.objective import Task, TrialRecord, Winner, grouped_folds
from fsd.tuning.optuna_study import Plan


@dataclass(frozen=True)
class Field:
    """The texts that tuning may look at, and those that it may not yet.

    Attributes:
        parts: the split. Only the validation labels go into `member` and the folds.
        member: (N,) labels of the validation texts.
        folds: see `fsd.tuning.objective.grouped_folds`.
        setup: what gives a trial its meaning, without the task's own share.
        name: of the study.
    """

    parts: Split
    member: BoolArray
    folds: Sequence[IntArray]
    setup: Mapping[str, Any]
    name: str

    @property
    def texts(self) -> list[str]:
        """The validation texts."""
        return [document.text for document in self.parts.validation]

    def study(self, task: Task) -> tuple[str, dict[str, Any]]:
        """Name and setup of the task's own study."""
        space = {name: asdict(search) for name, search in task.space.items()}
        return f"{self.name}/{task.label}", {**self.setup, "space": space, "default": task.default}


@dataclass(frozen=True)
class Tuned:
    """What was found.

    Attributes:
        job: the main job with the winner's settings.
        parts: the split of that job.
        winners: one a task.
        trials: task → its finished trials.
        figures: file name → PNG.
        default: label → scores of the test texts with the default.
        tuned: label → scores of the test texts with the winner.
        scorers: of the model as it is registered, with what they have read.
        remarks: what there is to say besides.
    """

    job: FSDConfig
    parts: Split
    winners: Sequence[Winner]
    trials: Mapping[str, Sequence[TrialRecord]]
    figures: Mapping[str, bytes]
    default: Scores
    tuned: Scores
    scorers: Mapping[str, Scorer]
    remarks: Sequence[str] = field(default_factory=list)


def field_of(config: TuneConfig, parts: Split, fingerprint: str) -> Field:
    """Folds of the validation texts, and the identity of the study.

    Args:
        config: of the command.
        parts: the split.
        fingerprint: of the base model.

    Raises:
        UsageError: if there are no validation texts, one class only, or too few families for the folds.
    """
    texts = parts.validation
    if not texts:
        raise UsageError("validation must hold texts to tune on; got none: give --validation a share above 0")
    member = np.array([bool(document.member) for document in texts])
    folds = grouped_folds(member, families(texts), folds=config.folds, repeats=config.repeats, seed=config.job.seed)
    setup = setup_of(config, parts, fingerprint)
    short = hashlib.sha256(json.dumps(setup, sort_keys=True).encode()).hexdigest()[:8]
    return Field(parts, member, folds, setup, config.study or f"{config.job.data.domain}-{short}")


def setup_of(config: TuneConfig, parts: Split, fingerprint: str) -> dict[str, Any]:
    """What gives a trial its meaning, as JSON values; nothing in it depends on a test label."""
    job = config.job
    training = {"adapter": job.adapter} if job.adapter else asdict(job.training)
    return {
        "tune": config.tune,
        "objective": config.objective,
        "sampler": config.sampler,
        "folds": config.folds,
        "repeats": config.repeats,
        "seed": job.seed,
        "validation_texts": digest(parts.validation),
        "unseen_texts": digest(parts.unseen),
        "base_model": fingerprint,
        "training": training,
        "reference_model": job.model.reference_model,
        "neighbour_model": job.model.neighbour_model,
        "frequencies": job.model.frequencies,
        "dtype": job.model.dtype,
        **({"bits": job.model.bits} if job.model.bits else {}),
        "shots": job.detection.shots,
        "detectors": job.detection.detectors if config.tune == "adapter" else "one a study",
        "settings": list(job.detection.settings),
    }


def plan_of(config: TuneConfig) -> Plan:
    """How trials are drawn.

    Raises:
        UsageError: for numbers below 1.
    """
    for name, value in (("trials", config.trials), ("workers", config.workers)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1; got {value}")
    if config.timeout is not None and config.timeout <= 0:
        raise UsageError(f"timeout must be above 0 seconds; got {config.timeout}")
    adapter = config.tune == "adapter"
    return Plan(
        config.storage,
        config.sampler,
        config.trials,
        config.timeout,
        config.workers,
        config.job.seed,
        config.pruner if adapter else "none",
        long_trials=adapter,
    )


def digest(documents: Sequence[Document]) -> str:
    """16 hexadecimal digits of texts, labels and groups, in their order."""
    state = hashlib.sha256()
    for document in documents:
        state.update(json.dumps([document.text, document.member, document.group]).encode())
    return state.hexdigest()[:16]
