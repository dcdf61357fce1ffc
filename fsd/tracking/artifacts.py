"""Getting an adapter, and what travels with it, by its address: a registered model, a run or a folder.

Addresses: `models:/fsd-arxiv@champion`, `models:/fsd-arxiv/3`, `models:/fsd-arxiv/latest`, `runs:/<id>`,
`runs:/<id>/<folder>`, or the path of a folder. What comes from a store is a copy, removed when Python ends.
"""

import atexit
import functools
import re
import tempfile
from pathlib import Path
from typing import Any

from fsd.errors import UsageError
from fsd.tracking.registry import Version
from fsd.tracking.store import Store, load_mlflow, open_store, quiet

_CONFIG = "adapter_config.json"
_MODEL = re.compile(r"models:/(?P<name>[^/@]+)(@(?P<alias>[^/@]+)|/(?P<number>\d+|latest))")
_RUN = re.compile(r"runs:/(?P<id>[^/]+)(/(?P<folder>.+?))?/?")


def fetch_adapter(uri: str) -> Path:
    """The folder that holds adapter_config.json; not to be changed where `uri` is a folder itself.

    Raises:
        UsageError: if there is no such thing or no adapter in it; the message names what there is.
    """
    folder = _fetch(uri, "adapter")
    for candidate in (folder, folder / "adapter"):
        if (candidate / _CONFIG).is_file():
            return candidate
    there = ", ".join(sorted(p.name for p in folder.iterdir())) or "nothing"
    raise UsageError(f"an adapter's folder must hold {_CONFIG}; {uri} holds {there}")


def fetch_model_file(uri: str, name: str) -> Path | None:
    """A file that travels with an adapter, `calibration.json` say; None if there is none.

    It lies beside the adapter in a registered model, at the root of a run, and in the folder or the folder
    above it.

    Raises:
        UsageError: if there is no such model, version, run or folder.
    """
    folder = _fetch(uri, name)
    places = [folder / name]
    if (folder / _CONFIG).is_file():
        places.append(folder.parent / name)
    return next((path for path in places if path.is_file()), None)


def fetch_artifact(run_id: str, path: str) -> Path:
    """A copy of an artifact of a run: a file, or a folder.

    Raises:
        UsageError: if there is no such run or artifact.
    """
    store = open_store()
    names = _run_names(store, run_id, str(Path(path).parent) if "/" in path else None)
    if path not in names:
        raise UsageError(f"run {run_id} must hold {path!r}; it holds {', '.join(names) or 'nothing'}")
    return _download(store.uri, f"runs:/{run_id}/{path}")


def version_info(uri: str) -> Version | None:
    """What the registry knows of `models:/...`; None for an address that is no registered model's.

    Raises:
        UsageError: if there is no such model, version or alias; the message names those that there are.
    """
    if not uri.startswith("models:"):
        return None
    parts = _MODEL.fullmatch(uri)
    if not parts:
        raise UsageError(f"a model's address must be models:/name@alias or models:/name/version; got {uri!r}")
    client = open_store().client
    name, alias = parts["name"], parts["alias"]
    names = sorted(m.name for m in client.search_registered_models())
    if name not in names:
        raise UsageError(f"{uri} must name a registered model; there are {', '.join(names) or 'none'}")
    aliases = {key: int(number) for key, number in client.get_registered_model(name).aliases.items()}
    versions = {int(v.version): v for v in client.search_model_versions(f"name='{name}'")}
    if alias:
        number = aliases.get(alias, 0)
    else:
        number = max(versions, default=0) if parts["number"] == "latest" else int(parts["number"])
    if number not in versions:
        raise UsageError(
            f"{uri} must name a version or alias of {name}; there are "
            f"versions {', '.join(map(str, sorted(versions))) or 'none'} and "
            f"aliases {', '.join(f'{key} ({n})' for key, n in sorted(aliases.items())) or 'none'}"
        )
    found = versions[number]
    return Version(name, number, found.run_id, found.tags, tuple(k for k, n in aliases.items() if n == number))


def _fetch(uri: str, wanted: str) -> Path:
    """A folder in which `wanted` lies if it exists at that address."""
    version = version_info(uri)
    if version:
        return _download_version(open_store().uri, version.uri, version.run_id)
    if uri.startswith("runs:"):
        return _fetch_run(uri, wanted)
    folder = Path(uri)
    if not folder.is_dir():
        raise UsageError(
            f"an adapter must be models:/name@alias, models:/name/version, runs:/id or a folder; "
            f"got {uri!r}, and there is no such folder"
        )
    return folder


def _fetch_run(uri: str, wanted: str) -> Path:
    parts = _RUN.fullmatch(uri)
    if not parts:
        raise UsageError(f"a run's address must be runs:/id or runs:/id/folder; got {uri!r}")
    store, run_id = open_store(), parts["id"]
    names = _run_names(store, run_id)
    folder = parts["folder"] or "adapter"
    if wanted != "adapter":
        # what travels with the adapter lies at the root of the run
        if wanted not in names:
            return _scratch()
        return _download(store.uri, f"runs:/{run_id}/{wanted}").parent
    if folder.split("/")[0] not in names:
        raise UsageError(f"run {run_id} must hold {folder}/; it holds {', '.join(names) or 'nothing'}")
    return _download(store.uri, f"runs:/{run_id}/{folder}")


def _run_names(store: Store, run_id: str, folder: str | None = None) -> list[str]:
    from mlflow.exceptions import MlflowException

    try:
        return [entry.path for entry in store.client.list_artifacts(run_id, folder)]
    except MlflowException as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"runs:/ must name a run of {store.uri}; {run_id!r} is none ({reason})") from error


def _scratch() -> Path:
    """A new empty folder, removed when Python ends."""
    folder: Any = tempfile.TemporaryDirectory(prefix="fsd-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


@functools.lru_cache(maxsize=32)
def _download_version(tracking_uri: str, uri: str, run_id: str) -> Path:
    """A copy of a version's files; its run tells apart versions that were deleted and numbered anew."""
    tree = _download(tracking_uri, uri)
    # `register` puts them here; a version that someone registered by hand may hold them at its root
    return tree / "artifacts" if (tree / "artifacts").is_dir() else tree


def _download(tracking_uri: str, uri: str) -> Path:
    mlflow = load_mlflow()
    with quiet():
        return Path(mlflow.artifacts.download_artifacts(uri, dst_path=str(_scratch()), tracking_uri=tracking_uri))
