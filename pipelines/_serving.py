"""The code of a registered model: MLflow runs this file when it loads one."""

import mlflow

from pipelines._detective import Served


class Model(Served, mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """What MLflow serves; all it does is in `Served`."""


mlflow.models.set_model(Model())
