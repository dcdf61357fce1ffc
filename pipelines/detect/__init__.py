"""Verdicts with calibrated error rates on new texts, from a registered adapter: `python -m pipelines.detect`.

`classifier` scores texts and compares them with the calibration, `verdicts` adds measured error rates and the test of
the data set as a whole, `report` is the output, `mlflow_model` the model that MLflow loads and serves.
"""
