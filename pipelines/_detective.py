"""A registered adapter at work: base model, detector and calibration together give verdicts on new texts."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import detectors
from fsd import models
from fsd.calibration import Calibration
from fsd.config import ModelConfig
from fsd.deviation import evaluate
from fsd.errors import UsageError
from fsd.rows import read_files
from fsd.stats import FloatArray
from pipelines import _assembly

CALIBRATION = "calibration.json"
SETUP = "setup.json"
MEMBER, NOT_SHOWN, OUTSIDE = "member", "not shown", "outside the calibrated domain"


def setup(config: ModelConfig, *, shots: int, seed: int) -> str:
    """What a detective needs to know to score as the run did, as JSON."""
    return json.dumps({"model": asdict(config), "shots": shots, "seed": seed}, indent=2) + "\n"


class Detective:
    """Scores and verdicts by the detector that was best on validation, as it was calibrated there.

    Args:
        folder: holds `adapter/`, calibration.json, setup.json and unseen.jsonl.
        model: overrides of how the base model is run: device, dtype, where its files are.

    Raises:
        UsageError: if there is no calibration, or the base model cannot be loaded or is another one.
    """

    def __init__(self, folder: Path, **model: Any) -> None:
        if not (folder / CALIBRATION).is_file():
            raise UsageError(
                "adapter must come with a calibration, made by pipelines.fsd with validation texts; this one has none"
            )
        self.calibration = Calibration.from_json((folder / CALIBRATION).read_text(encoding="utf-8"))
        known = json.loads((folder / SETUP).read_text(encoding="utf-8"))
        config = replace(ModelConfig(**known["model"]), **model)
        if (folder / _assembly.TABLE).is_file():
            config = replace(config, frequencies=str(folder / _assembly.TABLE))
        self.detector = detectors.load(self.calibration.detector, **self.calibration.settings)
        self.language_model = models.load(
            config.model, revision=config.revision, device=config.device, dtype=config.dtype
        )
        models.attach(self.language_model, folder / "adapter")
        self.scorers = _assembly.scorers(self.language_model, config)
        unseen = read_files([folder / _assembly.UNSEEN])
        self.material = _assembly.material(config, unseen, shots=known["shots"], seed=known["seed"])

    def scores(self, texts: Sequence[str]) -> FloatArray:
        """(N,) the calibrated detector's FSD of each text."""
        deviation = evaluate(texts, [self.detector], self.scorers, self.material)
        found = deviation.fsd if self.calibration.state == "fsd" else deviation.base
        return found[self.detector.name]

    def verdicts(self, texts: Sequence[str], *, fpr: float) -> pd.DataFrame:
        """One row a text: score, p_value, verdict, warning.

        The verdict is `member` if p ≤ `fpr`, else `not shown`; a text unlike the calibration texts gets neither,
        because the error rate says nothing about it.

        Args:
            texts: N ≥ 1 texts.
            fpr: share of non-members that may be called members.

        Raises:
            UsageError: for a rate that the calibration set cannot support.
        """
        threshold = self.calibration.threshold_at(fpr)
        scores = self.scores(texts)
        warnings = [self.calibration.outside(text) or "" for text in texts]
        verdict = np.where(scores >= threshold, MEMBER, NOT_SHOWN)
        return pd.DataFrame(
            {
                "score": scores,
                "p_value": self.calibration.p_values(scores),
                "verdict": [OUTSIDE if warning else v for v, warning in zip(verdict, warnings, strict=True)],
                "warning": warnings,
            }
        )


class Served:
    """The detective behind `mlflow.pyfunc`: a table with a column `text` in, a table of verdicts out."""

    DEFAULT_FPR = 0.05

    def load_context(self, context: Any) -> None:
        """Load base model, adapter and calibration from the registered model's files."""
        self.detective = Detective(Path(context.artifacts["adapter"]).parent)

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Verdicts of the texts in column `text`, at the false-positive rate `params["fpr"]`, by default .05."""
        fpr = (params or {}).get("fpr", self.DEFAULT_FPR)
        return self.detective.verdicts(model_input["text"].tolist(), fpr=float(fpr))
