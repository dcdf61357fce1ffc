"""The detectors of a command with their settings: from the command line, from tuning, or the defaults."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import detectors
from detectors import Detector
from fsd.config import ALL, AUTO, DetectorConfig
from fsd.errors import UsageError, at_least
from fsd.net.hub import EMBEDDED
from fsd.scores import IN_AUDIT
from fsd.views import NO_INPUTS, ViewInputs
from pipelines.experiment.adapter_files import SETUP, read_setup

if TYPE_CHECKING:
    from fsd.scoring.model import Model
    from fsd.token_stats import FloatArray
    from fsd.verdicts.calibration import Calibration

# Part of a setting's name that restricts it to the base score: `surp.base.k`.
BASE = "base"
# Views of detectors that compare with a reference model → those by which a fine-tuned model is compared with its base.
AGAINST_BASE = {("text", "reference"): ("text", "tuned"), ("difference",): ("change",)}
Settings = dict[str, dict[str, Any]]
"""Detector → setting → value; settings of the base score alone are named `base.k`."""


def load_detectors(config: DetectorConfig) -> list[Detector]:
    """The requested detectors; `--settings` go before tuned settings, and these before the defaults."""
    if config.shots is not None:
        at_least(1, shots=config.shots)
    names = _names(config.detectors)
    asked = _parse_settings(config.settings)
    for name in sorted(asked):
        if name not in names:
            raise UsageError(f"settings must be of a detector in use, one of {', '.join(names)}; got {name!r}")
    tuned = {}
    if config.settings_from:
        tuned = _tuned_settings(config.settings_from)
    loaded = []
    for name in names:
        detector = detectors.load(name)
        # What comes later replaces what came before.
        for source in (tuned, asked):
            detector = _with_settings(detector, source.get(name, {}))
        loaded.append(detector)
    return loaded


def shots_of(config: DetectorConfig, model: str) -> int:
    """The number of unseen texts in the prefix of `recall` for a model."""
    if config.shots is not None:
        return config.shots
    # Two of them fill the context of an embedded model, so that the prefix would be cut.
    return 1 if model in EMBEDDED else 2


def _names(text: str) -> list[str]:
    requested = [name.strip() for name in text.split(",")]
    names = [name for name in dict.fromkeys(requested) if name]
    if not names:
        allowed = ", ".join(detectors.names())
        raise UsageError(f"detectors must be auto, all, or names out of {allowed}; got {text!r}")
    if names in ([AUTO], [ALL]):
        return list(detectors.names(names[0]))
    return names


def _with_settings(detector: Detector, settings: dict[str, Any]) -> Detector:
    prefix = f"{BASE}."
    common = {}
    base_alone = {}
    for key, value in settings.items():
        if key.startswith(prefix):
            base_alone[key.removeprefix(prefix)] = value
        else:
            common[key] = value
    # In this order: a setting for both scores replaces an earlier one for the base score alone.
    return detector.with_settings(**common).with_base_settings(**base_alone)


def cheap(detectors: Iterable[Detector]) -> list[Detector]:
    """The detectors that need no forward pass over other texts, such as neighbours or a prefix."""
    return [detector for detector in detectors if not detector.further]


def for_adapter_audit(detectors: Iterable[Detector]) -> list[Detector]:
    """The detectors of an audit of a fine-tuned model: those without further passes that are not of two models already.

    The base takes the place of a reference model: in an audited model (`fsd.scoring.model.Model.audited`) it is what
    "tuned" reads. Both models have the same settings.
    """
    plain = []
    for detector in cheap(detectors):
        if detector.views in AGAINST_BASE:
            plain.append(replace(detector, views=AGAINST_BASE[detector.views], base_settings={}))
        elif not detector.paired and not detector.reads_reference:
            plain.append(replace(detector, base_settings={}))
    return plain


def calibrated_scores(
    model: "Model", calibration: "Calibration", texts: Sequence[str], inputs: ViewInputs = NO_INPUTS
) -> "FloatArray":
    """(N,) scores of texts by the score of a calibration; in an audit, its detector compares the two models."""
    asked = [detectors.load(calibration.detector, **calibration.settings)]
    if calibration.state in IN_AUDIT:
        asked = for_adapter_audit(asked)
    return model.plan(asked, texts, inputs, strict=True).score().columns[calibration.score]


def _tuned_settings(uri: str) -> Settings:
    """Settings of the run that registered the adapter; earlier versions had none for the base score alone."""
    folder = Path(uri)
    # A folder that is no adapter would be refused as one, though nobody asked for an adapter.
    places = [folder / SETUP, folder.parent / SETUP]
    empty = folder.is_dir() and not any(place.is_file() for place in places)
    setup = None if empty else read_setup(uri)
    if setup is None:
        raise UsageError(f"settings-from must be a model, run or folder with {SETUP}; {uri} has none")
    tuned = {}
    for name, settings in setup.detectors.items():
        tuned[name] = dict(settings)
        for key, value in setup.base_settings.get(name, {}).items():
            tuned[name][f"{BASE}.{key}"] = value
    return tuned


def _parse_settings(entries: Sequence[str]) -> Settings:
    """`surp.k=30` → {"surp": {"k": 30}}."""
    settings: Settings = {}
    for entry in entries:
        key, equals, text = entry.partition("=")
        detector, _, name = key.partition(".")
        if not (equals and detector and name):
            raise UsageError(f"settings must look like surp.k=30; got {entry!r}")
        # JSON, but for Python's way to write a truth value; words need no quotes.
        if text in ("True", "False"):
            text = text.lower()
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        settings.setdefault(detector, {})[name] = value
    return settings
