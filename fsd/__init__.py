"""Fine-tuned Score Deviation: was this text in that model's pretraining data?

The packages in the order of the data flow; each imports only from those before it:

- `net` talks to the model hub and to web services; `data` reads, cleans and splits texts with labels.
- `models` loads the language model, attaches and trains adapters, and pretrains small models from scratch.
- `scoring` turns texts into token statistics, and these into detector scores before and after fine-tuning.
- `evaluation` computes metrics with intervals, controls and calibrated verdicts.
- `collection` collects dated texts; `tuning` searches settings with Optuna; `reporting` draws and writes.
- `tracking` keeps runs, adapters and models in MLflow.

`fsd.score`, `fsd.deviation`, `fsd.evaluate`, `fsd.plot` (in `library`) and `fsd.MembershipDetector` are the short way
in. `detectors` holds one formula per file, `pipelines` the commands.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fsd.library import deviation, evaluate, plot, score

if TYPE_CHECKING:
    from fsd.estimator import MembershipDetector

__version__ = version("fsd")
__all__ = ["MembershipDetector", "deviation", "evaluate", "plot", "score"]


def __getattr__(name: str) -> Any:
    if name != "MembershipDetector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fsd.estimator import MembershipDetector  # imports scikit-learn, which the rest does not need at once

    return MembershipDetector
