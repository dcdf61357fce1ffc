"""Fine-tuned Score Deviation: was this text in that model's pretraining data?

The packages in the order of the data flow; each imports only from those before it:

- `net` talks to the model hub and to web services; `data` reads, cleans and splits texts with labels.
- `models` loads the language model, attaches and trains adapters, and pretrains small models from scratch.
- `scoring` turns texts into token statistics, and these into detector scores before and after fine-tuning.
- `evaluation` computes metrics with intervals, controls and calibrated verdicts.
- `collection` collects dated texts; `tuning` searches settings with Optuna; `reporting` draws and writes.
- `tracking` keeps runs, adapters and models in MLflow.

`fsd.score`, `fsd.deviation` and `fsd.evaluate` (in `library`) are the short way in. `detectors` holds one formula per
file, `pipelines` the commands.
"""

from fsd.library import deviation, evaluate, score

__all__ = ["deviation", "evaluate", "score"]
