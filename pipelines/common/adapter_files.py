"""The files that travel with a registered adapter, so that it can give verdicts later."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fsd.config import ModelConfig
from fsd.net.hub import EMBEDDED
from fsd.scoring.scorers import TABLE

SETUP = "setup.json"
"""Name of the file that says how an adapter's run scored, which travels with it."""
UNSEEN = "unseen.jsonl"
"""Name of the file of texts that an adapter was trained on, which travels with it."""
CALIBRATION = "calibration.json"
"""Name of the file that holds the calibration of the best detector."""
FILES = (CALIBRATION, SETUP, UNSEEN, TABLE)
"""All of them; the table of token frequencies may be absent."""


def setup(
    config: ModelConfig, *, domain: str, detectors: Mapping[str, Mapping[str, Any]], shots: int, seed: int
) -> str:
    """What a detective needs to know to score as the run did, as JSON."""
    known = {
        "model": asdict(config),
        "folder": config.model not in EMBEDDED and Path(config.model).expanduser().is_dir(),
        "domain": domain,
        "detectors": detectors,
        "shots": shots,
        "seed": seed,
    }
    return json.dumps(known, indent=2) + "\n"
