"""The registry: adapters under a name, numbered, the best of them called `champion`."""

import math
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from fsd.errors import UsageError
from fsd.tracking.runs import Run
from fsd.tracking.store import Store, load_mlflow, quiet

CHAMPION = "champion"
SCORE = "validation_score"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# What a server of the model needs. Not this library: no package index knows it, and a name that is not ours
# there must not be installed in its place.
_REQUIREMENTS = ("mlflow", "numpy", "pandas", "peft", "safetensors", "torch", "transformers")
# What whoever loads or serves a version may set by `model_config` or MLFLOW_PYFUNC_INFERENCE_CONFIG; MLflow hands on
# no setting that was not named when the version was made. It logs them as settings of the run, hence the prefix.
# None is what the run had.
_SETTINGS = {"serving_model": None, "serving_device": "auto", "serving_dtype": None}
_FPR = 0.05


@dataclass(frozen=True)
class Version:
    """A version of a registered model.

    Attributes:
        name: of the registered model, `fsd-<domain>`.
        number: of the version, from 1.
        run_id: the run that made it.
        tags: base model, revision, method, cutoff, detector settings, validation_score.
        aliases: `champion`, if it is the best one.
    """

    name: str
    number: int
    run_id: str
    tags: Mapping[str, str]
    aliases: tuple[str, ...]

    @property
    def uri(self) -> str:
        """Names this version for good, unlike an alias."""
        return f"models:/{self.name}/{self.number}"


def register(
    run: Run,
    name: str,
    adapter: Path,
    code: Path,
    *,
    validation_score: float,
    files: Mapping[str, str | Path] | None = None,
    tags: Mapping[str, object] | None = None,
) -> Version:
    """Make the adapter of the open run a new version of a registered model.

    The adapter becomes the artifact `adapter/` of the run, and together with the files a model that MLflow can
    download, load and serve. The version is `champion` if no other READY version of that name has a higher
    validation score; of equals the newest is. Only a complete version is ever registered.

    Args:
        run: must be open.
        name: of the registered model: letters, digits, `.`, `_` and `-`.
        adapter: folder with adapter_config.json and *.safetensors; other files in it but JSON stay behind.
        code: Python file that calls `mlflow.models.set_model`. The model's `context.artifacts["adapter"]` is the
            adapter's folder; the files lie beside it. `context.model_config` holds serving_model, serving_device and
            serving_dtype, `params` the false-positive rate `fpr`.
        validation_score: to be compared within the name; NaN ranks last.
        files: name → path or text of what travels with the adapter: calibration.json.
        tags: of the version.

    Raises:
        UsageError: for a bad name, an incomplete adapter, or missing files.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"a registered model's name must be letters, digits, . _ or -; got {name!r}")
    if not code.is_file():
        raise UsageError(f"the model's code must be a file; got {str(code)!r}")
    with tempfile.TemporaryDirectory(prefix="fsd-") as folder:
        artifacts = _stage(Path(folder), adapter, files or {})
        run.log_folder(artifacts["adapter"], "adapter")
        model_id = _log_model(run, artifacts, code)
    labels = {key: str(value) for key, value in (tags or {}).items()} | {SCORE: repr(float(validation_score))}
    with run.store.lock():
        number = _create_version(run, name, model_id, labels)
        best = _crown(run.store, name)
    run.store.relativise()
    return Version(name, number, run.id, labels, (CHAMPION,) if best == number else ())


def _stage(folder: Path, adapter: Path, files: Mapping[str, str | Path]) -> dict[str, Path]:
    """Copy what travels into one folder: nothing but safetensors and JSON of the adapter, then the files."""
    kept = [p for p in adapter.glob("*") if p.suffix in (".safetensors", ".json")]
    if "adapter_config.json" not in {p.name for p in kept} or ".safetensors" not in {p.suffix for p in kept}:
        raise UsageError(f"an adapter must hold adapter_config.json and *.safetensors; {str(adapter)!r} does not")
    artifacts = {"adapter": folder / "adapter"}
    artifacts["adapter"].mkdir()
    for path in kept:
        shutil.copyfile(path, artifacts["adapter"] / path.name)
    for name, content in files.items():
        artifacts[name] = folder / name
        if isinstance(content, str):
            artifacts[name].write_text(content, encoding="utf-8")
        elif content.is_file():
            shutil.copyfile(content, artifacts[name])
        else:
            raise UsageError(f"{name} must be a file to travel with the adapter; got {str(content)!r}")
    return artifacts


def _log_model(run: Run, artifacts: Mapping[str, Path], code: Path) -> str:
    mlflow = load_mlflow()
    with quiet():
        from mlflow.models import ModelSignature
        from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    active = mlflow.active_run()
    if active is None or active.info.run_id != run.id:
        raise ValueError("register must be called inside the run's own `with` block")
    columns = {"score": "double", "p_value": "double", "verdict": "string", "warning": "string"}
    signature = ModelSignature(
        inputs=Schema([ColSpec("string", "text")]),
        outputs=Schema([ColSpec(kind, name) for name, kind in columns.items()]),
        params=ParamSchema([ParamSpec("fpr", "double", _FPR)]),
    )
    with quiet():
        logged = mlflow.pyfunc.log_model(
            name="detective",
            python_model=str(code),
            artifacts={key: str(path) for key, path in artifacts.items()},
            signature=signature,
            model_config=_SETTINGS,
            # the build of torch ("+cpu") is the machine's own affair
            pip_requirements=[f"{package}=={installed(package).split('+')[0]}" for package in _REQUIREMENTS],
        )
    return str(logged.model_id)


def _create_version(run: Run, name: str, model_id: str, tags: Mapping[str, str]) -> int:
    from mlflow.exceptions import MlflowException

    client = run.store.client
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    made = client.create_model_version(name, f"models:/{model_id}", run.id, tags=dict(tags), model_id=model_id)
    return int(made.version)


def _crown(store: Store, name: str) -> int:
    """Point `champion` at the best READY version; one write, and none if it points there already."""
    client = store.client
    ready = [v for v in client.search_model_versions(f"name='{name}'") if v.status == "READY"]
    best = max(ready, key=lambda v: (_score(v.tags), int(v.version)))
    if str(client.get_registered_model(name).aliases.get(CHAMPION)) != str(best.version):
        client.set_registered_model_alias(name, CHAMPION, best.version)
    return int(best.version)


def _score(tags: Mapping[str, Any]) -> float:
    try:
        score = float(tags[SCORE])
    except (KeyError, ValueError):  # a version that someone registered by hand
        return -math.inf
    return -math.inf if math.isnan(score) else score
