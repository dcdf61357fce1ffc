"""A registered adapter at work: base model, detector and calibration together give verdicts on new texts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import detectors
from fsd import tracking
from fsd.config import ModelConfig
from fsd.data.near_duplicates import NGRAM, words
from fsd.data.readers import read_files
from fsd.errors import UsageError
from fsd.evaluation.calibration import Calibration
from fsd.models import adapters, language_model
from fsd.scoring.deviation import evaluate, usable
from fsd.scoring.scorers import TABLE, build_scorers, view_inputs
from fsd.token_stats import FloatArray, Scores
from pipelines.common.adapter_files import CALIBRATION, FILES, SETUP, UNSEEN

MEMBER, NOT_SHOWN, OUTSIDE = "member", "not shown", "outside the calibrated domain"
TRAINED = 0.2
"""Share of a text's runs of seven words in the texts that the adapter was trained on from which it counts as one."""


class Detective:
    """Scores and verdicts by the detector that was best on validation, as it was calibrated there.

    Args:
        adapter: the adapter's folder.
        files: what travels with it, by the names in `FILES`.
        model: how the base model is run, where that differs from the run: model (where its files are), device,
            dtype. None is as in the run.

    Raises:
        UsageError: if there is no calibration, or the base model cannot be loaded or is another one.
    """

    def __init__(self, adapter: Path, files: Mapping[str, Path], **model: Any) -> None:
        for name in FILES[:3]:
            if name not in files:
                raise UsageError(
                    f"adapter must come with a calibration ({', '.join(FILES[:3])}), as pipelines.fsd makes one from "
                    f"validation texts; this one has no {name}"
                )
        self.calibration = Calibration.from_json(files[CALIBRATION].read_text(encoding="utf-8"))
        self.known = json.loads(files[SETUP].read_text(encoding="utf-8"))
        self.config = _config(self.known, files.get(TABLE), model)
        self.detector = detectors.load(self.calibration.detector, **self.calibration.settings)
        self.unseen = read_files([files[UNSEEN]])
        self._trained = {run for document in self.unseen for run in _runs(document.text)}
        config = self.config
        self.language_model = language_model.load(config)
        adapters.attach(self.language_model, adapter)
        self.scorers = build_scorers(self.language_model, config)
        self.material = view_inputs(
            config, [d.text for d in self.unseen], shots=self.known["shots"], seed=self.known["seed"]
        )

    @classmethod
    def fetch(cls, uri: str, **model: Any) -> "Detective":
        """The detective at an address: models:/..., runs:/... or a folder.

        Raises:
            UsageError: if there is no such adapter, and as above.
        """
        found = {name: tracking.fetch_model_file(uri, name) for name in FILES}
        return cls(tracking.fetch_adapter(uri), {name: path for name, path in found.items() if path}, **model)

    @property
    def domain(self) -> str:
        """The domain that the adapter was made for."""
        return str(self.known["domain"])

    def scores(self, texts: Sequence[str]) -> FloatArray:
        """(N,) the calibrated detector's FSD of each text."""
        deviation = evaluate(texts, [self.detector], self.scorers, self.material)
        found = deviation.fsd if self.calibration.state == "fsd" else deviation.base
        return found[self.detector.name]

    def every_score(self, texts: Sequence[str]) -> Scores:
        """FSD of each text by every detector of the run, but for those that cost more than a pass or two."""
        named = [detectors.load(name, **settings) for name, settings in self.known["detectors"].items()]
        cheap = [detector for detector in named if not {"neighbours", "primed"} & set(detector.views)]
        kept, _ = usable(cheap, texts, self.scorers, self.material)
        return evaluate(texts, kept or [self.detector], self.scorers, self.material).fsd

    def trained_on(self, text: str) -> bool:
        """Whether the adapter was trained on the text, or on one that shares `TRAINED` of its passages.

        Such a text's score measures the fine-tuning. The answer does not hang on what else is asked about.
        """
        own = _runs(text)
        return len(own & self._trained) >= TRAINED * len(own)

    def warning(self, text: str) -> str:
        """Why no verdict can be given on the text; empty where nothing speaks against one."""
        if self.trained_on(text):
            return "the adapter itself was trained on this text or large parts of it"
        return self.calibration.domain_check.out_of_domain(text) or ""

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
        warnings = [self.warning(text) for text in texts]
        verdict = np.where(scores >= threshold, MEMBER, NOT_SHOWN)
        return pd.DataFrame(
            {
                "score": scores,
                "p_value": self.calibration.p_values(scores),
                "verdict": [OUTSIDE if warning else v for v, warning in zip(verdict, warnings, strict=True)],
                "warning": warnings,
            }
        )


def _config(known: Mapping[str, Any], table: Path | None, changes: Mapping[str, Any]) -> ModelConfig:
    """The run's settings with the changes; what lies in a folder must be found from here."""
    given = {name: value for name, value in changes.items() if value is not None}
    config = replace(ModelConfig(**known["model"]), **given)
    if known["folder"] and "model" not in given and not Path(config.model).expanduser().is_dir():
        raise UsageError(
            f"base model must lie in the folder {config.model!r}, as it did when the adapter was trained; from "
            f"{Path.cwd()} there is none: say where it is (--model FOLDER; serving_model where MLflow serves)"
        )
    return replace(config, frequencies=str(table)) if table else config


def _runs(text: str) -> set[tuple[str, ...]]:
    """Runs of `NGRAM` words; a shorter text is one run."""
    found = words(text) or [text]
    return {tuple(found[at : at + NGRAM]) for at in range(max(1, len(found) - NGRAM + 1))}


class Served:
    """The detective behind `mlflow.pyfunc`: a table with a column `text` in, a table of verdicts out."""

    DEFAULT_FPR = 0.05

    def load_context(self, context: Any) -> None:
        """Load base model, adapter and calibration from the registered model's files."""
        adapter = Path(context.artifacts["adapter"])
        files = {name: adapter.parent / name for name in FILES if (adapter.parent / name).is_file()}
        given = context.model_config or {}
        changes = {name.removeprefix("serving_"): value for name, value in given.items()}
        self.detective = Detective(adapter, files, **changes)

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Verdicts of the texts in column `text`, at the false-positive rate `params["fpr"]`, by default .05.

        Raises:
            UsageError: for no texts, one that is blank or no string, or a rate that the calibration set cannot support.
        """
        texts = model_input["text"].tolist()
        if not texts:
            raise UsageError("at least one text must be given; got none")
        for at, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip():
                raise UsageError(f"text must be a string that is not blank; got {text!r} in row {at}")
        return self.detective.verdicts(texts, fpr=float((params or {}).get("fpr", self.DEFAULT_FPR)))
