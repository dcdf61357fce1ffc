"""Models on disk or on the Hugging Face hub: their folders and weights."""

import json
import math
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import xxhash

from fsd.config import API
from fsd.errors import UsageError, first_line, quoted, refusing
from fsd.files import JSON, check_regular, digest, from_json, read_bytes
from fsd.plugs import first

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
# Names of one-file weights, the preferred one first; for sharded weights, `<name>.index.json` lists the parts.
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
# Bytes of a configuration or an index of weights.
LARGEST_JSON = 2**28
CONTEXTS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
"""Numbers of a configuration that may tell how many tokens the model reads."""
# Seconds after which a hub that does not answer is out of reach.
PATIENCE = 3.0
FLOAT32 = 4
"""Bytes of a weight."""
REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def default_folder(folder: str | None = None) -> Path:
    """The folder, else $FSD_CACHE, else `fsd` in the user's cache folder: numbers depend on no checkout and run.

    A UsageError for an address, of which a path would make folders.
    """
    folder = folder or os.environ.get("FSD_CACHE")
    if folder:
        if "://" in folder:
            raise UsageError(f"cache must be a folder on this machine; got {quoted(folder)}")
        return Path(folder).expanduser()
    # The user of a container may have none.
    with refusing("the cache of a user without a home must be in FSD_CACHE, or --cache none; ", RuntimeError):
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fsd"


def check_memory(model: str, needed: float, free: float, memory: str, advice: str) -> None:
    """Refuse weights, in bytes, that the free part of a memory cannot hold; the advice says what it can."""
    if needed > free:
        raise UsageError(
            f"model {model!r} must fit the {memory}; its weights take {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB "
            f"are free: take {advice}"
        )


class WeightsFile(NamedTuple):
    """A model in one file, which an extension turns into a folder, once for each content.

    `header()` tells its number of `parameters`, and the `revision` that stands in reports in place of a commit.
    `converted(cache, weights=…)` is its folder below a cache, in float32, or with configuration and tokenizer alone.
    """

    path: Path
    header: Callable[[], Any]
    converted: Callable[..., Path]


def weights_file(model: str) -> WeightsFile | None:
    """The one file that a name of a model stands for; None if it stands for something else."""
    file: WeightsFile | None = first("weights", model)
    return file


def locate(model: str, revision: str | None = None, *, weights: bool = True) -> tuple[Path, str]:
    """The local folder of a model, downloaded or converted if necessary, and its revision, "" for a local folder.

    `weights=False` fetches configuration and tokenizer only.
    """
    from huggingface_hub.errors import LocalEntryNotFoundError

    if file := weights_file(model):
        if weights:
            import psutil

            needed = FLOAT32 * file.header().parameters
            free = psutil.virtual_memory().available
            # It is converted in full, whatever it is computed with.
            check_memory(model, needed, free, "memory in float32", "a smaller model")
        return file.converted(default_folder(), weights=weights), file.header().revision
    folder = _local(model)
    if folder:
        return folder, ""
    local = not hub_reachable()
    try:
        folder = _snapshot(model, revision, "*.safetensors" if weights else "", local=local)
        # Pickled weights only where there are no others: many models have both, of gigabytes each.
        if weights and not any(folder.glob("*.safetensors")):
            folder = _snapshot(model, revision, "*.bin", local=local)
    except LocalEntryNotFoundError as error:
        raise UsageError(
            f"model {model!r} must be a folder, or a hub id with network or in the local cache; "
            "the hub cannot be reached: give a local folder, or --model embedded"
        ) from error
    except Exception as error:
        # The HTTP client of the hub library, and so its errors, differ by version.
        raise UsageError(f"model {model!r} must be a folder or a hub id; {first_line(error)}") from error
    _check_folder(model, folder)
    return folder, folder.name


def adapter_folder(name: str) -> Path | None:
    """The folder of an adapter on the hub, OWNER/NAME or OWNER/NAME@REVISION, downloaded if necessary; else None."""
    repository, _, revision = name.partition("@")
    if not REPOSITORY.fullmatch(repository):
        return None
    must = f"adapter must be a folder or on the hub, and open to you; there is no folder {name}, and the hub says: "
    with refusing(must):
        return _snapshot(repository, revision or None, "adapter_model.*", local=not hub_reachable())


def check_located(model: str, revision: str | None = None) -> None:
    """Refuse a model that `locate` would refuse, without downloading, converting or loading one."""
    check_tokenizer_located(model, revision)
    if model_size(model, revision) is None and not hub_reachable():
        locate(model, revision)


def check_tokenizer_located(model: str, revision: str | None = None) -> None:
    """Refuse a model whose tokenizer could not be found, without a download."""
    if weights_file(model) or _local(model):
        return
    # A hub id that is not here is downloaded later; without a hub there is no later.
    if not hub_reachable():
        locate(model, revision, weights=False)


def hub_id(model: str) -> str:
    """The hub id of a model, also behind an API; that of a folder is in its configuration, or "" if it is not."""
    if model.startswith(API):
        return model.removeprefix(API)
    folder = _local(model)
    if folder is None:
        return model
    return str(_json_object(folder / "config.json", "configuration").get("_name_or_path", ""))


def _local(model: str) -> Path | None:
    """The folder of a model on this machine; None for a hub id."""
    if model in EMBEDDED:
        return EMBEDDED[model]
    if model.startswith(API):
        raise UsageError(f"model must have local weights or a hub id; {model} can only be scored: fsd score")
    folder = Path(model).expanduser()
    if model.strip() and folder.is_dir():
        _check_folder(model, folder)
        return folder
    if not model.strip() or model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise UsageError(f"model must be embedded, a folder or a hub id; there is no folder {model!r}")
    return None


def _check_folder(model: str, folder: Path) -> None:
    if (folder / "adapter_config.json").exists():
        raise UsageError(f"model must be a base model; {model} is an adapter: give it to --adapter")
    file = folder / "config.json"
    if not file.exists():
        raise UsageError(f"model folder must hold config.json and weights; {model} has no config.json")
    config = _json_object(file, "configuration")
    # These would be loaded in place of those that the fingerprint is of.
    if "transformers_weights" in config:
        raise UsageError(f"model folder must hold its weights under their usual names; {file} names others")
    if _names_kernel("", config):
        raise UsageError(f"model must run without code from the hub; {file} names a kernel there")


def _names_kernel(key: str, value: Any) -> bool:
    """Whether an entry of a configuration is an implementation of a layer that transformers would download and run."""
    if isinstance(value, dict):
        return any(_names_kernel(f"{key}.{name}", inner) for name, inner in value.items())
    return "_implementation" in key and isinstance(value, str) and "/" in value


def _json_object(file: Path, kind: str) -> JSON:
    must = f"{kind} must be a JSON object; {file} is none"
    return from_json(JSON, read_bytes(file, must, largest=LARGEST_JSON), must)


def _snapshot(model: str, revision: str | None, pattern: str, *, local: bool) -> Path:
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            model,
            revision=revision,
            allow_patterns=["*.json", "*.jinja", "*.model", "*.txt", pattern],
            # Folders hold other formats, such as ONNX; `consolidated` is the same model once more.
            ignore_patterns=["*/*", "consolidated*"],
            local_files_only=local,
        )
    )


def hub_reachable() -> bool:
    """Whether HF_HUB_OFFLINE is not set and the hub answers within some seconds; its library would try for a minute."""
    import requests
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        # The page itself is not needed, and any answer will do.
        requests.head(constants.ENDPOINT, timeout=PATIENCE, proxies=direct(constants.ENDPOINT))
    except requests.RequestException:
        return False
    return True


def direct(url: str) -> dict[str, str]:
    """The settings of `requests` by which a server of this machine is asked without a proxy, which cannot reach it."""
    host = urlsplit(url).hostname or ""
    if host in ("localhost", "::1", "0.0.0.0") or host.startswith("127."):
        return {"no_proxy": host}
    return {}


def weight_files(folder: Path) -> list[Path]:
    """The files of a model's weights: safetensors before `.bin`, one file or the parts of an index."""
    for name in WEIGHT_FILES:
        file = folder / name
        index = folder / f"{name}.index.json"
        # transformers prefers one file to an index as well.
        if file.exists():
            files = [file]
        elif index.exists():
            files = _parts(index)
        else:
            continue
        for file in files:
            check_regular(file, f"weights must be files; {file} is none", largest=sys.maxsize)
        return files
    raise UsageError(f"model folder must hold weights ({' or '.join(WEIGHT_FILES)}); {folder} has none")


def _parts(index: Path) -> list[Path]:
    """The files that an index of weights lists, sorted."""
    weight_map = _json_object(index, "index of weights").get("weight_map")
    names: set[str] = set()
    if isinstance(weight_map, dict):
        names.update(map(str, weight_map.values()))
    # An index may name files elsewhere on this machine.
    if not names or any(name != Path(name).name for name in names):
        raise UsageError(f"index of weights must map tensors to files of its own folder; {index} does not")
    files = [index.parent / name for name in sorted(names)]
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise UsageError(f"model must have all its weights; {index.parent} lacks {', '.join(missing)}")
    return files


def fingerprint(folder: Path) -> str:
    """A hash of a model's weights, independent of folder and sharding: of tensors by name, or of `.bin` files."""
    states = []
    for file in weight_files(folder):
        status = file.stat()
        states.append((file, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return _fingerprint(tuple(states))


@cache
def _fingerprint(states: tuple[tuple[Path, int, int, int], ...]) -> str:
    """The hash of weights whose files have not changed since: a check and the work that follows both ask for it."""
    import numpy as np

    total = xxhash.xxh3_128()
    files = [state[0] for state in states]
    if files[0].suffix == ".bin":
        for file in files:
            total.update(np.memmap(file, np.uint8, "r").data)
        return total.hexdigest()
    tensors = {}
    for file in files:
        for name, entry in _header(file).items():
            tensors[name] = (file, entry)
    for name, (file, entry) in sorted(tensors.items()):
        # Mapped, not read: weights may be larger than the memory. The header stands before them with its length.
        raw = np.memmap(file, np.uint8, "r")
        weights = raw[8 + int.from_bytes(raw[:8].tobytes(), "little") :]
        begin, end = entry["data_offsets"]
        total.update(f"{name} {entry['dtype']} {entry['shape']}".encode())
        total.update(weights[begin:end].data)
    return total.hexdigest()


def check_other_weights(flag: str, model: str, compared: str, revision: str | None = None) -> None:
    """Refuse a model to compare `compared` with, named by a flag, that has the same weights under whichever name."""
    size = model_size(model)
    compared_size = model_size(compared, revision)
    # A hub id that is not here yet is known by its name alone.
    same = model == compared and revision is None
    # Hashes of models that differ in size would be read for nothing.
    if size and compared_size:
        same = size[1:] == compared_size[1:] and _weights_hash(model, size) == _weights_hash(compared, compared_size)
    if same:
        raise UsageError(f"{flag} must be a model with other weights than {compared}; those of {model} are the same")


def _weights_hash(model: str, size: "ModelSize") -> str:
    """The hash of a file, or of tensors: a file and the folder that it was made of are rounded differently."""
    file = weights_file(model)
    return digest(file.path) if file else fingerprint(size.folder)


def _header(file: Path) -> JSON:
    """Name → dtype, shape and data_offsets of each tensor of a safetensors file (8 bytes of length, then JSON)."""
    from safetensors import SafetensorError, safe_open

    # The library checks the whole header, so that what follows may trust its lengths and offsets.
    must = f"weights must be a whole safetensors file; {file} is damaged or cut short: "
    with refusing(must, SafetensorError):
        safe_open(file, "numpy")
    with file.open("rb") as stream:
        tensors: JSON = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    tensors.pop("__metadata__", None)
    return tensors


class ModelSize(NamedTuple):
    """Folder of a model, bytes of its weights, and number of parameters: half the bytes if the format does not tell."""

    folder: Path
    size: int
    parameters: int


def model_size(model: str, revision: str | None = None) -> ModelSize | None:
    """The size of a model; None for a hub id whose weights are not on this machine, and for one behind an API."""
    if model.startswith(API):
        return None
    single = weights_file(model)
    if single:
        return ModelSize(single.path.parent, single.path.stat().st_size, single.header().parameters)
    folder = _local(model)
    if folder:
        files = weight_files(folder)
    else:
        try:
            folder = _snapshot(model, revision, "", local=True)
            files = weight_files(folder)
        except Exception:
            # Whatever is wrong with a hub id, the download reports it.
            return None
    size = sum(file.stat().st_size for file in files)
    if files[0].suffix == ".bin":
        # Pickles are not opened to be counted; most of them have two bytes a parameter.
        return ModelSize(folder, size, size // 2)
    count = 0
    for file in files:
        for entry in _header(file).values():
            count += math.prod(entry["shape"])
    return ModelSize(folder, size, count)
