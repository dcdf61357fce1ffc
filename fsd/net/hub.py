"""Where a model's files are, on disk or on the hub, and which weights they hold."""

import json
import mmap
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import xxhash

from fsd.errors import UsageError

EMBEDDED = {
    "embedded": Path(__file__).parents[1] / "data" / "embedded" / "target",
    "embedded-twin": Path(__file__).parents[1] / "data" / "embedded" / "twin",
}
"""Models that come with the package: the target with known members, and its twin that never saw them."""
PATIENCE = 3.0
"""Seconds in which a server must accept a connection."""

SMALL_FILES = ("*.json", "*.model", "*.txt")
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
"""Names of one-file weights, in the order in which they are preferred; in parts, `<name>.index.json` lists them."""


def locate(model: str, revision: str | None = None, *, weights: bool = True) -> tuple[Path, str]:
    """The local folder of a model, downloaded first if it is a hub id, and its hub commit ("" if local).

    Args:
        model: "embedded", "embedded-twin", a local folder or a hub id.
        revision: branch, tag or commit of a hub id.
        weights: whether the weights are needed too, or only configuration and tokenizer.

    Raises:
        UsageError: if it is no model folder, or a hub id that is not cached and cannot be reached.
    """
    if model in EMBEDDED:
        return EMBEDDED[model], ""
    if model.startswith("api:"):
        raise UsageError(f"model must be one whose weights are at hand; {model} can only be scored: pipelines.score")
    folder = Path(model).expanduser()
    if model.strip() and folder.is_dir():
        _check_folder(model, folder)
        return folder, ""
    if not model.strip() or model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise UsageError(f"model must be embedded, a folder or a hub id; there is no folder {model!r}")
    folder = _download(model, revision, weights=weights)
    _check_folder(model, folder)
    return folder, folder.name


def _check_folder(model: str, folder: Path) -> None:
    if (folder / "adapter_config.json").exists():
        raise UsageError(f"model must be a base model; {model} is an adapter: give it to --adapter")
    if not (folder / "config.json").exists():
        raise UsageError(f"model folder must hold config.json and weights; {model} has no config.json")


def _download(model: str, revision: str | None, *, weights: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    def fetch(*patterns: str) -> Path:
        wanted = [*SMALL_FILES, *patterns]
        # Folders inside a repository hold other formats of the same weights.
        others = ["*/*", "consolidated*"]
        return Path(
            snapshot_download(
                model, revision=revision, allow_patterns=wanted, ignore_patterns=others, local_files_only=local
            )
        )

    local = not hub_reachable()
    try:
        if not weights:
            return fetch()
        folder = fetch("*.safetensors")
        return folder if any(folder.glob("*.safetensors")) else fetch("*.bin")
    except LocalEntryNotFoundError as error:
        raise UsageError(
            f"model {model!r} must be a folder, or a hub id with network or in the local cache; "
            "the hub cannot be reached: give a local folder, or --model embedded"
        ) from error
    except Exception as error:  # the HTTP client of the hub library, and so its errors, differ by version
        raise UsageError(f"model {model!r} must be a folder or a hub id; {first_line(error)}") from error


def hub_reachable() -> bool:
    """Whether the hub may be asked (HF_HUB_OFFLINE is not set) and answers.

    The hub library itself would try for most of a minute.
    """
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and reachable(constants.ENDPOINT)


def reachable(endpoint: str, patience: float = PATIENCE) -> bool:
    """Whether the server of a URL, or the proxy that the environment sets before it, accepts a connection.

    Args:
        endpoint: URL.
        patience: seconds to wait for it, the look-up of its name included.
    """
    url = urlsplit(endpoint)
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(url.hostname or ""):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    address = url.hostname or "", url.port or {"https": 443}.get(url.scheme, 80)
    answered = threading.Event()

    def connect() -> None:
        try:
            with socket.create_connection(address, timeout=patience):
                answered.set()
        except OSError:
            pass

    # looking up a name cannot be given a time limit, so a thread is left behind with it
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(patience)
    return answered.is_set()


def weight_files(folder: Path) -> list[Path]:
    """The files that the weights are read from: safetensors before `.bin`, in one file or in the parts of an index.

    Raises:
        UsageError: if the folder holds no weights, or lacks a part.
    """
    for name in WEIGHT_FILES:
        index = folder / f"{name}.index.json"
        if (folder / name).exists():
            return [folder / name]
        if index.exists():
            parts = sorted({folder / part for part in json.loads(index.read_text())["weight_map"].values()})
            missing = [part.name for part in parts if not part.exists()]
            if missing:
                raise UsageError(f"model must have all its weights; {folder} lacks {', '.join(missing)}")
            return parts
    raise UsageError(f"model folder must hold weights ({' or '.join(WEIGHT_FILES)}); {folder} has none")


def fingerprint(folder: Path) -> str:
    """A hash of a model's weights that depends neither on how they are cut into files nor on where they lie.

    Tensors are hashed in the order of their names (name, type, shape, bytes); `.bin` files by their bytes.

    Raises:
        UsageError: if the folder holds no weights, lacks a part, or a file is cut short.
    """
    digest = xxhash.xxh3_128()
    files = weight_files(folder)
    if files[0].suffix == ".bin":
        for part in files:
            with part.open("rb") as stream:
                while block := stream.read(2**24):
                    digest.update(block)
        return digest.hexdigest()
    tensors = {name: (file, entry) for file in files for name, entry in _header(file).items()}
    for name, (file, entry) in sorted(tensors.items()):
        begin, end = entry["data_offsets"]
        digest.update(f"{name} {entry['dtype']} {entry['shape']}".encode())
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            data = 8 + int.from_bytes(raw[:8], "little")
            with memoryview(raw) as view:
                digest.update(view[data + begin : data + end])
    return digest.hexdigest()


def _header(file: Path) -> dict[str, Any]:
    """Name → dtype, shape and data_offsets of each tensor of a safetensors file (8 bytes of length, then JSON)."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        try:
            header: dict[str, Any] = json.loads(stream.read(length) if length < size else b"")
        except ValueError as error:
            raise UsageError(f"weights must be a whole safetensors file; {file} is damaged") from error
    header.pop("__metadata__", None)
    if any(8 + length + entry["data_offsets"][1] > size for entry in header.values()):
        raise UsageError(f"weights must be a whole safetensors file; {file} is cut short")
    return header


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for a message of one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
