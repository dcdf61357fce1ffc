"""Hashes of the weights of the models that a run names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fsd.errors import UsageError
from fsd.evidence.bundle import InputFile, Weights
from fsd.files import digest
from fsd.models.gguf import gguf_file
from fsd.net.hub import fingerprint, model_size
from pipelines.common.adapter_files import SETUP

MODELS = ("model", "reference_model", "neighbour_model", "placebo", "tuned")
"""Settings that name models."""
ENDINGS = (".safetensors", ".bin", ".json", ".model")
"""Files that make a model."""


def weights_of(settings: Mapping[str, Any], folder: Path) -> list[Weights]:
    """The models that the run names, with the hashes of the files that are on this machine."""
    named = {name: settings.get(name.replace("_", "-")) for name in MODELS}
    setup = folder / "adapter" / SETUP
    # `fsd detect` loads the model of its adapter.
    if not named["model"] and setup.is_file():
        named["model"] = json.loads(setup.read_text(encoding="utf-8"))["model"]["model"]
    weights = []
    for role, name in named.items():
        if name and name not in ("auto", "none", "words"):
            weights.append(Weights(role, str(name), *local_weights(str(name), settings.get("revision"))))
    return weights


def local_weights(name: str, revision: str | None) -> tuple[str, list[InputFile]]:
    """The project's hash of a model's tensors, and the hashes of its files; none where they are not here."""
    try:
        size = model_size(name, revision)
    except UsageError:
        size = None
    if size is None:
        return "", []
    gguf = gguf_file(name)
    if gguf:
        return "", [InputFile(gguf.name, gguf.stat().st_size, digest(gguf))]
    paths = [path for path in sorted(size.folder.iterdir()) if path.is_file() and path.suffix in ENDINGS]
    return fingerprint(size.folder), [InputFile(path.name, path.stat().st_size, digest(path)) for path in paths]
