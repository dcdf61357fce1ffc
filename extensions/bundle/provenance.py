"""Where the numbers of an answer come from: its input files, code, libraries, environment and command line, hashed."""

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from extensions.bundle.container import files_in
from extensions.bundle.manifest import Input, InputFile, Provenance
from fsd import tracking
from fsd.errors import UsageError, first_line, without_credentials
from fsd.files import digest
from pipelines.command.context import typed_line

Settings = Mapping[str, Any]
"""Name of a setting → its value."""
INPUTS = {
    "run": ("data", "members", "nonmembers", "unseen", "frequencies"),
    "detect": ("files", "known"),
    "adapter-audit": ("data", "members", "nonmembers", "frequencies"),
    "contamination": ("files", "known", "frequencies"),
    "extract": ("book", "control", "questions"),
    "canary test": ("folder", "frequencies"),
}
"""Command that asks a model for evidence → its settings that name files."""
LIBRARIES = (
    "accelerate",
    "numpy",
    "pandas",
    "peft",
    "safetensors",
    "scikit-learn",
    "scipy",
    "tokenizers",
    "torch",
    "transformers",
    "trl",
)
"""Libraries on whose versions numbers may depend."""


def values(settings: Settings, name: str) -> list[str]:
    """The files that a setting names, if any."""
    value = settings.get(name)
    if isinstance(value, str):
        return [value]
    # A share, such as that of --unseen, names no file.
    if isinstance(value, list | tuple):
        return list(map(str, value))
    return []


def inputs(command: str, settings: Settings) -> list[Input]:
    """The inputs of a command with the hashes of their files; a published benchmark or task has no files here."""
    read = []
    for flag in INPUTS[command]:
        for value in filter(None, values(settings, flag)):
            files = list(_files(Path(value)))
            read.append(Input(flag, without_credentials(value), files))
    return read


def _files(path: Path) -> Iterator[InputFile]:
    """The files of an input; the name of the one file of a path is empty."""
    if path.is_dir():
        for name, file in files_in(path):
            yield hashed(file, name)
    elif path.is_file():
        yield hashed(path, "")


def hashed(path: Path, name: str) -> InputFile:
    """A file with its size and hash, under a name."""
    return InputFile(name, path.stat().st_size, digest(path))


def settings_in(configuration: bytes) -> dict[str, Any]:
    """The settings in the configuration file of a run, which may be of anybody's bundle."""
    import yaml

    must = "the configuration of a run must be its settings by name, in YAML"
    try:
        settings = yaml.safe_load(configuration)
    except yaml.YAMLError as error:
        raise UsageError(f"{must}; {first_line(error)}") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{must}; got {settings!r:.60}")
    return dict(zip(map(str, settings), settings.values(), strict=True))


def provenance(command: str, settings: Settings) -> dict[str, Any]:
    """What is recorded with the run of a command, as JSON."""
    seed = str(settings.get("seed", ""))
    files = inputs(command, settings)
    recorded = Provenance(
        command, typed_line(command), files, tracking.versions(), _libraries(), _environment(), seed=seed
    )
    return asdict(recorded)


def _environment() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": str(os.cpu_count()),
    }


def _libraries() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
