"""Code of a registered model, which MLflow copies into the version and runs when the version is loaded.

Versions keep the copy of their release, so `MembershipClassifier(folder, model=, device=, dtype=)` and its method
`verdicts` must not change.
"""

from typing import Any

import mlflow
import pandas as pd

from fsd.errors import UsageError
from pipelines.detect.classifier import MembershipClassifier


class Model(mlflow.pyfunc.PythonModel):  # type: ignore[misc] # mlflow's imports are skipped by mypy
    """`MembershipClassifier` as a pyfunc model: a table with a column `text` in, a table of verdicts out."""

    def load_context(self, context: Any) -> None:
        """Load the base model, adapter and calibration."""
        settings = {name.removeprefix("serving_"): value for name, value in (context.model_config or {}).items()}
        self.classifier = MembershipClassifier(context.artifacts["adapter"], **settings)

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Verdicts on the texts in column `text` at the false-positive rate `params["fpr"]`, .05 by default.

        Raises:
            MlflowException: INVALID_PARAMETER_VALUE (status 400), with the message of the UsageError, for a blank text
                or a rate that the calibration does not support.
        """
        try:
            return self.classifier.verdicts(model_input["text"].tolist(), fpr=float((params or {}).get("fpr", 0.05)))
        except UsageError as error:
            raise mlflow.MlflowException.invalid_parameter_value(str(error)) from error


mlflow.models.set_model(Model())
