"""The files that travel with a registered adapter, so that it can give verdicts later."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fsd import distributed, tracking
from fsd.config import AdapterConfig, ModelConfig
from fsd.net.hub import EMBEDDED
from fsd.scoring.model import TABLE
from fsd.views import Detector

SETUP = "setup.json"
"""Name of the file that says how an adapter's run scored, which travels with it."""
UNSEEN = "unseen.jsonl"
"""Name of the file of texts that an adapter was trained on, which travels with it."""
CALIBRATION = "calibration.json"
"""Name of the file that holds the calibration of the best detector."""
AUDIT = "audit.json"
"""Name of the file that holds the audit of the run in short."""
AUDITED = "calibrated"
"""State of the calibration of an audited adapter: its scores are fine-tuned minus base, those of the fine-tuning data
highest; the texts that it was trained on are not known."""
FILES = (CALIBRATION, SETUP, UNSEEN, TABLE, AUDIT)
"""All of them; the table of token frequencies may be absent, and adapters of earlier releases have no audit."""


def setup(
    config: ModelConfig,
    *,
    domain: str,
    detectors: Sequence[Detector],
    shots: int,
    seed: int,
    training: AdapterConfig | None,
) -> str:
    """The settings with which a run scored, as JSON, so that texts can be scored the same way later."""
    known = {
        "model": asdict(config),
        "folder": config.model not in EMBEDDED and Path(config.model).expanduser().is_dir(),
        "domain": domain,
        "detectors": {detector.name: dict(detector.settings) for detector in detectors},
        "base_settings": {d.name: dict(d.base_settings) for d in detectors if d.base_settings},
        "shots": shots,
        "seed": seed,
        "training": asdict(training) if training else None,
    }
    return json.dumps(known, indent=2) + "\n"


def read_setup(uri: str, *, collective: bool = True) -> dict[str, Any] | None:
    """The settings that `setup` wrote with an adapter; None where there are none."""

    def fetch() -> Path | None:
        return tracking.fetch_model_file(uri, SETUP)

    file = distributed.from_main(fetch) if collective else fetch()
    return json.loads(file.read_text(encoding="utf-8")) if file else None


def recorded_training(uri: str, *, collective: bool = True) -> AdapterConfig | None:
    """How a registered adapter was trained, see `read_setup`; None where it is not recorded."""
    recorded = (read_setup(uri, collective=collective) or {}).get("training")
    return AdapterConfig(**recorded) if recorded else None
