"""Choose settings on the validation texts with Optuna, then compare them with the defaults once on the test texts.

`fsd tune --domain arxiv` tunes the settings of every detector, for base and FSD separately, on token
statistics in memory: no trial makes a forward pass. `--tune adapter` tunes the training of the adapter. Studies are
stored in mlruns/optuna.db; the same command continues an interrupted study, and several commands share its trials. The
winner is registered like the adapter of `fsd run`, which takes its settings by --settings-from.

Examples:
    fsd tune --domain arxiv
    fsd tune --tune adapter --trials 20 --dry-run
"""

from fsd.config import TuneConfig
from pipelines.command.cli import command, deferred

STAGES = {
    "data": "settings and texts",
    "model": "model",
    "tuning": "tuning: training and trials",
    "scoring": "scoring: test texts, control model",
    "judging": "judging: intervals, blind classifier, calibration",
    "recording": "recording: figures, report, adapter",
}


if __name__ == "__main__":
    command(TuneConfig, deferred("pipelines.tune.tuning"), __doc__, stages=STAGES)
