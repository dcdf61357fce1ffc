"""Size of a model's weights on this machine, without downloading anything."""

import math
from pathlib import Path
from typing import NamedTuple

from fsd.errors import UsageError
from fsd.net.hub import EMBEDDED, SMALL_FILES, header, locate, weight_files


class ModelSize(NamedTuple):
    """Size of a model.

    Attributes:
        folder: where its files are.
        size: of the weights, in bytes.
        parameters: their number; None if the format does not tell.
    """

    folder: Path
    size: int
    parameters: int | None


def model_size(model: str, revision: str | None = None) -> ModelSize | None:
    """The size of a model; None for a hub id whose weights are not on this machine, and for one behind an API.

    Raises:
        UsageError: for a folder that holds no model.
    """
    if model.startswith("api:"):
        return None
    local = model in EMBEDDED or model.startswith((".", "/", "~")) or Path(model).is_dir()
    folder = locate(model, revision)[0] if local or model.count("/") > 1 else _cached(model, revision)
    if folder is None:
        return None
    try:
        files = weight_files(folder)
    except UsageError:
        if local:
            raise
        return None
    count = None
    if all(file.suffix == ".safetensors" for file in files):
        count = sum(math.prod(entry["shape"]) for file in files for entry in header(file).values())
    return ModelSize(folder, sum(file.stat().st_size for file in files), count)


def _cached(model: str, revision: str | None) -> Path | None:
    """The folder of a hub id in the cache of the hub's library."""
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(model, revision=revision, allow_patterns=list(SMALL_FILES), local_files_only=True)
        )
    except Exception:  # whatever is wrong with the id, the download reports it
        return None
