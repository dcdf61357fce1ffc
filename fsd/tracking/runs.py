"""Runs: settings, metrics and artifacts of one call of a pipeline.

Files are written to a folder of the run, which is logged at its end in one go; only the points of curves are logged as
they come. If the store fails, the folder is kept.
"""

import functools
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import distribution, version
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

from fsd.errors import StorageError, UsageError, disk_failure, first_line, without_credentials
from fsd.files import csv_text
from fsd.tracking.store import Store, address, load_mlflow, open_store, quiet

# Tag with the description of a run.
NOTE = "mlflow.note.content"
# MLflow refuses a longer text of a data set: a run must not fail at its end for a list of a thousand files.
_LONGEST_SOURCE = 65000
# The column of names in a database of its own server, where one that is longer is an error.
_LONGEST_NAME = 250
# Error codes of a request that got no reply, among others.
_OUT_OF_REACH = ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE")
# Tags with the version and the commit of this package.
FSD_VERSION = "fsd_version"
COMMIT = "mlflow.source.git.commit"
# Tag with the id of the caller's own run, in which the command was started.
OUTER = "outer_run"
# Tag with the tables that the evaluation view of the user interface offers.
_TABLES = "mlflow.loggedArtifacts"
# The folder of this package, of the commands and of the detectors.
PACKAGE = Path(__file__).parents[2]

Tags = Mapping[str, str]
"""Name → value of the tags of a run or a version."""


@dataclass
class Run:
    """An open run, made by `run`. What cannot be stored is raised at its end, after the computation."""

    store: Store
    folder: Path  # of its files
    experiment: str
    name: str
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[tuple[str, float, int, int]] = field(default_factory=list)  # name, value, milliseconds, step
    datasets: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # use, data set
    id: str = ""  # empty for a run within one whose store has failed
    experiment_id: str = ""
    root: str = ""  # address of the artifacts
    failure: str = ""  # why something could not be written to the folder
    unsent: str = ""  # why the store does not have all of it yet: nothing more is sent before the end
    _points: int = 0  # of the metrics, how many are sent

    @contextmanager
    def storing(self, *, again: bool = False) -> Iterator[None]:
        """Note as `failure`, or `unsent` if the end tries it `again`, what cannot be stored: results come first."""
        try:
            yield
        except UsageError:
            raise
        except Exception as error:
            # Any error: artifact stores in the cloud have classes of their own.
            if again:
                self.unsent = self._reason(error)
            else:
                self.failure = self.failure or self._reason(error)

    def _reason(self, error: Exception) -> str:
        from mlflow.exceptions import MlflowException, RestException

        # A RestException is an answer. The text of others holds the address with its password, and every attempt.
        silent = isinstance(error, MlflowException) and error.error_code in _OUT_OF_REACH
        if silent and not isinstance(error, RestException) and not self.store.file:
            return f"{self.store.address} does not answer"
        return disk_failure(error) or getattr(error, "strerror", None) or first_line(error)

    @property
    def problem(self) -> str:
        """That and why something could not be stored; "" if everything is."""
        reason = self.failure or self.unsent
        if reason:
            return f"could not be stored: {reason}"
        return ""

    def check(self, kept: str = "") -> None:
        """Raise a StorageError, which says where the files are `kept`, if something could not be stored."""
        if self.problem:
            raise StorageError(f"the run {self.problem}{kept}")

    def upload(self) -> None:
        """Log everything that is not logged yet."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Param, RunTag

        client = self.store.client
        with self.storing(again=True):
            self._send_points()
            inputs = [
                DatasetInput(Dataset(**dataset), [InputTag("mlflow.data.context", use)])
                for use, dataset in self.datasets
            ]
            client.log_inputs(self.id, inputs)
            params = list(starmap(Param, self.params.items()))
            tags = list(starmap(RunTag, self.tags.items()))
            client.log_batch(self.id, params=params, tags=tags)
            client.update_run(self.id, name=self.name[:_LONGEST_NAME])
            if self.folder.is_dir():
                client.log_artifacts(self.id, str(self.folder))
            self.unsent = ""

    def _send_points(self) -> None:
        from mlflow.entities import Metric

        points = self.metrics[self._points :]
        self.store.client.log_batch(self.id, metrics=list(starmap(Metric, points)))
        self._points += len(points)

    def page(self) -> str:
        """Address of the run's page; of a store without a server, as `fsd ui` serves it."""
        return address(self.store.server, self.experiment_id, self.id)

    def address_of(self, artifact: str) -> str:
        """Path of an artifact if it is on this machine, else its page or its address in the artifact store."""
        if self.root.startswith("mlflow-artifacts:"):
            return f"{self.page().partition('?')[0]}/artifacts/{artifact}"
        return f"{without_credentials(self.root.removeprefix('file://'))}/{artifact}"

    def log_metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Log finite numbers, named `group/name`."""
        now = time.time_ns() // 1_000_000
        for name, value in values.items():
            # MLflow's databases hold NaN as 0 and infinity as the largest number, which would be false results.
            if math.isfinite(value):
                self.metrics.append((name, float(value), now, step))

    def log_curves(self, steps: Mapping[int, Mapping[str, float]]) -> None:
        """Log numbers by step as points of curves, which are sent at once, in one request."""
        for step, values in steps.items():
            self.log_metrics(values, step)
        if self.unsent:
            return
        # A training of hours goes on. Nothing is sent again before its end: each attempt may take a minute.
        with self.storing(again=True):
            self._send_points()
        # Said once: later points return above.
        if self.unsent:
            print(f"tracking: {self.unsent}; the job goes on without it", file=sys.stderr)

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log settings, none of them empty; those in nested mappings are named `outer.inner`."""
        for name, value in _flatten(params):
            if value is not None and (text := _text(value)):
                self.params[name] = text

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Set tags, by which `find_runs` filters; credentials in URLs are replaced."""
        self.tags |= {name: _text(value) for name, value in tags.items()}

    def log(self, name: str, content: Any) -> None:
        """Write a file: bytes, text, a copy of a path, a frame by the ending (MLflow compares .json), or JSON."""
        # Not by its type, for which pandas would have to be imported.
        if hasattr(content, "to_parquet"):
            if name.endswith(".json"):
                tables = json.loads(self.tags.get(_TABLES, "[]"))
                tables.append({"path": name, "type": "table"})
                self.set_tags({_TABLES: json.dumps(tables)})
                content = content.to_json(orient="split", index=False, date_format="iso")
            elif name.endswith(".csv"):
                content = csv_text(content)
            else:
                content = content.to_parquet(index=False)
        elif isinstance(content, Path):
            content = content.read_bytes()
        elif not isinstance(content, str | bytes):
            content = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        with self.storing():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def log_dataset(
        self, name: str, texts: Sequence[str], *, source: str, context: str, labels: Sequence[bool | None] = ()
    ) -> str:
        """Log number and digest of texts, used as `context`, and return the digest: a hash of texts and labels."""
        state = hashlib.sha256()
        for text, label in zip(texts, labels or [None] * len(texts), strict=True):
            # Each text by its own hash, so that texts cannot run into each other.
            state.update(hashlib.sha256(text.encode()).digest())
            if label is not None:
                state.update(b"%d" % label)
        digest = state.hexdigest()[:32]
        uri = without_credentials(source)[:_LONGEST_SOURCE]
        dataset = {
            "name": name,
            "digest": digest,
            "source_type": "local",
            # Each escape of a letter would count as six characters.
            "source": json.dumps({"uri": uri}, ensure_ascii=False),
            "profile": json.dumps({"num_rows": len(texts)}),
        }
        self.datasets.append((context, dataset))
        return digest

    def conclude(self, score: str, description: str) -> None:
        """Put the best score, such as `loss .67`, behind the name, and describe the result."""
        if score:
            # MLflow cuts names in its table: what differs between runs stands first.
            self.name = f"{self.name} · {score}"
        self.set_tags({NOTE: shown(description)})

    def mark_repetition(self, version: str, *, renamed: bool) -> None:
        """Say that the run gave what a registered version holds already: by a tag, and in front of its name."""
        self.set_tags({"repeats": version})
        if renamed:
            self.name = f"again · {self.name}"


def shown(text: str) -> str:
    """Text as Markdown that shows it as it is: an interval before a bracket would be a link."""
    return re.sub(r"[\[\]\\*`]|<(?=[A-Za-z/!?])", r"\\\g<0>", text)


@functools.cache
def versions() -> dict[str, str]:
    """Versions of fsd, torch and transformers, and the commit of fsd where it is known, `-dirty` with changes."""
    result = {name: version(name) for name in ("fsd", "torch", "transformers")}
    # pip notes here the commit of a package that it has installed from git.
    installed = json.loads(distribution("fsd").read_text("direct_url.json") or "{}")
    commit = installed.get("vcs_info", {}).get("commit_id")
    # Only of a checkout: git would find the repository of a project in whose folder the package is installed.
    if (PACKAGE / ".git").exists():
        git = ["git", "-C", str(PACKAGE), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
        with suppress(OSError):
            commit = subprocess.run(git, capture_output=True, text=True).stdout.strip() or commit
    if commit:
        result["commit"] = commit
    return result


@contextmanager
def run(
    experiment: str,
    name: str,
    *,
    params: Mapping[str, object] | None = None,
    tags: Mapping[str, object] | None = None,
    description: str | None = None,
    parent: Run | None = None,
) -> Iterator[Run]:
    """Open a run for the duration of a `with` block, at whose end it is logged.

    It ends as FINISHED; KILLED if the user interrupts it; FAILED, with the tag `error`, if the block raises or
    something could not be stored, which is a StorageError, for a run within `parent` of that one.
    """
    store = parent.store if parent else open_store()
    # A run that is stored must not fail because its copy cannot be deleted.
    with tempfile.TemporaryDirectory(prefix="fsd-", ignore_cleanup_errors=True) as temporary:
        opened = Run(store, Path(temporary) / "run", experiment, without_credentials(name))
        opened.log_params(params or {})
        opened.set_tags(tags or {})
        if description:
            opened.set_tags({NOTE: description})
        status = "FAILED"
        try:
            _start(opened, parent)
            # Before the computation: a store that fails now would lose it.
            if parent is None:
                opened.check()
            yield opened
            status = "FINISHED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        except Exception as error:
            opened.set_tags({"error": f"{type(error).__name__}: {error}"})
            raise
        finally:
            if opened.id:
                _end(opened, status)
            if parent:
                parent.failure = parent.failure or opened.failure or opened.unsent
                # One run that fails is enough: each of a hundred others would wait for the same store.
                parent.unsent = parent.unsent or opened.unsent
        if parent is None and opened.problem:
            opened.check(_keep(opened))


def _start(run: Run, parent: Run | None) -> None:
    """Create MLflow's run, with what is known so far."""
    # Each attempt at a store that does not answer takes up to a minute.
    if parent and parent.unsent:
        run.unsent = parent.unsent
        return
    mlflow = load_mlflow()
    from mlflow.tracking.context.registry import resolve_tags

    with run.storing(again=True), quiet():
        run.experiment_id = run.store.experiment_id(run.experiment)
        # MLflow takes the address of the git remote as it is, which may hold a token.
        tags = {name: without_credentials(value) for name, value in resolve_tags().items()}
        # MLflow's own commit is that of the repository of the main script, which may be another project's.
        tags[COMMIT] = versions().get("commit", "").removesuffix("-dirty")
        tags[FSD_VERSION] = versions()["fsd"]
        # By `mlflow run` and Azure ML, and by a notebook.
        around = mlflow.active_run()
        tags[OUTER] = around.info.run_id if around else os.environ.get("MLFLOW_RUN_ID", "")
        if parent:
            tags["mlflow.parentRunId"] = parent.id
        tags = {name: value for name, value in tags.items() if value}
        created = run.store.client.create_run(run.experiment_id, tags=tags, run_name=run.name[:_LONGEST_NAME])
        run.id = created.info.run_id
        run.root = str(created.info.artifact_uri)
        # The settings are stored before the computation, so that a killed run has them.
        run.upload()


def _end(run: Run, status: str) -> None:
    """Log what is not logged yet, and end MLflow's run; the store may be full or out of reach, or back."""
    run.upload()
    # As it is now: ending the run may fail too.
    problem = run.problem
    if problem and status == "FINISHED":
        status = "FAILED"
    with run.storing(again=True):
        run.store.client.set_terminated(run.id, status)
        # The store has the run, but not all of it.
        if problem:
            run.store.client.set_tag(run.id, "error", problem)


def _keep(run: Run) -> str:
    """Move the folder of a run to the working folder; where it is and how it is logged, or "" if it cannot be."""
    if not run.unsent or not run.folder.is_dir():
        return ""
    kept = Path.cwd() / f"fsd-run-{run.id[:8]}"
    try:
        shutil.move(run.folder, kept)
    except OSError:
        return ""
    store = "MLFLOW_TRACKING_URI=sqlite:///mlruns/mlflow.db " if run.store.root else ""
    command = f"mlflow artifacts log-artifacts --local-dir {kept.name} --run-id {run.id}"
    return f"; its files are in {kept.name}, and `{store}{command}` logs them"


class RunRecord(NamedTuple):
    """A past run; `parent` is the id of the run that contains it, or None."""

    id: str
    name: str
    parent: str | None
    tags: Tags
    params: Mapping[str, str]
    metrics: Mapping[str, float]


def find_runs(
    experiment: str, tags: Mapping[str, object] | None = None, *, status: str = "FINISHED"
) -> list[RunRecord]:
    """Past runs of an experiment that carry all the tags, newest first; none if there is no such experiment."""
    entry = open_store().client.get_experiment_by_name(experiment)
    if entry is None:
        return []
    runs = load_mlflow().search_runs(
        [entry.experiment_id],
        f"attributes.status = '{status}'",
        order_by=["attributes.start_time DESC"],
        output_format="list",
    )
    # Tags are compared here: in MLflow's query language some values cannot be quoted.
    expected = {name: _text(value) for name, value in (tags or {}).items()}
    records = []
    for run in runs:
        data = run.data
        if expected.items() <= data.tags.items():
            parent = data.tags.get("mlflow.parentRunId")
            records.append(RunRecord(run.info.run_id, run.info.run_name, parent, data.tags, data.params, data.metrics))
    return records


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
