"""Model registry: numbered versions of adapters under a name, one of them with the alias `champion`."""

import hashlib
import json
import math
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import distribution, requires
from importlib.metadata import version as installed
from itertools import starmap
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from fsd.errors import without_credentials
from fsd.files import CHECKSUMS, checksum_lines, digest
from fsd.tracking.runs import NOTE, PACKAGE, Run, Tags
from fsd.tracking.store import Store, load_mlflow, quiet

CHAMPION = "champion"
SCORE = "validation_score"
# Tag with what two versions must share for their validation scores to be comparable, in words.
JUDGED_ON = "judged_on"
# Tag with the same as a JSON object, by which they are compared.
DIGESTS = "judged_on_digests"
# Its entries: the validation and test texts with their labels, the base model, and the settings of judging. Earlier
# releases have tags of these names.
COMPARED = ("benchmark", "base_fingerprint", "judging")
# The adapter's card, in its folder.
CARD = "README.md"
# Tags of a logged model: the hash of its files, and the registered versions, of which its page tells.
_DIGEST = "digest"
_VERSIONS = "mlflow.modelVersions"
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


class InputColumn(NamedTuple):
    """A column that the served model takes: strings, or also lists of objects."""

    name: str
    strings: bool = True
    required: bool = True


class ServedRows(NamedTuple):
    """The rows that the served model takes: their columns, and an example."""

    columns: Sequence[InputColumn] = (InputColumn("text"),)
    example: Mapping[str, Any] = MappingProxyType({"text": ""})

    def record(self) -> dict[str, Any]:
        """What a run keeps of them."""
        return {"columns": list(map(list, self.columns)), "example": dict(self.example)}


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
    files: Mapping[str, str | Path] | None = None,
    tags: Mapping[str, object] | None = None,
    judged_on: str = "",
    digests: Mapping[str, str] | None = None,
    barred: str = "",
    once: str = "",
    description: str = "",
    card: str = "",
    rows: ServedRows = TEXTS,
) -> Version | None:
    """Register an adapter with its files as a version of a model `name`; None if it could not be stored.

    Adapter and files become artifacts of the run, and a pyfunc model that MLflow can serve by `code`. The version
    becomes `champion` as `move_champion` says, unless it is `barred` for that reason. Of equal ones, by their files or
    by `once`, there is one. Description and card are Markdown; `rows` are of the kind to be judged.
    """
    files = files or {}
    contents = {}
    for file, content in files.items():
        contents[f"../{file}"] = content.encode() if isinstance(content, str) else content.read_bytes()
        run.log(file, content)
    sums = checksum_lines(contents)
    parts = [name, installed("fsd"), sums]
    # Only what makes the adapter: peft writes a card of its own into the folder.
    for path in sorted(adapter.iterdir()):
        if path.suffix in (".safetensors", ".bin", ".json"):
            run.log(f"adapter/{path.name}", path)
            parts.append(digest(path))
    checksums = adapter / CHECKSUMS
    if checksums.is_file():
        run.log(f"adapter/{CHECKSUMS}", checksums.read_text(encoding="utf-8") + sums)
    if card:
        run.log(f"adapter/{CARD}", card)
    told = dict(tags or {})
    if judged_on:
        told[JUDGED_ON] = judged_on
    if digests:
        told[DIGESTS] = json.dumps(dict(digests))
    labels = {key: without_credentials(str(value)) for key, value in told.items()}
    labels[SCORE] = repr(float(validation_score))
    identity = once or json.dumps([*parts, labels])
    identity_hash = hashlib.sha256(identity.encode()).hexdigest()
    # Kept with the run: if its store fails now, the end of the run or a later command registers the version.
    run.record.version = {
        "name": name,
        "code": str(code),
        "files": list(files),
        "tags": labels,
        "barred": barred,
        "digest": identity_hash,
        "description": description,
        **rows.record(),
    }
    run.publish = publish
    return publish(run)


def publish(run: Run) -> Version | None:
    """Log an open run and register the version that it records; None if it could not be stored."""
    if not run.upload():
        return None
    with run.storing(again=True):
        record = run.record.version
        name = record["name"]
        tags = record["tags"]
        # Two processes that finish one study would both find no such version, and make two.
        with run.store.lock():
            version = _present(run, name, record["digest"])
            if version is None:
                model_id = _log_model(run, record)
                number = _create_version(run, name, model_id, tags)
                stays = move_champion(run.store, name, number, tags, record["barred"])
                aliases = () if stays else (CHAMPION,)
                version = Version(name, number, run.id, tags, aliases, stays)
                # Last, with the digest: a version that is killed half-way is not taken for a whole one.
                _describe(run, version, model_id)
        run.record.version = {}
        return version
    return None


def _present(run: Run, name: str, digest: str) -> Version | None:
    """The first version of that name whose logged model has the digest, which becomes an output of the run."""
    from mlflow.entities import LoggedModelOutput

    client = run.store.client
    models = client.search_logged_models([run.experiment_id], f"tags.{_DIGEST} = '{digest}'")
    model_ids = {f"models:/{model.model_id}": model.model_id for model in models}
    versions = client.search_model_versions(f"name = '{name}'")
    same = [version for version in versions if version.source in model_ids]
    if not same:
        return None
    version = min(same, key=lambda version: int(version.version))
    client.log_outputs(run.id, [LoggedModelOutput(model_ids[version.source], 0)])
    # A search leaves out the aliases.
    aliases = client.get_model_version(name, version.version).aliases
    return Version(name, int(version.version), version.run_id, version.tags, tuple(aliases), present=True)


def _describe(run: Run, version: Version, model_id: str) -> None:
    """Show version, description and metrics, which are of the test texts, on the page of the logged model."""
    from mlflow.entities import Metric

    client = run.store.client
    record = run.record
    description = record.version["description"]
    registered = json.dumps([{"name": version.name, "version": str(version.number)}])
    tags = {_VERSIONS: registered, _DIGEST: record.version["digest"], NOTE: description or version.name}
    client.set_logged_model_tags(model_id, tags)
    test = next((dataset for use, dataset in record.datasets if use == "test"), None)
    texts = {"dataset_name": test["name"], "dataset_digest": test["digest"]} if test else {}
    # Points of curves have steps; results have none.
    metrics = []
    for name, value, timestamp, step in record.metrics:
        if step == 0:
            metrics.append(Metric(name, value, timestamp, step, model_id=model_id, **texts))
    client.log_batch(run.id, metrics=metrics)
    if description:
        client.update_model_version(version.name, str(version.number), description)
        if CHAMPION in version.aliases:
            client.update_registered_model(version.name, f"Champion: version {version.number}, {description}")


def _save(path: str, mlflow_model: Any, without: Sequence[str], validate_serving_input: bool, **options: Any) -> None:
    """Save the model with the code of this package, `without` some files, and without the paths of this machine."""
    # MLflow loads what comes with a model in place of what is installed there, whichever version that is.
    with tempfile.TemporaryDirectory(prefix="fsd-") as scratch:
        root = Path(scratch)
        for folder in ("fsd", "detectors", "pipelines", "extensions"):
            shutil.copytree(PACKAGE / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", *without))
        # The code asks for its own version, which without this file only an installed package has.
        about = root / f"fsd-{installed('fsd')}.dist-info" / "METADATA"
        about.parent.mkdir()
        needs = "".join(f"Requires-Dist: {entry}\n" for entry in _requirements())
        about.write_text(f"Metadata-Version: 2.1\nName: fsd\nVersion: {installed('fsd')}\n{needs}")
        # By which it finds its extensions.
        points = distribution("fsd").read_text("entry_points.txt") or ""
        about.with_name("entry_points.txt").write_text(points)
        load_mlflow().pyfunc.save_model(
            path=path, mlflow_model=mlflow_model, code_paths=sorted(map(str, root.iterdir())), **options
        )
    saved = mlflow_model.flavors["python_function"]
    saved["model_code_path"] = Path(saved["model_code_path"]).name
    for artifact in saved["artifacts"].values():
        artifact["uri"] = artifact["path"]
    mlflow_model.save(str(Path(path) / "MLmodel"))


def _requirements() -> list[str]:
    return requires("fsd") or []


def _pinned() -> list[str]:
    """The packages that this one needs, without its extras, in the versions of this machine."""
    pinned = []
    for entry in _requirements():
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


def _log_model(run: Run, version: Mapping[str, Any]) -> str:
    load_mlflow()
    # An embedded base is part of this package: without its weights the version could not be loaded elsewhere.
    packaged = version["tags"].get("base_model", "").startswith("embedded")
    # The settings are given here, as `Model.log` would log them as params of the run.
    save = partial(_save, without=() if packaged else ("*.safetensors",), model_config=_SETTINGS)
    artifacts = {name: str(run.folder / name) for name in ("adapter", *version["files"])}
    columns = list(starmap(InputColumn, version["columns"]))
    with quiet():
        import pandas as pd
        from mlflow.models import Model

        example = pd.DataFrame([version["example"]])
        # What mlflow.pyfunc.log_model calls, which would load the model and its base to score the input example:
        # `validate_serving_input` prevents that, but pyfunc refuses to pass it on.
        logged = Model.log(
            artifact_path=None,
            name=_model_name(run.record.name),
            run_id=run.id,
            flavor=SimpleNamespace(save_model=save),
            flavor_name="python_function",
            # MLflow would give the model the metrics of its step: this one has none, and `_describe` logs them.
            step=1 + max((step for *_, step in run.record.metrics), default=0),
            python_model=version["code"],
            artifacts=artifacts,
            signature=_signature(columns),
            input_example=(example, _PARAMS | {"same_source": True}),
            validate_serving_input=False,
            pip_requirements=_pinned(),
        )
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
    # Earlier releases wrote the digests where the words are now.
    digests = tags.get(DIGESTS) or tags.get(JUDGED_ON) or "{}"
    return {**tags, **json.loads(digests)}


def base_of(tags: Tags) -> str:
    """The fingerprint of the base model of a version, or its name."""
    return _judged_on(tags).get("base_fingerprint", tags.get("base_model", ""))


def _score(tags: Tags) -> float:
    # A version that was registered by hand has none.
    score = float(tags.get(SCORE, "nan"))
    if math.isnan(score):
        return -math.inf
    return score


def _model_name(run: str) -> str:
    """The name of a run as that of a model; a number such as .83 keeps its point, written 0·83."""
    return re.sub(r"(?<!\d)\.(?=\d)", "0.", run).translate(_NAME)
