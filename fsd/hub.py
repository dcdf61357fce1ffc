"""Where a model's files are, on disk or on the hub, and which weights they hold."""

import json
import mmap
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import xxhash

from fsd.errors import UsageError

EMBEDDED = {
    "embedded": Path(__file__).parent / "embedded" / "target",
    "embedded-twin": Path(__file__).parent / "embedded" / "twin",
}
"""Models that come with the package: the target with known members, and its twin that never saw them."""


def locate(model: str, revision: str | None = None) -> tuple[Path, str]:
    """The local folder of a model, downloaded first if it is a hub id, and its hub commit ("" if local).

    Raises:
        UsageError: if it is no model folder, or a hub id that is not cached and cannot be reached.
    """
    if model in EMBEDDED:
        return EMBEDDED[model], ""
    folder = Path(model).expanduser()
    if folder.is_dir():
        if (folder / "adapter_config.json").exists():
            raise UsageError(f"model must be a base model; {model} is an adapter: give it to --adapter")
        if not (folder / "config.json").exists():
            raise UsageError(f"model folder must hold config.json and weights; {model} has no config.json")
        return folder, ""
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise UsageError(f"model must be embedded, a folder or a hub id; there is no folder {model}")
    return _download(model, revision)


def _download(model: str, revision: str | None) -> tuple[Path, str]:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        if hub_reachable():
            files = HfApi().list_repo_files(model, revision=revision)
            weights = "*.safetensors" if any(f.endswith(".safetensors") for f in files) else "*.bin"
            patterns = [weights, "*.json", "*.model", "*.txt"]
            folder = Path(snapshot_download(model, revision=revision, allow_patterns=patterns))
        else:
            folder = Path(snapshot_download(model, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise UsageError(
            f"model {model!r} must be a folder, or a hub id with network or in the local cache; "
            "the hub cannot be reached: give a local folder, or --model embedded"
        ) from error
    except (HfHubHTTPError, HFValidationError) as error:
        raise UsageError(f"model {model!r} must be a folder or a hub id; {first_line(error)}") from error
    if (folder / "adapter_config.json").exists():
        raise UsageError(f"model must be a base model; {model} is an adapter: give it to --adapter")
    return folder, folder.name


def hub_reachable(seconds: float = 3.0) -> bool:
    """Whether the model hub answers a TCP connection; the hub library itself would try for most of a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    parts = urlsplit(constants.ENDPOINT)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    proxied = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    if proxied:
        return True  # the proxy resolves names that this machine cannot
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=seconds):
            return True
    except OSError:
        return False


def fingerprint(folder: Path) -> str:
    """A hash of a model's weights that depends neither on how they are cut into files nor on where they lie.

    Tensors are hashed in the order of their names (name, type, shape, bytes); `.bin` files by their bytes.

    Raises:
        UsageError: if the folder holds no weights.
    """
    digest = xxhash.xxh3_128()
    tensors = sorted(
        (name, file, entry) for file in folder.glob("*.safetensors") for name, entry in _header(file).items()
    )
    for name, file, entry in tensors:
        begin, end = entry["data_offsets"]
        digest.update(f"{name} {entry['dtype']} {entry['shape']}".encode())
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            data = 8 + int.from_bytes(raw[:8], "little")
            digest.update(memoryview(raw)[data + begin : data + end])
    if not tensors:
        files = sorted(folder.glob("*.bin"))
        if not files:
            raise UsageError(f"model folder must hold weights (*.safetensors or *.bin); {folder} has none")
        for file in files:
            with file.open("rb") as stream:
                while block := stream.read(2**24):
                    digest.update(block)
    return digest.hexdigest()


def _header(file: Path) -> dict[str, Any]:
    """Name → dtype, shape and data_offsets of each tensor of a safetensors file (8 bytes of length, then JSON)."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header: dict[str, Any] = json.loads(stream.read(size))
    header.pop("__metadata__", None)
    return header


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for a message of one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
