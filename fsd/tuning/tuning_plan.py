"""How trials are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna

from fsd.search_space import Choice, Search
from fsd.tuning.objective import finite, tidy, whole_grid


@dataclass(frozen=True)
class Plan:
    """How trials are drawn and where they are kept.

    Attributes:
        storage: URL, see `fsd.tuning.optuna_storage`.
        sampler: tpe, grid or random.
        trials: finished trials wanted, by all processes together; a grid is run whole.
        timeout: seconds after which no trial is begun.
        workers: processes.
        seed: of the sampler.
        pruner: median, hyperband or none.
        patient: whether trials are long: a heartbeat finds those that were killed, failed ones are tried again.
    """

    storage: str
    sampler: str = "tpe"
    trials: int = 200
    timeout: float | None = None
    workers: int = 1
    seed: int = 0
    pruner: str = "none"
    patient: bool = False

    def drawing(self, space: Mapping[str, Search]) -> str:
        """The sampler in use: a space with no more settings than trials is searched whole."""
        return "grid" if finite(space) and len(whole_grid(space)) <= self.trials else self.sampler

    def wanted(self, space: Mapping[str, Search]) -> int:
        """Finished trials after which the study is complete."""
        return len(whole_grid(space)) if self.drawing(space) == "grid" else self.trials


def sampler(plan: Plan, space: Mapping[str, Search], seed: int) -> optuna.samplers.BaseSampler:
    """What draws settings; those of a grid are queued instead."""
    kind = optuna.samplers.TPESampler if plan.drawing(space) == "tpe" else optuna.samplers.RandomSampler
    return kind(seed=seed)


def pruner(plan: Plan) -> optuna.pruners.BasePruner:
    """What gives trials up between their stages."""
    kinds = {"median": optuna.pruners.MedianPruner, "hyperband": optuna.pruners.HyperbandPruner}
    return kinds.get(plan.pruner, optuna.pruners.NopPruner)()


def suggest(trial: optuna.Trial, name: str, search: Search) -> Any:
    """The value that a trial gets for a setting."""
    if isinstance(search, Choice):
        return trial.suggest_categorical(name, list(search.values))
    if isinstance(search.low, int) and isinstance(search.high, int):
        return trial.suggest_int(name, search.low, search.high, step=int(search.step or 1), log=search.log)
    value = trial.suggest_float(name, search.low, search.high, step=search.step, log=search.log)
    return tidy(search, value)
