"""Download adapters and the files registered with them, by URI.

A URI is `models:/fsd-arxiv@champion`, `models:/fsd-arxiv/3`, `models:/fsd-arxiv/latest`, `runs:/<id>`,
`runs:/<id>/<folder>`, the path of a local folder, or a hub id. Downloads of the store are copies that are deleted when
Python exits.
"""

import atexit
import functools
import re
import tempfile
from pathlib import Path

from fsd.errors import UsageError, disk_failure, first_line
from fsd.files import CHECKSUMS, checksums, digest
from fsd.net.hub import adapter_folder
from fsd.tracking.registry import Version, base_of, version_of
from fsd.tracking.store import exists, load_mlflow, open_store, quiet

_ADAPTER_CONFIG = "adapter_config.json"
_MODEL = re.compile(r"models:/(?P<name>[^/@]+)(@(?P<alias>[^/@]+)|/(?P<number>\d+|latest))")
_RUN = re.compile(r"runs:/(?P<id>[^/]+)(/(?P<folder>.+?))?/?")


def fetch_adapter(uri: str) -> Path:
    """Folder with adapter_config.json and the weights; read-only if `uri` is a local folder."""
    version = version_info(uri)
    if version:
        folder = _download(version.uri, version.run_id)
        # `register` puts the files here; a version that was registered by hand may hold them at its root.
        if (folder / "artifacts").is_dir():
            folder /= "artifacts"
    elif uri.startswith("runs:"):
        run_id, subfolder = _parse_run(uri)
        folder = fetch_artifact(run_id, subfolder or "adapter")
    else:
        folder = Path(uri).expanduser()
        if not folder.is_dir():
            folder = adapter_folder(uri) or folder
        if not folder.is_dir():
            raise UsageError(
                f"an adapter must be models:/name@alias, models:/name/version, runs:/id, a folder or a hub id; "
                f"got {uri!r}, and there is no such folder"
            )
    return _adapter_in(folder, uri)


def _adapter_in(folder: Path, uri: str) -> Path:
    """The adapter in a folder; or that of a trainer's only checkpoint, or that peft saved under its name."""
    for candidate in (folder, folder / "adapter"):
        if (candidate / _ADAPTER_CONFIG).is_file():
            return candidate
    inner = sorted(str(file.parent) for file in folder.glob(f"*/{_ADAPTER_CONFIG}"))
    if len(inner) == 1:
        return Path(inner[0])
    names = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
    if inner:
        names = f"several, name one: {', '.join(inner)}"
    # A run or a folder may hold other things than an adapter.
    raise UsageError(
        f"an adapter's folder must hold {_ADAPTER_CONFIG}; {uri} holds {names}; a merged or fully fine-tuned model is "
        "given by --tuned (fsd adapter-audit) or --model"
    )


def fetch_model_file(uri: str, name: str) -> Path | None:
    """File saved with an adapter, checked if its checksums list it: of the run, its folder or beside; None if none."""
    adapter = fetch_adapter(uri)
    if uri.startswith("runs:"):
        run_id, _ = _parse_run(uri)
        if name not in _artifact_names(run_id):
            return None
        path = fetch_artifact(run_id, name)
    else:
        path = adapter / name
        if not path.is_file():
            path = adapter.parent / name
        if not path.is_file():
            return None
    # Verdicts rest on these files: one that somebody has changed would silently change them.
    expected = (checksums(adapter) or {}).get(f"../{name}")
    if expected and expected != digest(path):
        raise UsageError(
            f"{name} must be as it was saved with its adapter; it differs from its checksum in {adapter / CHECKSUMS}"
        )
    return path


def fetch_artifact(run_id: str, path: str) -> Path:
    """Copy of an artifact, a file or a folder, of a run."""
    # MLflow lists one folder at a time.
    names = _artifact_names(run_id, str(Path(path).parent) if "/" in path else None)
    if path not in names:
        raise UsageError(f"run {run_id} must hold {path!r}; it holds {', '.join(names) or 'nothing'}")
    return _download(f"runs:/{run_id}/{path}", run_id)


def fetch_run(uri: str) -> tuple[str, Path]:
    """The id of a finished run, given as such or as runs:/id, and a copy of the folder of its artifacts."""
    run_id = uri
    if uri.startswith("runs:"):
        run_id, _ = _parse_run(uri)
    names = _artifact_names(run_id)
    status = open_store().client.get_run(run_id).info.status
    if status != "FINISHED":
        raise UsageError(f"the run must be finished; {run_id} is {status.lower()}")
    if not names:
        raise UsageError(f"the run must hold files; {run_id} holds none")
    return run_id, _download(f"runs:/{run_id}/", run_id)


def version_info(uri: str) -> Version | None:
    """Version of the registered model at `models:/...`; None for a URI of another kind."""
    if not uri.startswith("models:"):
        return None
    parts = _MODEL.fullmatch(uri)
    if not parts:
        raise UsageError(f"a model's address must be models:/name@alias or models:/name/version; got {uri!r}")
    from mlflow.exceptions import MlflowException

    if not exists():
        # To open it would make one.
        raise UsageError(f"{uri} must name a registered model; there are none, since there is no store")
    client = open_store().client
    name = parts["name"]
    try:
        if parts["alias"]:
            return version_of(client.get_model_version_by_alias(name, parts["alias"]))
        number = parts["number"]
        if number == "latest":
            versions = client.search_model_versions(f"name = '{name}'")
            number = str(max((int(version.version) for version in versions), default=0))
        return version_of(client.get_model_version(name, number))
    except MlflowException as error:
        # There is none of a name that MLflow allows nobody.
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise
        # MLflow's own errors do not say what there is.
        listed = []
        for model in client.search_registered_models():
            aliases = [f"@{alias} ({version})" for alias, version in sorted(model.aliases.items())]
            listed.append(" ".join([model.name, *aliases]))
        names = ", ".join(listed) or "none"
        raise UsageError(
            f"{uri} must name a registered model; there are {names}; {first_line(error).rstrip('.')}"
        ) from error


def check_one_base(uri: str) -> None:
    """Refuse an alias of a registered model whose versions have several bases: it does not tell of which it is."""
    version = version_info(uri)
    if version is None or "@" not in uri:
        return
    meant = f"{version.uri}, of {version.tags.get('base_model')}"
    for entry in open_store().client.search_model_versions(f"name='{version.name}'"):
        if base_of(entry.tags) != base_of(version.tags):
            another = f"models:/{version.name}/{entry.version} is of {entry.tags.get('base_model')}"
            raise UsageError(f"{uri} must be of the only base model; it is {meant}, and {another}: name the version")


def _parse_run(uri: str) -> tuple[str, str | None]:
    parts = _RUN.fullmatch(uri)
    if not parts:
        raise UsageError(f"a run's address must be runs:/id or runs:/id/folder; got {uri!r}")
    return parts["id"], parts["folder"]


def _artifact_names(run_id: str, folder: str | None = None) -> list[str]:
    from mlflow.exceptions import MlflowException

    if not exists():
        raise UsageError(f"runs:/ must name a run of the tracking store; there is no store, and no run {run_id!r}")
    store = open_store()
    try:
        return [entry.path for entry in store.client.list_artifacts(run_id, folder)]
    except MlflowException as error:
        raise UsageError(f"runs:/ must name a run of {store.uri}; {run_id!r} is none ({first_line(error)})") from error


def _download(uri: str, run_id: str) -> Path:
    return _downloaded(open_store().uri, uri, run_id, tempfile.gettempdir())


@functools.lru_cache(maxsize=32)
def _downloaded(tracking_uri: str, uri: str, run_id: str, parent: str) -> Path:
    # The key has the run because the number of a deleted version may be given again, and the folder for temporary
    # files because each command has its own, which is deleted with it.
    folder = tempfile.TemporaryDirectory(prefix="fsd-", dir=parent)
    atexit.register(folder.cleanup)
    mlflow = load_mlflow()
    try:
        with quiet():
            return Path(mlflow.artifacts.download_artifacts(uri, dst_path=folder.name, tracking_uri=tracking_uri))
    except Exception as error:
        # Any error: artifact stores in the cloud have classes of their own. MLflow's own ends in the cause.
        if disk_failure(error):
            raise
        reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        raise UsageError(f"files of {uri} must be where the tracking store has them; {reason[0]}") from error
