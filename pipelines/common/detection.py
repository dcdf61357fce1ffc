"""The detectors of a run, with their settings."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import detectors
from detectors import Detector
from fsd.config import DetectorConfig
from fsd.errors import UsageError
from pipelines.common.adapter_files import SETUP, read_setup


def load_detectors(config: DetectorConfig) -> list[Detector]:
    """The requested detectors; `--settings` go before tuned settings, and these before the defaults.

    Raises:
        UsageError: for an unknown detector or setting, or settings that cannot be fetched.
    """
    settings = _parse_settings(config.settings)
    tuned = _tuned_settings(config.settings_from) if config.settings_from else {}
    names = detectors.names() if config.detectors == "all" else _parse_names(config.detectors)
    unused = sorted(set(settings) - set(names))
    if unused:
        raise UsageError(f"settings must be of a detector in use, one of {', '.join(names)}; got {unused[0]!r}")
    return [detectors.load(name, **{**tuned.get(name, {}), **settings.get(name, {})}) for name in names]


def cheap(detectors: Iterable[Detector]) -> list[Detector]:
    """The detectors that need no forward pass over other texts, such as neighbours or a prefix."""
    return [detector for detector in detectors if not {"neighbours", "primed"} & set(detector.views)]


def _tuned_settings(uri: str) -> dict[str, dict[str, Any]]:
    """Detector → settings of the run that registered the adapter."""
    setup = read_setup(uri)
    if setup is None:
        raise UsageError(f"settings-from must be a model, run or folder with {SETUP}; {uri} has none")
    return dict(setup["detectors"])


def _parse_names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"detectors must be all, or names out of {', '.join(detectors.names())}; got {text!r}")
    return names


def _parse_settings(entries: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`surp.k=30` → {"surp": {"k": 30}}."""
    settings: dict[str, dict[str, Any]] = {}
    for entry in entries:
        key, equals, text = entry.partition("=")
        detector, dot, name = key.partition(".")
        if not (equals and dot and detector and name):
            raise UsageError(f"settings must look like surp.k=30; got {entry!r}")
        try:
            value = json.loads(text.lower() if text in ("True", "False") else text)
        except json.JSONDecodeError:
            value = text
        settings.setdefault(detector, {})[name] = value
    return settings
