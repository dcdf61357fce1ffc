"""The detectors of a run, with their settings."""

import json
from collections.abc import Sequence
from typing import Any

import detectors
from detectors import Detector
from fsd import distributed
from fsd.config import DetectorConfig
from fsd.errors import UsageError
from pipelines.common.adapter_files import SETUP


def load_detectors(config: DetectorConfig) -> list[Detector]:
    """The detectors asked for, with their settings: those given, else those found by tuning, else the papers'.

    Raises:
        UsageError: for an unknown detector or setting, or settings that cannot be fetched.
    """
    settings = _settings(config.settings)
    found = _found(config.settings_from) if config.settings_from else {}
    names = detectors.names() if config.detectors == "all" else _names(config.detectors)
    idle = sorted(set(settings) - set(names))
    if idle:
        raise UsageError(f"settings must be of a detector in use, one of {', '.join(names)}; got {idle[0]!r}")
    return [detectors.load(name, **{**found.get(name, {}), **settings.get(name, {})}) for name in names]


def _found(uri: str) -> dict[str, dict[str, Any]]:
    """The settings that the detectors of a run had, which travel with its adapter."""
    from fsd import tracking

    file = distributed.from_main(lambda: tracking.fetch_model_file(uri, SETUP))
    if file is None:
        raise UsageError(f"settings-from must be a model, run or folder with {SETUP}; {uri} has none")
    known: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["detectors"]
    return known


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"detectors must be all, or names out of {', '.join(detectors.names())}; got {text!r}")
    return names


def _settings(entries: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`surp.k=30` → {"surp": {"k": 30}}."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        name, dot, setting = key.partition(".")
        if not (equals and dot and name and setting):
            raise UsageError(f"settings must look like surp.k=30; got {entry!r}")
        try:
            found.setdefault(name, {})[setting] = json.loads(value.lower() if value in ("True", "False") else value)
        except json.JSONDecodeError:
            found.setdefault(name, {})[setting] = value
    return found
