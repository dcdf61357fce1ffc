"""Model registry: numbered versions of adapters under a name, one of them with the alias `champion`."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version as installed
from pathlib import Path
from types import SimpleNamespace

from fsd.errors import without_credentials
from fsd.tracking.runs import Run
from fsd.tracking.store import Store, load_mlflow, quiet

CHAMPION = "champion"
SCORE = "validation_score"
COMPARED = ("benchmark", "base_fingerprint", "judging")
"""Tags that two versions must share for their validation scores to be comparable: the validation and test texts with
their labels, the base model, and the settings of judging."""
MODEL_NAME = "membership-detector"
"""Name of the logged model in the user interface; versions of earlier releases have the name "detective"."""
CHECKSUMS = "SHA256SUMS"
"""File in the adapter's folder with the checksums of the adapter and of the files saved with it, as of `sha256sum`."""
# Packages that a server of the model needs. This library is not among them: it is on no package index, and a package of
# the same name must not be installed in its place.
_REQUIREMENTS = ("mlflow", "numpy", "pandas", "peft", "safetensors", "torch", "transformers")
# Settings that can be changed when a version is loaded or served, by `model_config` or MLFLOW_PYFUNC_INFERENCE_CONFIG.
# MLflow passes on only those that are named when the version is logged, and logs them as params of the run, hence the
# prefix. None means as in the run.
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
_EXAMPLE = "The text to be judged, as long as those of the benchmark."


@dataclass(frozen=True)
class Version:
    """A version of a registered model; `champion_stays` says why the alias was not moved to one registered just now."""

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
    description: str = "",
) -> Version | None:
    """Register an adapter with its files as a new version of a model `name`; None if it could not be stored.

    Adapter and files become artifacts of the run, and a pyfunc model that MLflow can download, load and serve: `code`
    calls `mlflow.models.set_model`, and the model's `context.artifacts["adapter"]` is the adapter's folder, beside
    which the files are. Only a complete version is ever registered. It becomes `champion` as `move_champion` says,
    unless it is `barred` for that reason. No two versions agree in the tags `once`: the present one is returned. The
    description, in Markdown, is also that of the registered model if the version is its champion.
    """
    sums = ""
    for file, content in (files or {}).items():
        data = content.encode() if isinstance(content, str) else content.read_bytes()
        sums += f"{hashlib.sha256(data).hexdigest()}  ../{file}\n"
        run.log(file, data)
    for path in sorted(adapter.iterdir()):
        if path.suffix in (".safetensors", ".json"):
            run.log(f"adapter/{path.name}", path)
    if (adapter / CHECKSUMS).is_file():
        run.log(f"adapter/{CHECKSUMS}", (adapter / CHECKSUMS).read_text(encoding="utf-8") + sums)
    labels = {key: without_credentials(str(value)) for key, value in (tags or {}).items()}
    run.record.version = {
        "name": name,
        "code": str(code),
        "files": list(files or {}),
        "tags": labels | {SCORE: repr(float(validation_score))},
        "barred": barred,
        "once": list(once),
        "description": description,
    }
    return publish(run)


def publish(run: Run) -> Version | None:
    """Log an open run and register the version that it records; None if it could not be stored."""
    if not run.upload():
        return None
    with run.storing():
        version = run.record.version
        name, tags, client = version["name"], version["tags"], run.store.client
        model_id = _log_model(run, ["adapter", *version["files"]], version["code"])
        with run.store.lock():
            found = _present(run.store, name, {tag: tags[tag] for tag in version["once"]})
            if found is None:
                number = _create_version(run, name, model_id, tags)
                stays = move_champion(run.store, name, number, tags, version["barred"])
                found = Version(name, number, run.id, tags, () if stays else (CHAMPION,), stays)
        if version["description"]:
            client.update_model_version(name, str(found.number), version["description"])
            if CHAMPION in found.aliases:
                about = f"Champion: version {found.number}, {version['description']}"
                client.update_registered_model(name, about)
        run.record.version = {}
        return found
    return None


def _log_model(run: Run, names: Sequence[str], code: str) -> str:
    mlflow = load_mlflow()
    with quiet():
        import pandas as pd
        from mlflow.models import Model, ModelSignature
        from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

        params = [ParamSpec(key, "boolean" if value is False else "double", value) for key, value in _PARAMS.items()]
        # What mlflow.pyfunc.log_model calls, which would load the model and its base to score the input example:
        # `validate_serving_input` prevents that, but pyfunc refuses to pass it on.
        logged = Model.log(
            artifact_path=None,
            name=MODEL_NAME,
            run_id=run.id,
            flavor=SimpleNamespace(save_model=lambda validate_serving_input, **rest: mlflow.pyfunc.save_model(**rest)),
            flavor_name="python_function",
            python_model=code,
            artifacts={name: str(run.folder / name) for name in names},
            signature=ModelSignature(
                inputs=Schema([ColSpec("string", "text")]),
                outputs=Schema([ColSpec(kind, name) for name, kind in _COLUMNS.items()]),
                params=ParamSchema(params),
            ),
            input_example=(pd.DataFrame({"text": [_EXAMPLE]}), _PARAMS),
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
    numbers = [int(version.version) for version in found if tags.items() <= version.tags.items()]
    if not numbers:
        return None
    first = store.client.get_model_version(name, str(min(numbers)))
    return Version(name, min(numbers), first.run_id, first.tags, tuple(first.aliases))


def move_champion(store: Store, name: str, number: int, tags: Mapping[str, str], barred: str = "") -> str:
    """Move the alias `champion` to a version, or say in one line why it stays.

    It stays if the version is barred, worse than the champion, or not comparable with it: a validation score says
    something about another version only on the same texts, base model and settings of judging (`COMPARED`).
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


def _score(tags: Mapping[str, str]) -> float:
    score = float(tags.get(SCORE, "nan"))  # none in a version that was registered by hand
    return -math.inf if math.isnan(score) else score
