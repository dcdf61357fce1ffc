"""Runs: settings, metrics and artifacts of one call of a pipeline."""

import hashlib
import json
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from fsd.errors import StorageError, UsageError, without_credentials
from fsd.leftovers import has_ended, host, this_process
from fsd.tracking import pages
from fsd.tracking.store import Store, load_mlflow, open_store, patience, quiet

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.entities import RunInfo

_NAME = re.compile(r"[A-Za-z0-9_. :-]+(/[A-Za-z0-9_. :-]+)*")
_PARAM_LENGTH, _TAG_LENGTH, _SOURCE_LENGTH = 6000, 8000, 65000
_OUT_OF_REACH = ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE")
"""Error codes of a request that got no reply, among others."""
_PROCESS = "process"
"""Tag with the identity of the process that opened the run."""


@dataclass
class Losses:
    """What of a run, and of the runs within it, could not be stored.

    Attributes:
        names: reason → what could not be stored for that reason.
        unreachable: why the store cannot be reached any more; nothing further is then sent to it.
    """

    names: dict[str, list[str]] = field(default_factory=dict)
    unreachable: str = ""

    def add(self, name: str, reason: str) -> None:
        """Note that something could not be stored."""
        entries = self.names.setdefault(reason, [])
        if name not in entries:
            entries.append(name)

    def __contains__(self, name: str) -> bool:
        return any(name in names for names in self.names.values())

    def __str__(self) -> str:
        return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in self.names.items())


@dataclass(frozen=True)
class Run:
    """An open run, returned by `run`.

    Whatever cannot be stored does not end the computation: it is noted in `losses`, which the `with` block of the run
    raises at its end. A store that cannot be reached is not tried again.

    Attributes:
        store: the store that holds the run.
        id: MLflow's run id.
        name: name that it was opened with.
        final: whether the name is the user's, and stays as it is.
        losses: what could not be stored.
        when_stored: called at the end of the run if everything of it is stored.
    """

    store: Store
    id: str
    name: str = ""
    final: bool = False
    losses: Losses = field(default_factory=Losses, compare=False, repr=False)
    when_stored: list[Callable[[], None]] = field(default_factory=list, compare=False, repr=False)

    def attempt(self, name: str, action: Callable[[], object], *, in_store: bool = True) -> bool:
        """Call an action that stores `name`, and return whether it has; if not, the reason is noted.

        Args:
            name: name of what is stored, for messages.
            action: stores it.
            in_store: whether it goes to the store, which may be out of reach, and not to a file of the user's.

        Raises:
            UsageError: if the action does.
        """
        if in_store and self.losses.unreachable:
            self.losses.add(name, self.losses.unreachable)
            return False
        try:
            action()
        except UsageError:
            raise
        except Exception as error:  # any: artifact stores in the cloud have error classes of their own
            self.losses.add(name, self._reason(error))
            return False
        return True

    def _reason(self, error: Exception) -> str:
        """Why something could not be stored, in a few words; notes whether the store can still be reached."""
        from mlflow.exceptions import MlflowException, RestException

        answered = isinstance(error, RestException) or getattr(error, "error_code", "") not in _OUT_OF_REACH
        if not isinstance(error, MlflowException) or answered or self.store.is_file:
            return getattr(error, "strerror", None) or _first_line(error)
        self.losses.unreachable = f"{self.store.address} does not answer"
        print(f"tracking: {self.losses.unreachable}; the job goes on without it", file=sys.stderr)
        return self.losses.unreachable

    def page(self) -> str:
        """Address of the run's page; of a store without a server, as `fsd ui` serves it."""
        return pages.address(pages.server(self.store), str(self._info().experiment_id), self.id)

    def address_of(self, artifact: str) -> str:
        """Path of an artifact if it is on this machine, else its page or its address in the artifact store."""
        root = str(self._info().artifact_uri).removeprefix("file://")
        if root.startswith("mlflow-artifacts:"):
            return f"{self.page().partition('?')[0]}/artifacts/{artifact}"
        return f"{without_credentials(root)}/{artifact}"

    def _info(self) -> "RunInfo":
        return self.store.client.get_run(self.id).info

    def check(self) -> None:
        """Raise what could not be stored.

        Raises:
            StorageError: if there is anything.
        """
        if self.losses.names:
            raise StorageError(f"not everything could be stored: {self.losses}")

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log settings; those in nested mappings are named `outer.inner`.

        Values are cut to MLflow's limit of 6,000 characters, with an ellipsis; credentials in URLs are replaced.
        """
        from mlflow.entities import Param

        entries = [Param(_valid_name(k), _cut(_text(v), _PARAM_LENGTH)) for k, v in _flatten(params)]
        self.attempt("settings", lambda: self.store.client.log_batch(self.id, params=entries))

    def log_metrics(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Log numbers, as points of a curve if a step is given. Values that are not finite are left out.

        Names have the form `group/name`: the user interface shows one section per group.
        """
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        entries = [
            Metric(_valid_name(name), float(value), now, step or 0)
            for name, value in values.items()
            if math.isfinite(value)
        ]
        self.attempt("metrics", lambda: self.store.client.log_batch(self.id, metrics=entries))

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Set tags, by which `find_runs` filters; credentials in URLs are replaced."""
        from mlflow.entities import RunTag

        entries = [RunTag(_valid_name(k), _cut(_text(v), _TAG_LENGTH)) for k, v in tags.items()]
        self.attempt("tags", lambda: self.store.client.log_batch(self.id, tags=entries))

    def log_file(self, path: Path, folder: str | None = None) -> None:
        """Copy a file into the run, at its root or in a folder. The user interface compares files at the root only."""
        name = f"{folder}/{path.name}" if folder else path.name
        self.attempt(name, lambda: self.store.client.log_artifact(self.id, str(path), folder))

    def log_bytes(self, name: str, content: bytes) -> None:
        """Write a file of the run, such as `roc.png` or `plots/roc.png`."""
        target = PurePosixPath(name)

        def log() -> None:
            with tempfile.TemporaryDirectory(prefix="fsd-") as folder:
                path = Path(folder) / target.name
                path.write_bytes(content)
                self.log_file(path, None if len(target.parts) == 1 else str(target.parent))

        self.attempt(name, log)

    def log_text(self, name: str, content: str) -> None:
        """Write a UTF-8 text file of the run."""
        self.log_bytes(name, content.encode())

    def log_json(self, name: str, content: object) -> None:
        """Write a JSON file of the run."""
        self.log_text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def log_table(self, name: str, table: "pd.DataFrame") -> None:
        """Write a table of the run, without its index, in the format of the suffix: .parquet, .csv or .json.

        The evaluation view of the user interface compares the .json tables of several runs.
        """
        suffix = PurePosixPath(name).suffix
        if suffix == ".parquet":
            self.log_bytes(name, table.to_parquet(index=False))
        elif suffix == ".csv":
            self.log_text(name, table.to_csv(index=False))
        elif suffix == ".json":
            with quiet():
                self.attempt(name, lambda: self.store.client.log_table(self.id, table, name))
        else:
            raise UsageError(f"a table must be named *.parquet, *.csv or *.json; got {name!r}")

    def conclude(self, score: str, description: str) -> None:
        """Add the best score to the name of the run, unless it is the user's, and describe its result.

        Args:
            score: in a few characters, such as `loss .67`.
            description: Markdown; lists of runs show its first line as plain text.
        """
        name = self.name if self.final else pages.run_name(self.name, score)
        self.attempt("the description", lambda: pages.conclude(self.store, self.id, name, description))

    def describe_experiment(self, description: str) -> None:
        """Describe the experiment by the result of this run, unless the user has described it."""
        self.attempt(
            "the description", lambda: pages.describe_experiment(self.store, self.id, without_credentials(description))
        )

    def log_figure(self, name: str, figure: object) -> None:
        """Write an interactive figure of Plotly as an HTML file that needs no network."""
        options = {"include_plotlyjs": True, "default_height": "95vh"}
        self.attempt(name, lambda: self.store.client.log_figure(self.id, figure, name, save_kwargs=options))

    def log_dataset(
        self,
        name: str,
        texts: Sequence[str],
        *,
        source: str,
        context: str,
        labels: Sequence[bool | None] = (),
    ) -> str:
        """Log the number and the digest of the texts that the run read, but not the texts.

        Args:
            name: name of the data set, such as `arxiv-test`.
            texts: texts, in order.
            source: where they came from: files, an id or a URL.
            context: what they were used for: `unseen`, `validation` or `test`.
            labels: label of each text, None without one; empty if no text has one.

        Returns:
            The digest: the first 32 hexadecimal digits of the SHA-256 over the SHA-256 of each text, followed by its
            label, `1` or `0`, if it has one.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag

        state = hashlib.sha256()
        for text, label in zip(texts, labels or [None] * len(texts), strict=True):
            state.update(hashlib.sha256(text.encode()).digest() + (b"" if label is None else b"%d" % label))
        digest = state.hexdigest()[:32]
        dataset = Dataset(
            name=name,
            digest=digest,
            source_type="local" if _is_file(source) else "code",
            source=json.dumps({"uri": _cut(without_credentials(source), _SOURCE_LENGTH)}),
            schema=None,
            profile=json.dumps({"num_rows": len(texts)}),
        )
        tags = [InputTag("mlflow.data.context", context)]
        self.attempt(f"data set {name}", lambda: self.store.client.log_inputs(self.id, [DatasetInput(dataset, tags)]))
        return digest


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
    """Open a run for the duration of a `with` block.

    Its final status is FINISHED; KILLED if the user interrupts it; FAILED, with the tag `error`, if the block raises or
    something could not be stored. Runs that a killed process on this host left open are closed first.

    Args:
        experiment: name of the experiment, `fsd-<domain>`; created if it does not exist.
        name: name shown in lists of runs.
        params: settings, see `Run.log_params`.
        tags: see `Run.set_tags`.
        description: Markdown text shown on the run's page.
        parent: run that contains this one, such as that of a tuning study.
        final: whether the name is the user's, which the best score is not added to.

    Raises:
        UsageError: as for `open_store`, or if the experiment was deleted.
        StorageError: if something could not be stored, at the start or at the end of the block; a run within another
            one leaves that to the outer one.
    """
    store = parent.store if parent else open_store()
    if parent is None:
        with suppress(Exception):  # the store may be of another user
            close_ended_runs(store)
    unopened = Run(store, "", name, final, parent.losses if parent else Losses())
    opened = _start(unopened, experiment, description, parent)
    if not opened.id:
        yield opened
        return
    status = "FAILED"
    try:
        opened.set_tags(tags or {})
        opened.log_params(params or {})
        if parent is None:
            opened.check()
        yield opened
        if opened.losses.names:
            opened.set_tags({"error": f"could not be stored: {opened.losses}"})
        status = "FAILED" if opened.losses.names else "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    except Exception as error:
        opened.set_tags({"error": f"{type(error).__name__}: {error}"})
        raise
    finally:
        _end(opened, status)
    if not opened.losses.names:
        for action in opened.when_stored:
            action()
    if parent is None:
        opened.check()


def _start(unopened: Run, experiment: str, description: str | None, parent: Run | None) -> Run:
    """Start MLflow's run; one within another that cannot be stored has an empty id, and notes what it loses."""
    started: list[str] = []

    def start() -> None:
        mlflow = load_mlflow()
        from mlflow.tracking.context.registry import resolve_tags

        experiment_id = unopened.store.experiment_id(experiment)
        if parent is None:
            pages.set_view(unopened.store, experiment_id)
        known = {name: without_credentials(value) for name, value in resolve_tags().items()}  # of the git remote
        with quiet():
            active = mlflow.start_run(
                experiment_id=experiment_id,
                run_name=unopened.name,
                nested=parent is not None,
                parent_run_id=parent.id if parent else None,
                description=description,
                tags={**known, _PROCESS: this_process()},
            )
        started.append(active.info.run_id)

    if not unopened.attempt(f"the run {unopened.name!r}", start) and parent is None:
        unopened.check()
    return replace(unopened, id=started[0]) if started else unopened


def _end(run: Run, status: str) -> None:
    """End MLflow's active run, whose store may be full or out of reach."""
    try:
        with patience(retries=0, seconds=5) if run.losses.unreachable else nullcontext():
            load_mlflow().end_run(status)
        run.store.relativise()
    except Exception as error:
        run.losses.add("the end of the run", run.losses.unreachable or _first_line(error))


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
    """A past run. `parent` is the id of the run that contains it, or None."""

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
    """Past runs of an experiment, newest first; none if there is no such experiment.

    Args:
        experiment: name of the experiment.
        tags: names and values, all of which the runs must carry.
        status: FINISHED, FAILED, KILLED or RUNNING.
    """
    entry = open_store().client.get_experiment_by_name(experiment)
    if entry is None:
        return []
    conditions = [f"tags.`{name}` = {_quoted(without_credentials(str(value)))}" for name, value in (tags or {}).items()]
    runs = load_mlflow().search_runs(
        [entry.experiment_id],
        " and ".join([f"attributes.status = '{status}'", *conditions]),
        order_by=["attributes.start_time DESC"],
        output_format="list",
    )
    return [
        RunRecord(
            id=run.info.run_id,
            name=run.info.run_name,
            status=run.info.status,
            parent=run.data.tags.get("mlflow.parentRunId"),
            tags=run.data.tags,
            params=run.data.params,
            metrics=run.data.metrics,
        )
        for run in runs
    ]


def _is_file(source: str) -> bool:
    """Whether a source is a file; the names of many files in one string may be too long for a path."""
    try:
        return Path(source).exists()
    except OSError:
        return False


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def _quoted(value: str) -> str:
    """A string literal of MLflow's filter language, which has two kinds of quotes and no escapes."""
    for quote in "'\"":
        if quote not in value:
            return f"{quote}{value}{quote}"
    raise UsageError(f"a tag to search for must not contain both kinds of quotes; got {value!r}")


def _valid_name(name: str) -> str:
    """The name, if MLflow accepts it."""
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
