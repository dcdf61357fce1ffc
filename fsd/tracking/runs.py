"""Runs: settings, metrics and artifacts of one call of a pipeline."""

import hashlib
import json
import math
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from fsd.errors import UsageError
from fsd.tracking.store import Store, load_mlflow, open_store, quiet

if TYPE_CHECKING:
    import pandas as pd

_NAME = re.compile(r"[A-Za-z0-9_. :-]+(/[A-Za-z0-9_. :-]+)*")
_PARAM_LENGTH, _TAG_LENGTH, _SOURCE_LENGTH = 6000, 8000, 65000


@dataclass(frozen=True)
class Run:
    """An open run, returned by `run`.

    Attributes:
        store: the store that holds the run.
        id: MLflow's run id.
    """

    store: Store
    id: str

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log settings; those in nested mappings are named `outer.inner`.

        Values are cut to MLflow's limit of 6,000 characters, with an ellipsis.
        """
        from mlflow.entities import Param

        entries = [Param(_valid_name(k), _cut(_text(v), _PARAM_LENGTH)) for k, v in _flatten(params)]
        self.store.client.log_batch(self.id, params=entries)

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
        self.store.client.log_batch(self.id, metrics=entries)

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Set tags, by which `find_runs` filters."""
        from mlflow.entities import RunTag

        entries = [RunTag(_valid_name(k), _cut(_text(v), _TAG_LENGTH)) for k, v in tags.items()]
        self.store.client.log_batch(self.id, tags=entries)

    def log_file(self, path: Path, folder: str | None = None) -> None:
        """Copy a file into the run, at its root or in a folder. The user interface compares files at the root only."""
        self.store.client.log_artifact(self.id, str(path), folder)

    def log_bytes(self, name: str, content: bytes) -> None:
        """Write a file of the run, such as `roc.png` or `plots/roc.png`."""
        target = PurePosixPath(name)
        with tempfile.TemporaryDirectory(prefix="fsd-") as folder:
            path = Path(folder) / target.name
            path.write_bytes(content)
            self.log_file(path, None if len(target.parts) == 1 else str(target.parent))

    def log_text(self, name: str, content: str) -> None:
        """Write a UTF-8 text file of the run."""
        self.log_bytes(name, content.encode())

    def log_json(self, name: str, content: object) -> None:
        """Write a JSON file of the run."""
        self.log_text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def log_table(self, name: str, table: "pd.DataFrame") -> None:
        """Write a table of the run, without its index, in the format of the suffix: .parquet or .csv."""
        suffix = PurePosixPath(name).suffix
        if suffix == ".parquet":
            self.log_bytes(name, table.to_parquet(index=False))
        elif suffix == ".csv":
            self.log_text(name, table.to_csv(index=False))
        else:
            raise UsageError(f"a table must be named *.parquet or *.csv; got {name!r}")

    def log_dataset(self, name: str, texts: Iterable[str], *, source: str, context: str) -> str:
        """Log the number and the digest of the texts that the run read, but not the texts.

        Args:
            name: name of the data set, such as `arxiv`.
            texts: texts, in order.
            source: where they came from: a file, an id or a URL.
            context: what they were used for: `unseen`, `validation` or `test`.

        Returns:
            The digest: the first 32 hexadecimal digits of the SHA-256 over the SHA-256 of each text.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag

        digests = [hashlib.sha256(text.encode()).digest() for text in texts]
        digest = hashlib.sha256(b"".join(digests)).hexdigest()[:32]
        dataset = Dataset(
            name=name,
            digest=digest,
            source_type="local" if Path(source).exists() else "code",
            source=json.dumps({"uri": _cut(source, _SOURCE_LENGTH)}),
            schema=None,
            profile=json.dumps({"num_rows": len(digests)}),
        )
        tags = [InputTag("mlflow.data.context", context)]
        self.store.client.log_inputs(self.id, [DatasetInput(dataset, tags)])
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
) -> Iterator[Run]:
    """Open a run for the duration of a `with` block.

    Its final status is FINISHED; KILLED if the user interrupts it; FAILED, with the tag `error`, if the block raises.

    Args:
        experiment: name of the experiment, `fsd-<domain>`; created if it does not exist.
        name: name shown in lists of runs.
        params: settings, see `Run.log_params`.
        tags: see `Run.set_tags`.
        description: Markdown text shown on the run's page.
        parent: run that contains this one, such as that of a tuning study.

    Raises:
        UsageError: as for `open_store`, or if the experiment was deleted.
    """
    store = open_store()
    mlflow = load_mlflow()
    with quiet():
        started = mlflow.start_run(
            experiment_id=store.experiment_id(experiment),
            run_name=name,
            nested=parent is not None,
            parent_run_id=parent.id if parent else None,
            description=description,
        )
    opened = Run(store, started.info.run_id)
    status = "FAILED"
    try:
        opened.set_tags(tags or {})
        opened.log_params(params or {})
        yield opened
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    except Exception as error:
        opened.set_tags({"error": f"{type(error).__name__}: {error}"})
        raise
    finally:
        mlflow.end_run(status)
        store.relativise()


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
    conditions = [f"tags.`{name}` = {_quoted(str(value))}" for name, value in (tags or {}).items()]
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
        return ", ".join(map(str, value))
    return str(value)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
