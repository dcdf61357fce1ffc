"""Fine-tuned Score Deviation: was this text in that model's pretraining data?

The short way in, on lists of texts, or tables with a column `text`:

- `fsd.score(model, texts)` gives the scores of every detector by the model as it is.
- `fsd.deviation(model, texts, unseen)` fine-tunes on unseen texts, and gives the scores before and after.
- `fsd.evaluate(scores, labels)` says how well they tell members from non-members, with intervals; `fsd.plot` draws it.
- `fsd.MembershipDetector` is the same as an estimator after scikit-learn's conventions.

The packages in the order of the data flow; each imports only from those before it:

- `net` talks to the model hub and to web services; `data` reads, cleans and splits texts with labels.
- `models` loads the language model, attaches and trains adapters, and pretrains small models from scratch.
- `scoring` turns texts into token statistics, and these into detector scores before and after fine-tuning.
- `evaluation` computes metrics with intervals, controls and calibrated verdicts.
- `collection` collects dated texts; `tuning` searches settings with Optuna; `reporting` draws and writes.
- `tracking` keeps runs, adapters and models in MLflow.

`detectors` holds one formula per file, `pipelines` the commands.
"""

import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

try:
    from fsd.library import deviation, evaluate, plot, score
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the packages of fsd must be installed in {sys.executable}; {error.name} is not: source .venv/bin/activate "
        "(after make setup), or pip install .",
        name=error.name,
    ) from error

if TYPE_CHECKING:
    from fsd.estimator import MembershipDetector

__version__ = version("fsd")
__all__ = ["MembershipDetector", "deviation", "evaluate", "plot", "score"]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name != "MembershipDetector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fsd.estimator import MembershipDetector  # imports scikit-learn, which the rest does not need at once

    return MembershipDetector
