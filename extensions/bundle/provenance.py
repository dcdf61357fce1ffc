"""Where the numbers of an answer come from: its input files, code, libraries, environment and command line, hashed."""

import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from extensions.bundle.container import files_in
from extensions.bundle.manifest import Sha256, Size
from fsd.api import UsageError, tracking, without_credentials
from fsd.api import digest_of_files as digest
from pipelines.api import evidences, typed_line

Settings = Mapping[str, Any]
"""Name of a setting → its value."""
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


@dataclass(frozen=True)
class InputFile:
    """A file of an input: its name in the input, empty for the input itself."""

    name: str
    size: Size
    sha256: Sha256


@dataclass(frozen=True)
class Input:
    """What a setting of the command named: its files, none if it is not on this machine."""

    flag: str
    name: str
    files: Sequence[InputFile] = ()


@dataclass(frozen=True)
class Provenance:
    """Where the numbers of a run come from, as recorded when it began."""

    command: str
    command_line: str
    inputs: Sequence[Input]
    code: Mapping[str, str]
    libraries: Mapping[str, str]
    environment: Mapping[str, str]
    seed: str

    def copies(self) -> Iterator[tuple[Input, str]]:
        """Each input, and the path of its copy in a bundle."""
        numbers = Counter[str]()
        for entry in self.inputs:
            numbers[entry.flag] += 1
            yield entry, f"inputs/{entry.flag}-{numbers[entry.flag]}/{Path(entry.name).name}"

    def files(self) -> Iterator[tuple[InputFile, Path, str]]:
        """Each file of an input: where the run read it, and the path of its copy in a bundle."""
        for entry, copied in self.copies():
            for file in entry.files:
                # The name of a file that is the whole input is empty, which joins to the same path.
                yield file, Path(entry.name) / file.name, f"{copied}/{file.name}".rstrip("/")


def values(settings: Settings, name: str) -> list[str]:
    """The names that a setting holds, if any."""
    value = settings.get(name)
    if isinstance(value, str):
        return [value]
    # A share, such as that of --unseen, names no file.
    if isinstance(value, list | tuple):
        return list(map(str, value))
    return []


def asking() -> list[str]:
    """The commands that ask a model for evidence."""
    return [name for name, evidence in evidences().items() if evidence.inputs]


def inputs(command: str, settings: Settings) -> list[Input]:
    """The inputs of a command with the hashes of their files; a published benchmark or task has no files here."""
    read = []
    for flag in evidences()[command].inputs:
        for value in filter(None, values(settings, flag)):
            files = []
            for name, path in _files(Path(value)):
                files.append(InputFile(name, path.stat().st_size, digest(path)))
            read.append(Input(flag, without_credentials(value), files))
    return read


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """The files of an input; the name of the one file of a path is empty."""
    if path.is_dir():
        yield from files_in(path)
    elif path.is_file():
        yield "", path


def settings_in(configuration: bytes) -> dict[str, Any]:
    """The settings in the configuration file of a run, which may be of anybody's bundle, by name."""
    import yaml

    must = "the configuration of a run must be its settings by name, in YAML"
    try:
        settings = yaml.safe_load(configuration)
    except yaml.YAMLError as error:
        raise UsageError(f"{must}; {str(error).splitlines()[0]}") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{must}; got {settings!r:.60}")
    # The keys of a configuration file are written as the flags are.
    return {str(flag).replace("-", "_"): value for flag, value in settings.items()}


def provenance(command: str, settings: Settings) -> dict[str, Any]:
    """What is recorded with the run of a command, as JSON."""
    environment = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": str(os.cpu_count()),
    }
    seed = str(settings.get("seed", ""))
    libraries = dict(zip(LIBRARIES, map(version, LIBRARIES), strict=True))
    return asdict(
        Provenance(
            command, typed_line(command), inputs(command, settings), tracking.versions(), libraries, environment, seed
        )
    )
