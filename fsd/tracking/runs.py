"""Runs: settings, metrics and artifacts of one call of a pipeline.

A run is written to a folder of its own, which is logged at its end in one go; only the points of curves are logged as
they come. If the store fails, the folder is kept, and `python -m fsd.tracking FOLDER` logs it later.
"""

import hashlib
import json
import math
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from fsd.errors import StorageError, UsageError, without_credentials
from fsd.leftovers import has_ended, host, this_process
from fsd.tracking.store import Store, load_mlflow, open_store, patience, quiet

if TYPE_CHECKING:
    import pandas as pd

    from fsd.tracking.store import Store


LOCAL = "http://127.0.0.1:5000"
"""Where `fsd ui` serves a store that is no server itself."""
NOTE = "mlflow.note.content"
"""Tag with the description of a run or an experiment."""
OPENING = "Was this text in that model's training data?"
"""Start of the descriptions of experiments that are kept up to date; a user's own description is left as it is."""
HEADLINES = ("fsd_auc", "gain", "placebo_lead", "blind_auc", "tpr_at_5fpr")
"""Names of the headline metrics, in the order of their columns."""
_VIEW = "fsd"
_STATE = {
    "orderByKey": "attributes.start_time",
    "orderByAsc": False,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "datasetsFilter": [],
    "modelVersionFilter": "All Runs",
    "searchFilter": "",
    "selectedColumns": ["attributes.`Description`", *(f"metrics.`headline/{name}`" for name in HEADLINES)],
}


def run_name(*parts: str) -> str:
    """Name of a run: model, data, method and, once it is known, the best score."""
    return " · ".join(part for part in parts if part)


def address(server: str, experiment_id: str, run_id: str = "") -> str:
    """Address of the table of an experiment's runs, or of one run, on a server."""
    ml = {"workflowType": "machine_learning"}
    if run_id:
        return f"{server}/#/experiments/{experiment_id}/runs/{run_id}?{urlencode(ml)}"
    return f"{server}/#/experiments/{experiment_id}/runs?{urlencode({**ml, 'viewStateShareKey': _VIEW})}"


def server(store: "Store") -> str:
    """Address of the server of a store: its own, or the one that `fsd ui` starts."""
    return store.address.rstrip("/") if store.uri.startswith(("http://", "https://")) else LOCAL


def newest_page(store: "Store", base: str, experiment: str = "") -> str:
    """Address on the server `base` of the table of an experiment's runs, by default the one with the newest run."""
    found = store.client.search_experiments()
    if experiment:
        ids = [one.experiment_id for one in found if one.name == experiment]
        if not ids:
            names = ", ".join(sorted(one.name for one in found))
            raise UsageError(f"the experiment must be one of {names}; got {experiment}")
        return address(base, ids[0])
    runs = store.client.search_runs(
        [one.experiment_id for one in found], order_by=["attributes.start_time DESC"], max_results=1
    )
    return address(base, runs[0].info.experiment_id) if runs else base


def set_view(store: "Store", experiment_id: str) -> None:
    """Keep with the experiment which columns the table of its runs shows."""
    _set_tag(store, experiment_id, f"mlflow.sharedViewState.{_VIEW}", json.dumps(_STATE))


def _set_tag(store: "Store", experiment_id: str, name: str, value: str) -> None:
    """Set a tag of an experiment; the second time it is there, if another process has set it at the same moment."""
    from mlflow.exceptions import MlflowException

    try:
        store.client.set_experiment_tag(experiment_id, name, value)
    except MlflowException:  # UNIQUE constraint failed
        store.client.set_experiment_tag(experiment_id, name, value)


def describe_experiment(store: "Store", run_id: str, description: str) -> None:
    """Describe a run's experiment by its latest result, unless the user has described it."""
    run = store.client.get_run(run_id)
    experiment = store.client.get_experiment(run.info.experiment_id)
    if not experiment.tags.get(NOTE, OPENING).startswith(OPENING):
        return
    page = address("", experiment.experiment_id, run_id)
    note = f"{OPENING}\n\nLatest result: [{run.info.run_name}]({page.lstrip('/')})\n\n{description}"
    _set_tag(store, experiment.experiment_id, NOTE, note)


_NAME = re.compile(r"[A-Za-z0-9_. :-]+(/[A-Za-z0-9_. :-]+)*")
_PARAM_LENGTH, _TAG_LENGTH, _SOURCE_LENGTH = 6000, 8000, 65000
_OUT_OF_REACH = ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE")
"""Error codes of a request that got no reply, among others."""
_PROCESS = "process"
"""Tag with the identity of the process that opened the run."""
_TABLES = "mlflow.loggedArtifacts"
"""Tag with the tables that the evaluation view of the user interface offers."""
_RECORD = "run.json"
_CODE = Path(__file__).parents[2] / "pipelines"
"""Where the code of a model that a kept run registers must be: its folder may be somebody else's."""


@dataclass
class Record:
    """What a run logs beside its files; `run.json` of a kept folder."""

    experiment: str
    name: str
    final: bool = False
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[tuple[str, float, int, int]] = field(default_factory=list)  # name, value, milliseconds, step
    datasets: list[dict[str, str]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    news: str = ""
    version: dict[str, Any] = field(default_factory=dict)


@dataclass
class Run:
    """An open run, made by `run`. What cannot be stored is raised at its end, after the computation."""

    store: Store
    folder: Path  # of its files
    record: Record
    id: str = ""  # empty for a run within another one whose store cannot be reached
    experiment_id: str = ""
    root: str = ""  # address of the artifacts
    failure: str = ""  # why something could not be stored
    gone: str = ""  # why the store cannot be reached any more; nothing further is then sent to it
    when_stored: list[Callable[[], None]] = field(default_factory=list)  # called at the end if everything is stored
    _sent: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Note as `failure` what the block cannot store, so that results are shown before the run raises it."""
        try:
            yield
        except UsageError:
            raise
        except Exception as error:  # any: artifact stores in the cloud have error classes of their own
            reason = self._reason(error)
            self.failure = self.failure or reason

    def _reason(self, error: Exception) -> str:
        from mlflow.exceptions import MlflowException, RestException

        answered = isinstance(error, RestException) or getattr(error, "error_code", "") not in _OUT_OF_REACH
        if not isinstance(error, MlflowException) or answered or self.store.is_file:
            return getattr(error, "strerror", None) or (str(error).strip() or type(error).__name__).splitlines()[0]
        if not self.gone:
            self.gone = f"{self.store.address} does not answer"
            print(f"tracking: {self.gone}; the job goes on without it", file=sys.stderr)
        return self.gone

    def check(self) -> None:
        """Raise a StorageError if something could not be stored."""
        if self.failure:
            raise StorageError(f"the run could not be stored: {self.failure}")

    def upload(self) -> bool:
        """Log everything that is not logged yet, and return whether the store has it."""
        self.failure = self.failure or self.gone
        if self.gone or not self.id:
            return False
        with self.storing():
            from mlflow.entities import Param, RunTag

            client = self.store.client
            self._send_metrics()
            self._send("datasets", lambda entries: client.log_inputs(self.id, [_input(**one) for one in entries]))
            self._send("files", self._send_files)
            params = [Param(*entry) for entry in self.record.params.items()]
            client.log_batch(self.id, params=params, tags=[RunTag(*entry) for entry in self.record.tags.items()])
            client.update_run(self.id, name=self.record.name)
            if self.record.news:
                describe_experiment(self.store, self.id, self.record.news)
            return True
        return False

    def _send(self, kind: str, action: Callable[[list[Any]], object]) -> None:
        entries = getattr(self.record, kind)[self._sent[kind] :]
        if entries:
            action(entries)
        self._sent[kind] += len(entries)

    def _send_metrics(self) -> None:
        from mlflow.entities import Metric

        client = self.store.client
        self._send("metrics", lambda points: client.log_batch(self.id, metrics=[Metric(*point) for point in points]))

    def _send_files(self, names: Sequence[str]) -> None:
        for name in dict.fromkeys(names):
            folder = str(PurePosixPath(name).parent)
            self.store.client.log_artifact(self.id, str(self.folder / name), None if folder == "." else folder)

    def page(self) -> str:
        """Address of the run's page; of a store without a server, as `fsd ui` serves it."""
        return address(server(self.store), self.experiment_id, self.id)

    def address_of(self, artifact: str) -> str:
        """Path of an artifact if it is on this machine, else its page or its address in the artifact store."""
        root = self.root.removeprefix("file://")
        if root.startswith("mlflow-artifacts:"):
            return f"{self.page().partition('?')[0]}/artifacts/{artifact}"
        return f"{without_credentials(root)}/{artifact}"

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log settings, without credentials in URLs; those in nested mappings are named `outer.inner`."""
        self.record.params |= {_valid_name(k): _cut(_text(v), _PARAM_LENGTH) for k, v in _flatten(params)}

    def log_metrics(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Log finite numbers, named `group/name`; with a step as points of a curve, which are sent at once."""
        now = time.time_ns() // 1_000_000
        self.record.metrics += [
            (_valid_name(name), float(value), now, step or 0) for name, value in values.items() if math.isfinite(value)
        ]
        if step is not None and self.id and not self.gone:
            with self.storing():
                self._send_metrics()

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Set tags, by which `find_runs` filters; credentials in URLs are replaced."""
        self.record.tags |= {_valid_name(k): _cut(_text(v), _TAG_LENGTH) for k, v in tags.items()}

    def log_file(self, path: Path, folder: str | None = None) -> None:
        """Copy a file into the run, at its root, where the user interface compares files, or in a folder."""
        self._write(f"{folder}/{path.name}" if folder else path.name, lambda target: shutil.copyfile(path, target))

    def log_bytes(self, name: str, content: bytes) -> None:
        """Write a file of the run, such as `roc.png` or `plots/roc.png`."""
        self._write(name, lambda target: target.write_bytes(content))

    def _write(self, name: str, write: Callable[[Path], object]) -> None:
        with self.storing():
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            write(target)
            self.record.files.append(name)

    def log_text(self, name: str, content: str) -> None:
        """Write a UTF-8 text file of the run."""
        self.log_bytes(name, content.encode())

    def log_json(self, name: str, content: object) -> None:
        """Write a JSON file of the run."""
        self.log_text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def log_table(self, name: str, table: "pd.DataFrame") -> None:
        """Write a table without its index as .parquet, .csv or .json, which the user interface compares."""
        suffix = PurePosixPath(name).suffix
        if suffix == ".parquet":
            self.log_bytes(name, table.to_parquet(index=False))
        elif suffix == ".csv":
            self.log_text(name, table.to_csv(index=False))
        elif suffix == ".json":
            self.log_text(name, table.to_json(orient="split", index=False, date_format="iso"))
            tables = [*json.loads(self.record.tags.get(_TABLES, "[]")), {"path": name, "type": "table"}]
            self.set_tags({_TABLES: json.dumps(tables)})
        else:
            raise UsageError(f"a table must be named *.parquet, *.csv or *.json; got {name!r}")

    def log_dataset(
        self,
        name: str,
        texts: Sequence[str],
        *,
        source: str,
        context: str,
        labels: Sequence[bool | None] = (),
    ) -> str:
        """Log number and digest of texts, used as `context`, and return the digest: a hash of texts and labels."""
        state = hashlib.sha256()
        for text, label in zip(texts, labels or [None] * len(texts), strict=True):
            state.update(hashlib.sha256(text.encode()).digest() + (b"" if label is None else b"%d" % label))
        entry = {
            "name": name,
            "digest": state.hexdigest()[:32],
            "source_type": "local" if _is_file(source) else "code",
            "source": json.dumps({"uri": _cut(without_credentials(source), _SOURCE_LENGTH)}),
            "profile": json.dumps({"num_rows": len(texts)}),
        }
        self.record.datasets.append({**entry, "context": context})
        return entry["digest"]

    def conclude(self, score: str, description: str) -> None:
        """Add the best score, such as `loss .67`, to a name not of the user's, and describe the result in Markdown."""
        if not self.record.final:
            self.record.name = run_name(self.record.name, score)
        self.set_tags({NOTE: description})

    def describe_experiment(self, description: str) -> None:
        """Describe the experiment by the result of this run, unless the user has described it."""
        self.record.news = without_credentials(description)


@contextmanager
def run(
    experiment: str,
    name: str,
    *,
    params: Mapping[str, object] | None = None,
    tags: Mapping[str, object] | None = None,
    description: str | None = None,
    parent: Run | None = None,
    final: bool = False,
) -> Iterator[Run]:
    """Open a run for the duration of a `with` block, at whose end it is logged.

    Its final status is FINISHED; KILLED if the user interrupts it; FAILED, with the tag `error`, if the block raises or
    something could not be stored, which is then raised as a StorageError, for a run within `parent` by that one. A name
    that is `final` is the user's, which the best score is not added to. Runs of killed processes are closed first.
    """
    store = parent.store if parent else open_store()
    with tempfile.TemporaryDirectory(prefix="fsd-", ignore_cleanup_errors=True) as temporary:
        made = Run(store, Path(temporary) / "run", Record(experiment, name, final))
        made.log_params(params or {})
        made.set_tags({**(tags or {}), **({NOTE: description} if description else {})})
        with _opened(made, parent):
            yield made


@contextmanager
def kept_run(folder: Path) -> Iterator[Run]:
    """Log a run whose folder was kept as a new run, after the block, and delete the folder."""
    store = open_store()
    try:
        made = Run(store, folder, Record(**json.loads((folder / _RECORD).read_text(encoding="utf-8"))))
        paths = [(folder / name, folder) for name in (*made.record.files, *made.record.version.get("files", []))]
        paths += [(Path(made.record.version["code"]), _CODE)] if made.record.version else []
        outside = [path for path, allowed in paths if not path.resolve().is_relative_to(allowed.resolve())]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"a run to be logged must be a folder with {_RECORD} of a command; got {folder}") from error
    if outside:
        raise UsageError(
            f"a run to be logged must name files of its own folder and code of this package; got {outside[0]}"
        )
    with _opened(made, None):
        yield made
    shutil.rmtree(folder)


@contextmanager
def _opened(run: Run, parent: Run | None) -> Iterator[None]:
    if parent is None:
        with suppress(Exception):  # the store may be of another user
            close_ended_runs(run.store)
    _start(run, parent)
    status, stored = "FAILED", False
    try:
        try:
            if parent is None:
                run.check()
            yield
        except Exception as error:
            run.set_tags({"error": f"{type(error).__name__}: {error}"})
            raise
        finally:
            stored = run.upload()
        if run.failure:
            with run.storing():
                run.store.client.set_tag(run.id, "error", f"could not be stored: {run.failure}")
        else:
            status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        _end(run, status)
    if not run.failure:
        for action in run.when_stored:
            action()
    elif parent:
        parent.failure, parent.gone = parent.failure or run.failure, run.gone
    else:
        command = "" if stored and not run.record.version else _keep(run)
        raise StorageError(f"the run could not be stored: {run.failure}", command)


def _start(run: Run, parent: Run | None) -> None:
    """Start MLflow's run, with what is recorded so far."""
    run.gone = parent.gone if parent else ""
    if run.gone:
        return
    mlflow = load_mlflow()
    from mlflow.tracking.context.registry import resolve_tags

    with run.storing():
        run.experiment_id = run.store.experiment_id(run.record.experiment)
        if parent is None:
            set_view(run.store, run.experiment_id)
        known = {name: without_credentials(value) for name, value in resolve_tags().items()}  # of the git remote
        with quiet():
            active = mlflow.start_run(
                experiment_id=run.experiment_id,
                run_name=run.record.name,
                nested=parent is not None,
                parent_run_id=parent.id if parent else None,
                tags={**known, _PROCESS: this_process()},
            )
        run.id, run.root = active.info.run_id, str(active.info.artifact_uri)
        run.upload()


def _end(run: Run, status: str) -> None:
    """End MLflow's active run, whose store may be full or out of reach."""
    if run.id:
        with run.storing(), patience(retries=0, seconds=5) if run.gone else nullcontext():
            load_mlflow().end_run(status)


def _keep(run: Run) -> str:
    """Move the folder of a run to the working folder; the command that logs it, or "" if it cannot be kept."""
    kept = Path.cwd() / f"fsd-run-{run.id[:8]}"
    try:
        run.folder.mkdir(parents=True, exist_ok=True)
        (run.folder / _RECORD).write_text(json.dumps(asdict(run.record)), encoding="utf-8")
        shutil.move(run.folder, kept)
    except OSError:
        return ""
    return f"python -m fsd.tracking {kept}"


def close_ended_runs(store: Store) -> None:
    """Give the status KILLED to the runs that ended processes on this host left open, whatever their experiment."""
    client = store.client
    experiments = [entry.experiment_id for entry in client.search_experiments(filter_string="name LIKE 'fsd-%'")]
    conditions = f"attributes.status = 'RUNNING' and tags.{_PROCESS} LIKE '{host()}-%'"
    for run in client.search_runs(experiments, conditions) if experiments else []:
        if has_ended(run.data.tags[_PROCESS]):
            client.set_tag(run.info.run_id, "error", "its process ended without closing the run")
            client.set_terminated(run.info.run_id, "KILLED")


@dataclass(frozen=True)
class RunRecord:
    """A past run; `parent` is the id of the run that contains it, or None."""

    id: str
    name: str
    status: str
    parent: str | None
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]


def find_runs(
    experiment: str, tags: Mapping[str, object] | None = None, *, status: str = "FINISHED"
) -> list[RunRecord]:
    """Past runs of an experiment that carry all the tags, newest first; none if there is no such experiment."""
    entry = open_store().client.get_experiment_by_name(experiment)
    if entry is None:
        return []
    conditions = [f"attributes.status = '{status}'"]
    for name, value in (tags or {}).items():
        quote = '"' if "'" in str(value) else "'"  # of MLflow's filter language, which has no escapes
        conditions.append(f"tags.`{name}` = {quote}{without_credentials(str(value))}{quote}")
    runs = load_mlflow().search_runs(
        [entry.experiment_id],
        " and ".join(conditions),
        order_by=["attributes.start_time DESC"],
        output_format="list",
    )
    return [
        RunRecord(
            run.info.run_id,
            run.info.run_name,
            run.info.status,
            run.data.tags.get("mlflow.parentRunId"),
            run.data.tags,
            run.data.params,
            run.data.metrics,
        )
        for run in runs
    ]


def _input(*, context: str, **dataset: str) -> Any:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    return DatasetInput(Dataset(**dataset), [InputTag("mlflow.data.context", context)])


def _is_file(source: str) -> bool:
    try:
        return Path(source).exists()
    except OSError:  # the names of many files in one string may be too long for a path
        return False


def _valid_name(name: str) -> str:
    if not _NAME.fullmatch(name) or {".", ".."} & set(name.split("/")) or len(name) > 250:
        raise UsageError(
            f"a name of a metric, setting or tag must be 1 to 250 letters, digits, _ - . : / or spaces; got {name!r}"
        )
    return name


def _flatten(params: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in params.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return without_credentials(str(value))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
