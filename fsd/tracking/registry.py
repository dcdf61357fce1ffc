"""Model registry: numbered versions of adapters under a name, one of them with the alias `champion`."""

import hashlib
import json
import math
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import requires
from importlib.metadata import version as installed
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fsd.errors import without_credentials
from fsd.files import CHECKSUMS, checksum_lines, digest
from fsd.tracking.runs import NOTE, PACKAGE, Run
from fsd.tracking.store import Store, load_mlflow, quiet

CHAMPION = "champion"
SCORE = "validation_score"
JUDGED_ON = "judged_on"
"""Tag with what two versions must share for their validation scores to be comparable, as a JSON object."""
COMPARED = ("benchmark", "base_fingerprint", "judging")
"""Its entries: the validation and test texts with their labels, the base model, and the settings of judging. Earlier
releases have tags of these names."""
CARD = "README.md"
"""The adapter's card, in its folder."""
_DIGEST, _VERSIONS = "digest", "mlflow.modelVersions"
"""Tags of a logged model: the hash of its files, and the registered versions, of which its page tells."""
# A logged model's name must hold none of these.
_NAME = str.maketrans({".": "·", "/": "-", ":": "-", "%": " ", '"': " ", "'": " "})
# Settings that can be changed when a version is loaded or served, by `model_config` or MLFLOW_PYFUNC_INFERENCE_CONFIG.
# MLflow passes on only those that are named when the version is logged. None means as in the run.
_SETTINGS = {"serving_model": None, "serving_device": "auto", "serving_dtype": None}
_PARAMS = {"fpr": 0.05, "fdr": 0.1, "same_source": False}
_COLUMNS = {
    "score": "double",
    "rank": "long",
    "p_value": "double",
    "verdict": "string",
    "basis": "string",
    "warning": "string",
    "selected": "boolean",
}


@dataclass(frozen=True)
class Version:
    """A version of a model; `champion_stays` says why the alias is not its, `present` that an equal one was there."""

    name: str
    number: int
    run_id: str
    tags: Mapping[str, str]
    aliases: tuple[str, ...]
    champion_stays: str = field(default="", compare=False)
    present: bool = field(default=False, compare=False)

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
    judged_on: Mapping[str, str] | None = None,
    barred: str = "",
    once: str = "",
    description: str = "",
    card: str = "",
    example: str = "",
) -> Version | None:
    """Register an adapter with its files as a version of a model `name`; None if it could not be stored.

    Adapter and files become artifacts of the run, and a pyfunc model that MLflow can serve by `code`. The version
    becomes `champion` as `move_champion` says, unless it is `barred` for that reason. Of equal ones, by their files or
    by `once`, there is one. Description and card are Markdown; `example` is a text of the kind to be judged.
    """
    contents = {
        file: content.encode() if isinstance(content, str) else content.read_bytes()
        for file, content in (files or {}).items()
    }
    for file, content in contents.items():
        run.log(file, content)
    sums = checksum_lines({f"../{file}": content for file, content in contents.items()})
    parts = [name, installed("fsd"), sums]
    for path in sorted(adapter.iterdir()):
        if path.suffix in (".safetensors", ".json"):
            run.log(f"adapter/{path.name}", path)
            parts.append(digest(path))
    if (adapter / CHECKSUMS).is_file():
        run.log(f"adapter/{CHECKSUMS}", (adapter / CHECKSUMS).read_text(encoding="utf-8") + sums)
    if card:
        run.log(f"adapter/{CARD}", card)
    labels = {key: without_credentials(str(value)) for key, value in (tags or {}).items()}
    if judged_on:
        labels[JUDGED_ON] = without_credentials(json.dumps(dict(judged_on)))
    labels[SCORE] = repr(float(validation_score))
    run.record.version = {
        "name": name,
        "code": str(code),
        "files": list(files or {}),
        "tags": labels,
        "barred": barred,
        "digest": hashlib.sha256((once or json.dumps([*parts, labels])).encode()).hexdigest(),
        "description": description,
        "example": example,
    }
    run.publish = publish
    return publish(run)


def publish(run: Run) -> Version | None:
    """Log an open run and register the version that it records; None if it could not be stored."""
    if not run.upload():
        return None
    with run.storing(again=True):
        version = run.record.version
        name, tags = version["name"], version["tags"]
        with run.store.lock():
            found = _present(run, name, version["digest"])
            if found is None:
                model_id = _log_model(run, version)
                number = _create_version(run, name, model_id, tags)
                stays = move_champion(run.store, name, number, tags, version["barred"])
                found = Version(name, number, run.id, tags, () if stays else (CHAMPION,), stays)
                _describe(run, found, model_id)
        run.record.version = {}
        return found
    return None


def _present(run: Run, name: str, digest: str) -> Version | None:
    """The first version of that name whose logged model has the digest, which becomes an output of the run."""
    from mlflow.entities import LoggedModelOutput

    client, same = run.store.client, f"tags.{_DIGEST} = '{digest}'"
    models = {f"models:/{one.model_id}": one for one in client.search_logged_models([run.experiment_id], same)}
    found = [one for one in client.search_model_versions(f"name = '{name}'") if one.source in models]
    if not found:
        return None
    first = min(found, key=lambda version: int(version.version))
    client.log_outputs(run.id, [LoggedModelOutput(models[first.source].model_id, 0)])
    aliases = client.get_model_version(name, first.version).aliases
    return Version(name, int(first.version), first.run_id, first.tags, tuple(aliases), present=True)


def _describe(run: Run, version: Version, model_id: str) -> None:
    """Show version, description and metrics, which are of the test texts, on the page of the logged model."""
    from mlflow.entities import Metric

    client, record = run.store.client, run.record
    description = record.version["description"]
    registered = json.dumps([{"name": version.name, "version": str(version.number)}])
    client.set_logged_model_tags(
        model_id, {_VERSIONS: registered, _DIGEST: record.version["digest"], NOTE: description or version.name}
    )
    test = next((entry for use, entry in record.datasets if use == "test"), None)
    of = {"dataset_name": test["name"], "dataset_digest": test["digest"]} if test else {}
    numbers = [point for point in record.metrics if point[3] == 0]
    client.log_batch(run.id, metrics=[Metric(*point, model_id=model_id, **of) for point in numbers])
    if description:
        client.update_model_version(version.name, str(version.number), description)
        if CHAMPION in version.aliases:
            client.update_registered_model(version.name, f"Champion: version {version.number}, {description}")


def _save(mlflow: Any, path: str, mlflow_model: Any, without: Sequence[str], **options: Any) -> None:
    """Save the model with the code of this package, `without` some files, and without the paths of this machine."""
    with tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
        root = Path(scratch)
        for folder in ("fsd", "detectors", "pipelines"):
            shutil.copytree(PACKAGE / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", *without))
        about = root / f"fsd-{installed('fsd')}.dist-info" / "METADATA"
        about.parent.mkdir()
        needs = "".join(f"Requires-Dist: {entry}\n" for entry in requires("fsd") or ())
        about.write_text(f"Metadata-Version: 2.1\nName: fsd\nVersion: {installed('fsd')}\n{needs}")
        code = [str(entry) for entry in sorted(root.iterdir())]
        mlflow.pyfunc.save_model(path=path, mlflow_model=mlflow_model, code_paths=code, **options)
    saved = mlflow_model.flavors["python_function"]
    saved["model_code_path"] = Path(saved["model_code_path"]).name
    for artifact in saved["artifacts"].values():
        artifact["uri"] = artifact["path"]
    mlflow_model.save(str(Path(path) / "MLmodel"))


def _log_model(run: Run, version: Mapping[str, Any]) -> str:
    mlflow = load_mlflow()
    with quiet():
        import pandas as pd
        from mlflow.models import Model, ModelSignature
        from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

        packages = [re.split(r"[^\w.-]", entry)[0] for entry in requires("fsd") or () if "extra ==" not in entry]
        packaged = version["tags"].get("base_model", "").startswith("embedded")  # the base is part of this package
        params = [ParamSpec(key, "boolean" if value is False else "double", value) for key, value in _PARAMS.items()]
        # What mlflow.pyfunc.log_model calls, which would load the model and its base to score the input example:
        # `validate_serving_input` prevents that, but pyfunc refuses to pass it on.
        logged = Model.log(
            artifact_path=None,
            name=run.record.name.translate(_NAME),
            run_id=run.id,
            # it would log the settings as params of the run
            flavor=SimpleNamespace(
                save_model=lambda validate_serving_input, **rest: _save(
                    mlflow, model_config=_SETTINGS, without=[] if packaged else ["*.safetensors"], **rest
                )
            ),
            flavor_name="python_function",
            step=1 + max([0, *(point[3] for point in run.record.metrics)]),  # `_describe` logs the metrics
            python_model=version["code"],
            artifacts={name: str(run.folder / name) for name in ("adapter", *version["files"])},
            signature=ModelSignature(
                inputs=Schema([ColSpec("string", "text")]),
                outputs=Schema([ColSpec(kind, name) for name, kind in _COLUMNS.items()]),
                params=ParamSchema(params),
            ),
            input_example=(pd.DataFrame({"text": [version["example"]]}), _PARAMS | {"same_source": True}),
            validate_serving_input=False,
            # without the build of torch, such as "+cpu", as machines differ in it
            pip_requirements=[f"{package}=={installed(package).split('+')[0]}" for package in packages],
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


def move_champion(store: Store, name: str, number: int, tags: Mapping[str, str], barred: str = "") -> str:
    """Move the alias `champion` to a version, or say in one line why it stays: barred, worse or not comparable."""
    client = store.client
    present = client.get_registered_model(name).aliases.get(CHAMPION)
    stays = f"champion of {name} stays version {present}" if present else f"{name} has no champion"
    if barred:
        return f"{stays}, not version {number}: {barred}"
    if present:
        champion = client.get_model_version(name, str(present)).tags
        before, now = (of | json.loads(of.get(JUDGED_ON, "{}")) for of in (champion, dict(tags)))
        differing = [entry for entry in COMPARED if before.get(entry) != now.get(entry) or not now.get(entry)]
        if differing:
            return (
                f"{stays}: version {number} differs in {', '.join(differing)}, so their validation scores cannot be "
                "compared; set the alias in MLflow to change it"
            )
        if _score(tags) < _score(champion):
            return f"{stays}: version {number} has the lower validation score"
    client.set_registered_model_alias(name, CHAMPION, str(number))
    return ""


def _score(tags: Mapping[str, str]) -> float:
    score = float(tags.get(SCORE, "nan"))  # none in a version that was registered by hand
    return -math.inf if math.isnan(score) else score
