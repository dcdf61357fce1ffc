"""Hashes of the weights of the models and of the adapter that a run names."""

from collections.abc import Mapping
from pathlib import Path

from extensions.bundle.manifest import Weights
from extensions.bundle.provenance import Settings, values
from fsd.api import UsageError, model_size, weights_file
from fsd.api import digest_of_files as digest
from pipelines.api import files_of, read_setup

MODELS = ("model", "models", "reference_model", "neighbour_model", "placebo", "tuned")
"""Settings that name models."""
ADAPTER = "adapter"
"""The setting that names an adapter, its name in a protocol, and its folder in a bundle."""
NONE = ("", "auto", "none", "words")
"""Values of these settings that name no model."""
ENDINGS = (".safetensors", ".bin", ".json", ".model")
"""Files that make a model."""
Hashes = Mapping[str, Mapping[str, str]]
"""Name of a model, or `adapter` → file → its SHA-256."""


def weights_of(settings: Settings) -> list[Weights]:
    """The models that a run names, or its adapter, with the hashes of the files that are on this machine."""
    names = {role: values(settings, role) for role in MODELS}
    # Several models stand in place of the one that is named by default.
    if names["models"]:
        names["model"] = []
    elif not names["model"] and settings.get(ADAPTER):
        # `fsd detect` loads the model of its adapter.
        setup = read_setup(str(settings[ADAPTER]), collective=False)
        names["model"] = [setup.model.model] if setup else []
    weights = []
    for role, of_role in names.items():
        for name in of_role:
            if name not in NONE:
                hashes = file_hashes(name, settings.get("revision"))
                weights.append(Weights(role, name, hashes))
    return weights


def hashes_of(settings: Settings) -> Hashes:
    """The hashes of the files of each model that the settings name, and of the adapter."""
    hashes = {weights.name: weights.files for weights in weights_of(settings)}
    if settings.get(ADAPTER):
        files = files_of(str(settings[ADAPTER]))
        hashes[ADAPTER] = {name: digest(path) for name, path in files.items()}
    return hashes


def file_hashes(name: str, revision: str | None = None) -> dict[str, str]:
    """SHA-256 of each file of a model; none where it is not on this machine."""
    try:
        size = model_size(name, revision)
    except UsageError:
        size = None
    if size is None:
        return {}
    single = weights_file(name)
    if single:
        return {single.path.name: digest(single.path)}
    files: list[Path] = sorted(size.folder.iterdir())
    hashes = {}
    for path in files:
        if path.suffix in ENDINGS and path.is_file():
            hashes[path.name] = digest(path)
    return hashes
