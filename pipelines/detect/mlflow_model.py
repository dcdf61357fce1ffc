"""The code of a registered model: MLflow runs this file when it loads one."""

from typing import Any

import mlflow
import pandas as pd

from fsd.errors import UsageError
from pipelines.detect.classifier import Served


class Model(Served, mlflow.pyfunc.PythonModel):  # type: ignore[misc] # mlflow's imports are skipped by mypy
    """What MLflow serves; all it does is in `Served`."""

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """As `Served.predict`; a user's mistake becomes a bad request, with its message."""
        try:
            return super().predict(context, model_input, params)
        except UsageError as error:
            raise mlflow.MlflowException.invalid_parameter_value(str(error)) from error


mlflow.models.set_model(Model())
