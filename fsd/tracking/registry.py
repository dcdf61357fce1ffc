"""Model registry: numbered versions of adapters under a name, one of them with the alias `champion`."""

import hashlib
import math
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version as installed
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fsd.errors import UsageError, without_credentials
from fsd.tracking.runs import Run
from fsd.tracking.store import Store, load_mlflow, quiet

CHAMPION = "champion"
SCORE = "validation_score"
COMPARED = ("benchmark", "base_fingerprint", "judging")
"""Tags that two versions must share for their validation scores to be comparable: the validation and test texts with
their labels, the base model, and the settings of judging."""
MODEL_NAME = "membership-detector"
"""Name of the logged model in the user interface; versions of earlier releases have the name "detective"."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
CHECKSUMS = "SHA256SUMS"
"""File in the adapter's folder with the checksums of the adapter and of the files saved with it, as of `sha256sum`."""
# Packages that a server of the model needs. This library is not among them: it is on no package index, and a package of
# the same name must not be installed in its place.
_REQUIREMENTS = ("mlflow", "numpy", "pandas", "peft", "safetensors", "torch", "transformers")
# Settings that can be changed when a version is loaded or served, by `model_config` or MLFLOW_PYFUNC_INFERENCE_CONFIG.
# MLflow passes on only those that are named when the version is logged, and logs them as params of the run, hence the
# prefix. None means as in the run.
_SETTINGS = {"serving_model": None, "serving_device": "auto", "serving_dtype": None}
_FPR = 0.05
_FDR = 0.1
_EXAMPLE = "The text to be judged, as long as those of the benchmark."


@dataclass(frozen=True)
class Version:
    """A version of a registered model.

    Attributes:
        name: name of the registered model, `fsd-<domain>`.
        number: number of the version, from 1.
        run_id: id of the run that registered it.
        tags: base model, revision, method, cutoff, detector settings, validation_score.
        aliases: `champion` if it is the best version.
        champion_stays: why the alias `champion` was not moved to this version; empty if it was, or if the version was
            not registered just now.
    """

    name: str
    number: int
    run_id: str
    tags: Mapping[str, str]
    aliases: tuple[str, ...]
    champion_stays: str = field(default="", compare=False)

    @property
    def uri(self) -> str:
        """Address of exactly this version; an alias may move to another one."""
        return f"models:/{self.name}/{self.number}"


def register(  # noqa: PLR0913 - each argument is a part of the version, most of them with a default
    run: Run,
    name: str,
    adapter: Path,
    code: Path,
    *,
    validation_score: float,
    files: Mapping[str, str | Path] | None = None,
    tags: Mapping[str, object] | None = None,
    barred: str = "",
    once: Sequence[str] = (),
) -> Version | None:
    """Register the adapter of an open run as a new version of a registered model.

    The adapter becomes the artifact `adapter/` of the run and, together with the files, a pyfunc model that MLflow can
    download, load and serve. Only a complete version is ever registered. It becomes `champion` (see `move_champion`) if
    there is none, or if its validation score is at least as high as that of the champion and the two are comparable.

    Args:
        run: the open run.
        name: name of the registered model: letters, digits, `.`, `_` and `-`.
        adapter: folder with adapter_config.json and *.safetensors; only its JSON and safetensors files and their
            checksums are copied.
        code: Python file that calls `mlflow.models.set_model`. The model's `context.artifacts["adapter"]` is the
            adapter's folder, and the files are next to it. `context.model_config` holds serving_model, serving_device
            and serving_dtype; `params` holds the false-positive rate `fpr` and the false discovery rate `fdr`.
        validation_score: score by which versions of that name are compared; NaN ranks last.
        files: file name → path or text of each file to save with the adapter, such as calibration.json.
        tags: tags of the version; those in `COMPARED` make it comparable with others.
        barred: why the version must not become champion; empty if it may.
        once: tags in which no two versions agree: one that exists already is returned in place of a new one.

    Returns:
        The version; None if it could not be stored, which the run notes.

    Raises:
        UsageError: if the name is invalid, the adapter is incomplete, or a file is missing.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"a registered model's name must be letters, digits, . _ or -; got {name!r}")
    if not code.is_file():
        raise UsageError(f"the model's code must be a file; got {str(code)!r}")
    active = load_mlflow().active_run()
    if active is None or active.info.run_id != run.id:
        raise ValueError("register must be called inside the `with` block of its run")
    labels = {key: without_credentials(str(value)) for key, value in (tags or {}).items()} | {
        SCORE: repr(float(validation_score))
    }
    versions: list[Version] = []

    def store() -> None:
        with tempfile.TemporaryDirectory(prefix="fsd-") as folder:
            artifacts = _stage(Path(folder), adapter, files or {})
            run.store.client.log_artifacts(run.id, str(artifacts["adapter"]), "adapter")
            model_id = _log_model(run, artifacts, code)
        with run.store.lock():
            present = _present(run.store, name, {tag: labels[tag] for tag in once})
            if present is None:
                number = _create_version(run, name, model_id, labels)
                stays = move_champion(run.store, name, number, labels, barred)
                present = Version(name, number, run.id, labels, () if stays else (CHAMPION,), stays)
        run.store.relativise()
        versions.append(present)

    run.attempt("the registered adapter", store)
    return versions[0] if versions else None


def describe(run: Run, version: Version, description: str) -> None:
    """Describe a version in Markdown, and its registered model if the version is the champion."""

    def store() -> None:
        client = run.store.client
        client.update_model_version(version.name, str(version.number), description)
        if CHAMPION in version.aliases:
            client.update_registered_model(version.name, f"Champion: version {version.number}, {description}")

    run.attempt("the description of the version", store)


def _stage(folder: Path, adapter: Path, files: Mapping[str, str | Path]) -> dict[str, Path]:
    """Copy the adapter's safetensors and JSON files and the additional files into one folder, with their checksums.

    The checksums of the additional files, which lie one folder above the adapter, are added to those of the adapter.
    """
    weights = [path for path in adapter.glob("*") if path.suffix in (".safetensors", ".json") or path.name == CHECKSUMS]
    if not {"adapter_config.json", ".safetensors"} <= {part for path in weights for part in (path.name, path.suffix)}:
        raise UsageError(f"an adapter must hold adapter_config.json and *.safetensors; {str(adapter)!r} does not")
    artifacts = {"adapter": folder / "adapter"}
    artifacts["adapter"].mkdir()
    for path in weights:
        shutil.copyfile(path, artifacts["adapter"] / path.name)
    for name, content in files.items():
        artifacts[name] = folder / name
        if isinstance(content, str):
            artifacts[name].write_text(content, encoding="utf-8")
        elif content.is_file():
            shutil.copyfile(content, artifacts[name])
        else:
            raise UsageError(f"{name} must be a file to save with the adapter; got {str(content)!r}")
    sums = artifacts["adapter"] / CHECKSUMS
    if sums.is_file():
        with sums.open("a", encoding="utf-8") as file:
            file.writelines(
                f"{hashlib.sha256(artifacts[name].read_bytes()).hexdigest()}  ../{name}\n" for name in files
            )
    return artifacts


def _log_model(run: Run, artifacts: Mapping[str, Path], code: Path) -> str:
    mlflow = load_mlflow()
    with quiet():
        import pandas as pd
        from mlflow.models import Model, ModelSignature
        from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    columns = {
        "score": "double",
        "rank": "long",
        "p_value": "double",
        "verdict": "string",
        "basis": "string",
        "warning": "string",
        "selected": "boolean",
    }
    signature = ModelSignature(
        inputs=Schema([ColSpec("string", "text")]),
        outputs=Schema([ColSpec(kind, name) for name, kind in columns.items()]),
        params=ParamSchema(
            [
                ParamSpec("fpr", "double", _FPR),
                ParamSpec("fdr", "double", _FDR),
                ParamSpec("same_source", "boolean", False),
            ]
        ),
    )
    with quiet():
        # What mlflow.pyfunc.log_model calls, which would load the model and its base to score the input example:
        # `validate_serving_input` prevents that, but pyfunc refuses to pass it on.
        logged = Model.log(
            artifact_path=None,
            name=MODEL_NAME,
            flavor=SimpleNamespace(save_model=lambda validate_serving_input, **rest: mlflow.pyfunc.save_model(**rest)),
            flavor_name="python_function",
            python_model=str(code),
            artifacts={key: str(path) for key, path in artifacts.items()},
            signature=signature,
            input_example=(pd.DataFrame({"text": [_EXAMPLE]}), {"fpr": _FPR, "fdr": _FDR, "same_source": False}),
            validate_serving_input=False,
            model_config=_SETTINGS,
            # without the build of torch, such as "+cpu", which differs between machines
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


def _present(store: Store, name: str, tags: Mapping[str, str]) -> Version | None:
    """The first version of that name that carries all the tags; None without tags, or if there is none."""
    found = store.client.search_model_versions(f"name = '{name}'") if tags else []
    equal = [version for version in found if tags.items() <= version.tags.items()]
    if not equal:
        return None
    number = min(int(version.version) for version in equal)
    first = store.client.get_model_version(name, str(number))
    return Version(name, number, first.run_id, first.tags, tuple(first.aliases))


def move_champion(store: Store, name: str, number: int, tags: Mapping[str, str], barred: str = "") -> str:
    """Move the alias `champion` to a version, unless it is barred, worse than the champion or not comparable with it.

    A validation score says something about another version only on the same texts, base model and settings of judging
    (`COMPARED`). A champion that was registered without these tags keeps the alias until it is moved by hand.

    Returns:
        Why the alias was not moved, in one line; empty if it was.
    """
    client = store.client
    present = client.get_registered_model(name).aliases.get(CHAMPION)
    stays = f"champion of {name} stays version {present}" if present else f"{name} has no champion"
    if barred:
        return f"{stays}, not version {number}: {barred}"
    if present:
        champion = client.get_model_version(name, str(present)).tags
        differing = [tag for tag in COMPARED if champion.get(tag) != tags.get(tag) or not tags.get(tag)]
        if differing:
            return (
                f"{stays}: version {number} differs in {', '.join(differing)}, so their validation scores cannot be "
                "compared; set the alias in MLflow to change it"
            )
        if _score(tags) < _score(champion):
            return f"{stays}: version {number} has the lower validation score"
    client.set_registered_model_alias(name, CHAMPION, str(number))
    return ""


def _score(tags: Mapping[str, Any]) -> float:
    try:
        score = float(tags[SCORE])
    except (KeyError, ValueError):  # a version that was registered by hand
        return -math.inf
    return -math.inf if math.isnan(score) else score
