"""Experiment tracking: runs, artifacts and registered models. The only package that imports MLflow, on first use."""

from fsd.tracking.artifacts import (
    check_one_base,
    fetch_adapter,
    fetch_artifact,
    fetch_model_file,
    fetch_run,
    version_info,
)
from fsd.tracking.registry import InputColumn, ServedRows, Version, register
from fsd.tracking.runs import Run, RunRecord, find_runs, run, versions
from fsd.tracking.store import Store, address, check_store, open_store

__all__ = [
    "InputColumn",
    "Run",
    "RunRecord",
    "ServedRows",
    "Store",
    "Version",
    "address",
    "check_one_base",
    "check_store",
    "fetch_adapter",
    "fetch_artifact",
    "fetch_model_file",
    "fetch_run",
    "find_runs",
    "open_store",
    "register",
    "run",
    "version_info",
    "versions",
]
