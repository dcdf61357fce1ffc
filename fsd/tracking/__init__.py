"""Runs, artifacts and registered models: the only part of the library that knows MLflow.

Everything lands in the store that MLFLOW_TRACKING_URI names, else in `mlruns/` of the working folder. Opening
a store, starting a run and registering a model are one call each; MLflow itself is imported by the first.
"""

from fsd.tracking.artifacts import fetch_adapter, fetch_artifact, fetch_model_file, version_info
from fsd.tracking.registry import Version, register
from fsd.tracking.runs import Run, run
from fsd.tracking.searching import RunRecord, find_runs
from fsd.tracking.store import Store, open_store

__all__ = [
    "Run",
    "RunRecord",
    "Store",
    "Version",
    "fetch_adapter",
    "fetch_artifact",
    "fetch_model_file",
    "find_runs",
    "open_store",
    "register",
    "run",
    "version_info",
]
