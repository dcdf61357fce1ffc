"""Model registry: numbered versions of adapters under a name, one of them with the alias `champion`."""

import hashlib
import json
import math
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distribution, requires
from importlib.metadata import version as installed
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fsd.errors import without_credentials
from fsd.files import CHECKSUMS, checksum_lines, digest
from fsd.tracking.runs import NOTE, PACKAGE, Run, Tags, shown
from fsd.tracking.store import Store, load_mlflow, quiet

CHAMPION = "champion"
SCORE = "validation_score"
# Tag with what two versions must share for their validation scores to be comparable, as a JSON object.
DIGESTS = "judged_on_digests"
# Its entries: the validation and test texts with their labels, the base model, and the settings of judging.
COMPARED = ("benchmark", "base_fingerprint", "judging")
# The adapter's card, in its folder.
CARD = "README.md"
# Tag of a version: the hash of its files.
_DIGEST = "digest"
# Tag of a logged model: the registered versions, of which its page tells.
_VERSIONS = "mlflow.modelVersions"
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


class InputColumn(NamedTuple):
    """A column that the served model takes: strings, or also lists of objects."""

    name: str
    strings: bool = True
    required: bool = True


class ServedRows(NamedTuple):
    """The rows that the served model takes: their columns, and an example."""

    columns: Sequence[InputColumn] = (InputColumn("text"),)
    example: Mapping[str, Any] = MappingProxyType({"text": ""})


TEXTS = ServedRows()
"""Texts in a column of that name."""


@dataclass(frozen=True)
class Version:
    """A version of a model; `champion_stays` says why the alias is not its, `present` that an equal one was there."""

    name: str
    number: int
    run_id: str
    tags: Tags
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
    files: Mapping[str, str | Path] = MappingProxyType({}),
    tags: Mapping[str, object] = MappingProxyType({}),
    barred: str = "",
    once: str = "",
    description: str = "",
    card: str = "",
    rows: ServedRows = TEXTS,
) -> Version | None:
    """Register an adapter with its files as a version of a model `name`; None if it could not be stored.

    Adapter and files become artifacts of the run, and a pyfunc model that MLflow can serve by `code`. The version
    becomes `champion` as `move_champion` says by its tags, unless it is `barred` for that reason. Of equal ones, by
    their files or by `once`, there is one. The card is Markdown; `rows` are of the kind to be judged.
    """
    contents = {}
    for file, content in files.items():
        contents[f"../{file}"] = content.encode() if isinstance(content, str) else content.read_bytes()
        run.log(file, content)
    sums = checksum_lines(contents)
    parts = [name, installed("fsd"), sums]
    # Only what makes the adapter: peft writes a card of its own into the folder.
    checksums = adapter / CHECKSUMS
    for path in sorted(adapter.rglob("*")):
        of_reference = path.name == CHECKSUMS and path != checksums
        if of_reference or path.suffix in (".safetensors", ".bin", ".json"):
            run.log(f"adapter/{path.relative_to(adapter)}", path)
            parts.append(digest(path))
    if checksums.is_file():
        run.log(f"adapter/{CHECKSUMS}", checksums.read_text(encoding="utf-8") + sums)
    if card:
        run.log(f"adapter/{CARD}", card)
    labels = {key: without_credentials(str(value)) for key, value in tags.items()}
    labels[SCORE] = repr(float(validation_score))
    identity = once or json.dumps([*parts, labels])
    identity_hash = hashlib.sha256(identity.encode()).hexdigest()
    with run.storing():
        version = _present(run.store, name, identity_hash)
        if version is None:
            model_id = _log_model(run, name, code, list(files), labels, rows)
            number = _create_version(run, name, model_id, labels)
            stays = move_champion(run.store, name, number, labels, barred)
            version = Version(name, number, run.id, labels, () if stays else (CHAMPION,), stays)
            _describe(run, version, model_id, description)
            # Last: a version that is killed half-way is not taken for a whole one.
            run.store.client.set_model_version_tag(name, str(number), _DIGEST, identity_hash)
        return version
    return None


def _present(store: Store, name: str, digest: str) -> Version | None:
    """The first version of that name with the digest."""
    client = store.client
    same = client.search_model_versions(f"name = '{name}' and tags.{_DIGEST} = '{digest}'")
    if not same:
        return None
    number = min(int(version.version) for version in same)
    # A search leaves out the aliases.
    return version_of(client.get_model_version(name, str(number)), present=True)


def version_of(stored: Any, *, present: bool = False) -> Version:
    """MLflow's version, without the tag by which equal ones are found."""
    tags = {key: value for key, value in stored.tags.items() if key != _DIGEST}
    return Version(
        stored.name, int(stored.version), stored.run_id, tags, tuple(map(str, stored.aliases)), present=present
    )


def _describe(run: Run, version: Version, model_id: str, description: str) -> None:
    """Show version, description and metrics on the page of the logged model."""
    from mlflow.entities import Metric

    client = run.store.client
    description = shown(description)
    registered = json.dumps([{"name": version.name, "version": str(version.number)}])
    client.set_logged_model_tags(model_id, {_VERSIONS: registered, NOTE: description or version.name})
    # Points of curves have steps; results have none.
    results = [entry for entry in run.metrics if entry[-1] == 0]
    client.log_batch(run.id, metrics=[Metric(*entry, model_id=model_id) for entry in results])
    if description:
        client.update_model_version(version.name, str(version.number), description)


def _save(path: str, without: Sequence[str], **options: Any) -> None:
    """Save the model with the code of this package, `without` some files."""
    # MLflow loads what comes with a model in place of what is installed there, whichever version that is.
    with tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
        root = Path(scratch)
        for folder in ("fsd", "detectors", "pipelines", "extensions"):
            shutil.copytree(PACKAGE / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", *without))
        # By which the code finds its version and its extensions.
        about = root / f"fsd-{installed('fsd')}.dist-info"
        about.mkdir()
        package = distribution("fsd")
        # Not its file, which has another name where a checkout lies first on the path.
        (about / "METADATA").write_text(str(package.metadata), encoding="utf-8")
        (about / "entry_points.txt").write_text(package.read_text("entry_points.txt") or "", encoding="utf-8")
        load_mlflow().pyfunc.save_model(path=path, code_paths=sorted(map(str, root.iterdir())), **options)


def _pinned() -> list[str]:
    """The packages that this one needs, without its extras, in the versions of this machine."""
    pinned = []
    for entry in requires("fsd") or []:
        if "extra ==" not in entry:
            package = re.split(r"[^\w.-]", entry)[0]
            # Without the build of torch, such as "+cpu", as machines differ in it.
            pinned.append(f"{package}=={installed(package).split('+')[0]}")
    return pinned


def _signature(columns: Sequence[InputColumn]) -> Any:
    """Columns and parameters of the served model, which MLflow checks and shows."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import AnyType

    params = [
        ParamSpec(name, "boolean" if default is False else "double", default) for name, default in _PARAMS.items()
    ]
    taken = []
    for column in columns:
        # MLflow reads no CSV for a model with columns of other types than its own.
        kind = "string" if column.strings else AnyType()
        taken.append(ColSpec(kind, column.name, column.required))
    outputs = Schema([ColSpec(kind, name) for name, kind in _COLUMNS.items()])
    return ModelSignature(Schema(taken), outputs, ParamSchema(params))


def _log_model(run: Run, name: str, code: Path, files: Sequence[str], tags: Tags, rows: ServedRows) -> str:
    # An embedded base is part of this package: without its weights the version could not be loaded elsewhere.
    packaged = tags.get("base_model", "").startswith("embedded")
    client = run.store.client
    # `mlflow.pyfunc.log_model` would load the model and its base to score the input example.
    with quiet(), tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
        import pandas as pd
        from mlflow.entities import LoggedModelOutput
        from mlflow.models import Model

        logged = client.create_logged_model(run.experiment_id, name.replace(".", "-"), run.id, params=run.params)
        folder = f"{scratch}/model"
        _save(
            folder,
            () if packaged else ("*.safetensors",),
            mlflow_model=Model(artifact_path=logged.artifact_location, model_uuid=logged.model_id, run_id=run.id),
            python_model=str(code),
            artifacts={name: str(run.folder / name) for name in ("adapter", *files)},
            signature=_signature(rows.columns),
            input_example=(pd.DataFrame([dict(rows.example)]), _PARAMS | {"same_source": True}),
            pip_requirements=_pinned(),
            model_config=_SETTINGS,
        )
        client.log_model_artifacts(logged.model_id, folder)
        client.finalize_logged_model(logged.model_id, "READY")
        client.log_outputs(run.id, [LoggedModelOutput(logged.model_id, 0)])
    return str(logged.model_id)


def _create_version(run: Run, name: str, model_id: str, tags: Tags) -> int:
    from mlflow.exceptions import MlflowException

    client = run.store.client
    # Asking for it first would be a race between machines: the lock is one of this machine.
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    version = client.create_model_version(name, f"models:/{model_id}", run.id, tags=dict(tags), model_id=model_id)
    return int(version.version)


def move_champion(store: Store, name: str, number: int, tags: Tags, barred: str) -> str:
    """Move the alias `champion` to a version, or say in one line why it stays: barred, worse or not comparable."""
    client = store.client
    present = client.get_registered_model(name).aliases.get(CHAMPION)
    stays = f"champion of {name} stays version {present}" if present else f"{name} has no champion"
    if barred:
        return f"{stays}, not version {number}: {barred}"
    if present:
        champion = client.get_model_version(name, str(present)).tags
        ours = _judged_on(tags)
        theirs = _judged_on(champion)
        # What neither version tells is no agreement.
        differing = [entry for entry in COMPARED if not ours.get(entry) or theirs.get(entry) != ours[entry]]
        if differing:
            return (
                f"{stays}: version {number} differs in {', '.join(differing)}, so their validation scores cannot be "
                "compared; set the alias in MLflow to change it"
            )
        if _score(tags) < _score(champion):
            return f"{stays}: version {number} has the lower validation score"
    client.set_registered_model_alias(name, CHAMPION, str(number))
    return ""


def _judged_on(tags: Tags) -> dict[str, str]:
    digests: dict[str, str] = json.loads(tags.get(DIGESTS, "{}"))
    return dict(tags) | digests


def base_of(tags: Tags) -> str:
    """The fingerprint of the base model of a version, or its name."""
    return _judged_on(tags).get("base_fingerprint", tags.get("base_model", ""))


def _score(tags: Tags) -> float:
    # A version that was registered by hand has none.
    score = float(tags.get(SCORE, "nan"))
    if math.isnan(score):
        return -math.inf
    return score
