"""The detectors of a run, with their settings."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import detectors
from detectors import Detector
from fsd.config import DetectorConfig
from fsd.errors import UsageError
from fsd.token_stats import TokenStats
from fsd.views import LISTS, VIEWS
from pipelines.common.adapter_files import SETUP, read_setup

BASE = "base"
"""Part of a setting's name that restricts it to the base score: `surp.base.k`."""


class Settings(NamedTuple):
    """Settings of detectors: detector → setting → value.

    Attributes:
        both: for the base score and the FSD.
        base: for the base score alone.
    """

    both: dict[str, dict[str, Any]]
    base: dict[str, dict[str, Any]]


def load_detectors(config: DetectorConfig) -> list[Detector]:
    """The requested detectors; `--settings` go before tuned settings, and these before the defaults."""
    if config.shots < 1:
        raise UsageError(f"shots must be at least 1; got {config.shots}")
    given = _parse_settings(config.settings)
    names = detectors.names() if config.detectors == "all" else _parse_names(config.detectors)
    unused = sorted({name for state in given for name in state} - set(names))
    if unused:
        raise UsageError(f"settings must be of a detector in use, one of {', '.join(names)}; got {unused[0]!r}")
    tuned = _tuned_settings(config.settings_from) if config.settings_from else Settings({}, {})
    loaded = [
        detectors.load(name, **tuned.both.get(name, {}))
        .with_base_settings(**tuned.base.get(name, {}))
        .with_settings(**given.both.get(name, {}))
        .with_base_settings(**given.base.get(name, {}))
        for name in names
    ]
    for detector in loaded:
        if any(detector.name in state for state in given):
            _check_ranges(detector)
    return loaded


def _check_ranges(detector: Detector) -> None:
    """Refuse settings out of range, which a detector does when it is computed, before anything else is."""
    probe = TokenStats("probe", np.arange(4), -np.arange(1.0, 5.0), -np.arange(1.0, 5.0), np.ones(4))
    views = {name: [probe] if VIEWS[name].form in LISTS else probe for name in detector.views}
    for state in (detector, detector.for_base):
        state(views)


def cheap(detectors: Iterable[Detector]) -> list[Detector]:
    """The detectors that need no forward pass over other texts, such as neighbours or a prefix."""
    return [detector for detector in detectors if not {"neighbours", "primed"} & set(detector.views)]


def _tuned_settings(uri: str) -> Settings:
    """Settings of the run that registered the adapter; earlier versions had none for the base score alone."""
    setup = read_setup(uri)
    if setup is None:
        raise UsageError(f"settings-from must be a model, run or folder with {SETUP}; {uri} has none")
    return Settings(setup["detectors"], setup.get("base_settings", {}))


def _parse_names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"detectors must be all, or names out of {', '.join(detectors.names())}; got {text!r}")
    return names


def _parse_settings(entries: Sequence[str]) -> Settings:
    """`surp.k=30` → {"surp": {"k": 30}}, for the base score alone from `surp.base.k=30`."""
    settings = Settings({}, {})
    for entry in entries:
        key, equals, text = entry.partition("=")
        detector, dot, name = key.partition(".")
        if not (equals and dot and detector and name):
            raise UsageError(f"settings must look like surp.k=30; got {entry!r}")
        try:
            value = json.loads(text.lower() if text in ("True", "False") else text)
        except json.JSONDecodeError:
            value = text
        state, _, of_base = name.partition(".")
        if state == BASE and of_base:
            settings.base.setdefault(detector, {})[of_base] = value
        else:
            settings.both.setdefault(detector, {})[name] = value
    return settings
