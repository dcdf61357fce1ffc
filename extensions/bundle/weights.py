"""Hashes of the weights of the models and of the adapter that a run names."""

import json
from collections.abc import Iterator
from pathlib import Path

from extensions.bundle.manifest import InputFile, Weights
from extensions.bundle.provenance import Settings, hashed, values
from fsd import tracking
from fsd.errors import UsageError
from fsd.files import digest
from fsd.net.hub import fingerprint, model_size, weights_file
from pipelines.experiment.adapter_files import FILES, SETUP

MODELS = ("model", "models", "reference_model", "neighbour_model", "placebo", "tuned")
"""Settings that name models."""
ADAPTER = "adapter"
"""The setting that names an adapter, and its name in a protocol."""
ENDINGS = (".safetensors", ".bin", ".json", ".model")
"""Files that make a model."""


def adapter_files(uri: str) -> dict[str, Path]:
    """The files of an adapter and those that travel with it, by name."""
    folder = tracking.fetch_adapter(uri)
    files = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name not in FILES:
            files[path.name] = path
    # A registered adapter has them beside its folder.
    for name in FILES:
        file = tracking.fetch_model_file(uri, name)
        if file:
            files[name] = file
    return files


def named_models(settings: Settings, setup: Path | None) -> Iterator[tuple[str, str]]:
    """Setting and name of each model that the settings name, or the setup of their adapter."""
    names = {}
    for role in MODELS:
        # The keys of a configuration file are written as the flags are.
        names[role] = values(settings, role.replace("_", "-")) or values(settings, role)
    # Several models stand in place of the one that is named by default.
    if names["models"]:
        names["model"] = []
    elif not names["model"] and setup and setup.is_file():
        # `fsd detect` loads the model of its adapter.
        names["model"] = [json.loads(setup.read_text(encoding="utf-8"))["model"]["model"]]
    for role, of_role in names.items():
        for name in of_role:
            if name not in ("", "auto", "none", "words"):
                yield role, name


def weights_of(settings: Settings, folder: Path) -> list[Weights]:
    """The models that a run names, with the hashes of the files that are on this machine.

    `folder` is that of its bundle.
    """
    weights = []
    for role, name in named_models(settings, folder / ADAPTER / SETUP):
        tensors, files = local_weights(name, settings.get("revision"))
        weights.append(Weights(role, name, tensors, files))
    return weights


def hashes_of(settings: Settings) -> dict[str, dict[str, str]]:
    """SHA-256 of the files of each model that the settings name, and of the adapter; none of what is not here."""
    hashes = {}
    setup = None
    if settings.get(ADAPTER):
        files = adapter_files(str(settings[ADAPTER]))
        setup = files.get(SETUP)
        hashes[ADAPTER] = {name: digest(path) for name, path in files.items()}
    for _, name in named_models(settings, setup):
        hashes[name] = {path.name: digest(path) for path in model_files(name, settings.get("revision"))}
    return hashes


def local_weights(name: str, revision: str | None) -> tuple[str, list[InputFile]]:
    """The project's hash of a model's tensors, and the hashes of its files; none where they are not here."""
    paths = model_files(name, revision)
    tensors = ""
    if paths and not weights_file(name):
        tensors = fingerprint(paths[0].parent)
    return tensors, [hashed(path, path.name) for path in paths]


def model_files(name: str, revision: str | None) -> list[Path]:
    """The files of a model that are on this machine."""
    try:
        size = model_size(name, revision)
    except UsageError:
        size = None
    if size is None:
        return []
    file = weights_file(name)
    if file:
        return [file.path]
    return [path for path in sorted(size.folder.iterdir()) if path.is_file() and path.suffix in ENDINGS]
