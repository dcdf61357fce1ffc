"""Models on disk or on the Hugging Face hub: their folders and weights; and data files on the hub."""

import json
import math
import mmap
import re
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import xxhash

from fsd.errors import UsageError

_EMBEDDED = Path(__file__).parents[1] / "data" / "embedded"
EMBEDDED = {
    "embedded": _EMBEDDED / "target",
    "embedded-twin": _EMBEDDED / "twin",
    "embedded-wikipedia": _EMBEDDED / "wikipedia" / "target",
    "embedded-wikipedia-contemporary-twin": _EMBEDDED / "wikipedia" / "contemporary-twin",
}
"""Models that come with the package: a target with known members for each embedded corpus, the twin of both, which was
pretrained in the same way on none of them, and the contemporary twin of the second, which was trained on the older
articles that the target was not."""
EMBEDDED_TWIN = "embedded-twin"
CONNECT_TIMEOUT = 3.0
"""Seconds within which a server must accept a connection."""

SMALL_FILES = ("*.json", "*.model", "*.txt")
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
"""Names of one-file weights, the preferred one first; for sharded weights, `<name>.index.json` lists the parts."""
DATASETS = "hf://datasets/"
Result = TypeVar("Result")
_DATA_FILE = re.compile(rf"{DATASETS}([^/@\s]+/[^/@\s]+)(?:@([^/\s]+))?/(\S+)")


def locate(model: str, revision: str | None = None, *, weights: bool = True) -> tuple[Path, str]:
    """The local folder of a model, downloaded if necessary, and its hub commit ("" for local folders).

    Args:
        model: a name in `EMBEDDED`, a local folder or a hub id.
        revision: branch, tag or commit of a hub id.
        weights: False fetches configuration and tokenizer only.
    """
    if model in EMBEDDED:
        return EMBEDDED[model], ""
    if model.startswith("api:"):
        raise UsageError(f"model must have local weights or a hub id; {model} can only be scored: pipelines.score")
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
    file = folder / "config.json"
    if not file.exists():
        raise UsageError(f"model folder must hold config.json and weights; {model} has no config.json")
    config = _json_object(file, "configuration")
    if "transformers_weights" in config:  # they would be loaded in place of those that the fingerprint is of
        raise UsageError(f"model folder must hold its weights under their usual names; {file} names others")
    if any(_names_kernel(key, value) for key, value in config.items()):
        raise UsageError(f"model must run without code from the hub; {file} names a kernel there")


def _names_kernel(key: str, value: Any) -> bool:
    """Whether an entry of a configuration is an implementation of a layer that transformers would download and run."""
    if isinstance(value, dict):
        return any(_names_kernel(f"{key}.{name}", inner) for name, inner in value.items())
    return "_implementation" in key and isinstance(value, str) and "/" in value


def _json_object(file: Path, kind: str) -> dict[str, Any]:
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{kind} must be a JSON file; {file} is damaged") from error
    if not isinstance(value, dict):
        raise UsageError(f"{kind} must be a JSON object; {file} is none")
    return value


def _download(model: str, revision: str | None, *, weights: bool) -> Path:
    from huggingface_hub.errors import LocalEntryNotFoundError

    local = not hub_reachable()
    try:
        folder = _snapshot(model, revision, "*.safetensors" if weights else "", local=local)
        if weights and not any(folder.glob("*.safetensors")):
            folder = _snapshot(model, revision, "*.bin", local=local)
    except LocalEntryNotFoundError as error:
        raise UsageError(
            f"model {model!r} must be a folder, or a hub id with network or in the local cache; "
            "the hub cannot be reached: give a local folder, or --model embedded"
        ) from error
    except Exception as error:  # the HTTP client of the hub library, and so its errors, differ by version
        raise UsageError(f"model {model!r} must be a folder or a hub id; {first_line(error)}") from error
    return folder


def _snapshot(model: str, revision: str | None, pattern: str, *, local: bool) -> Path:
    from huggingface_hub import snapshot_download

    folder = snapshot_download(
        model,
        revision=revision,
        allow_patterns=[*SMALL_FILES, pattern],
        ignore_patterns=["*/*", "consolidated*"],  # other formats of the same weights
        local_files_only=local,
    )
    return Path(folder)


def hub_reachable() -> bool:
    """Whether HF_HUB_OFFLINE is not set and the hub accepts a connection; its library would try for a minute."""
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and reachable(constants.ENDPOINT)


def reachable(endpoint: str, timeout: float = CONNECT_TIMEOUT) -> bool:
    """Whether the server of a URL, or the environment's proxy for it, accepts a connection within some seconds."""
    url = urlsplit(endpoint)
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(url.hostname or ""):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    address = url.hostname or "", url.port or {"https": 443}.get(url.scheme, 80)

    def connect() -> None:
        with socket.create_connection(address, timeout=timeout):
            pass

    try:
        within(timeout, connect)  # looking up a name has no time limit of its own
    except OSError:
        return False
    return True


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """The result of a call in a thread of its own, which is left behind when the time is over: TimeoutError."""
    result = Future[Result]()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result(seconds)


def weight_files(folder: Path) -> list[Path]:
    """The files of a model's weights: safetensors before `.bin`, one file or the parts of an index."""
    for name in WEIGHT_FILES:
        index = folder / f"{name}.index.json"
        if (folder / name).exists():
            return [folder / name]
        if index.exists():
            named = _json_object(index, "index of weights").get("weight_map")
            names = list(named.values()) if isinstance(named, dict) else []
            ending = Path(name).suffix
            if not names or not all(isinstance(n, str) and n == Path(n).name and n.endswith(ending) for n in names):
                raise UsageError(f"index of weights must map tensors to files of its own folder; {index} does not")
            parts = sorted({folder / part for part in names})
            missing = [part.name for part in parts if not part.exists()]
            if missing:
                raise UsageError(f"model must have all its weights; {folder} lacks {', '.join(missing)}")
            return parts
    raise UsageError(f"model folder must hold weights ({' or '.join(WEIGHT_FILES)}); {folder} has none")


def fingerprint(folder: Path) -> str:
    """A hash of a model's weights that is independent of their folder and of sharding.

    Tensors are hashed in the order of their names (name, type, shape, bytes); `.bin` files by their bytes.
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
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "numpy"):
            pass
    except SafetensorError as error:
        message = f"weights must be a whole safetensors file; {file} is damaged or cut short: {first_line(error)}"
        raise UsageError(message) from error
    with file.open("rb") as stream:
        tensors: dict[str, Any] = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    tensors.pop("__metadata__", None)
    return tensors


class ModelSize(NamedTuple):
    """Folder of a model, bytes of its weights, and number of parameters: half the bytes if the format does not tell."""

    folder: Path
    size: int
    parameters: int


def model_size(model: str, revision: str | None = None) -> ModelSize | None:
    """The size of a model; None for a hub id whose weights are not on this machine, and for one behind an API."""
    if model.startswith("api:"):
        return None
    local = model in EMBEDDED or model.startswith((".", "/", "~")) or Path(model).is_dir() or model.count("/") > 1
    try:
        folder = locate(model, revision)[0] if local else _snapshot(model, revision, "", local=True)
        files = weight_files(folder)
    except Exception:  # whatever is wrong with a hub id, the download reports it
        if local:
            raise
        return None
    size = sum(file.stat().st_size for file in files)
    count = size // 2
    if files[0].suffix == ".safetensors":
        count = sum(math.prod(entry["shape"]) for file in files for entry in _header(file).values())
    return ModelSize(folder, size, count)


class DataFile(NamedTuple):
    """A file on disk or of a dataset on the hub: path, or address with the commit, and bytes."""

    url: str
    size: int

    def open(self, *, whole: bool) -> Any:
        """Open the file; on the hub `whole` reads it in one request, without seeking, else in pieces on demand."""
        if not self.url.startswith("hf:"):
            return Path(self.url).open("rb")
        from huggingface_hub import HfFileSystem

        return HfFileSystem().open(self.url, "rb", **({"block_size": 0} if whole else {}))


def data_files(place: str) -> list[DataFile]:
    """A file on disk, or the dataset files that a URL names, sorted, at the commit that its revision is now.

    The URL is hf://datasets/OWNER/NAME[@REVISION]/PATH; * in PATH matches any name, ** across folders.
    """
    if not place.startswith("hf:"):
        if not Path(place).is_file():
            raise UsageError(f"corpus must be files that exist; there is no file {place}")
        return [DataFile(place, Path(place).stat().st_size)]
    from huggingface_hub import HfApi, HfFileSystem

    parts = _DATA_FILE.fullmatch(place)
    if not parts:
        raise UsageError(f"a file on the hub must be given as {DATASETS}OWNER/NAME[@REVISION]/PATH; got {place}")
    name, revision, path = parts.groups()
    if not hub_reachable():
        raise UsageError(f"the hub must be within reach for {place}; it is not: go online, or give local files")
    try:
        commit = HfApi().dataset_info(name, revision=revision).sha
        entries: Any = HfFileSystem().glob(f"{DATASETS}{name}@{commit}/{path}", detail=True)  # path -> information
    except Exception as error:  # the HTTP client of the hub library, and so its errors, differ by version
        raise UsageError(f"dataset {name} must be on the hub and open to you; {first_line(error)}") from error
    files = [DataFile(f"hf://{p}", int(info["size"])) for p, info in sorted(entries.items()) if info["type"] == "file"]
    if not files:
        raise UsageError(f"dataset {name} must have files {path}; it has none of that name at commit {commit}")
    return files


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for a message of one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
