"""A run: what one call of a pipeline was told, measured and made."""

import hashlib
import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from fsd.errors import UsageError
from fsd.tracking.store import Store, load_mlflow, open_store, quiet

if TYPE_CHECKING:
    import pandas as pd

_NAME = re.compile(r"[A-Za-z0-9_. :-]+(/[A-Za-z0-9_. :-]+)*")
_PARAM_LENGTH, _TAG_LENGTH, _TEXT_LENGTH = 6000, 8000, 65000
_METRICS_A_CALL, _PARAMS_A_CALL = 1000, 100


@dataclass(frozen=True)
class Run:
    """An open run; made by `run`.

    Attributes:
        store: where it is kept.
        id: MLflow's run id.
    """

    store: Store
    id: str

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log settings; those in nested mappings and dataclasses are named `outer.inner`.

        MLflow keeps 6,000 characters of a value; longer ones are cut, with an ellipsis.
        """
        from mlflow.entities import Param

        entries = [Param(_named(k), _cut(_text(v), _PARAM_LENGTH)) for k, v in _flat(params)]
        for start in range(0, len(entries), _PARAMS_A_CALL):
            self.store.client.log_batch(self.id, params=entries[start : start + _PARAMS_A_CALL])

    def log_metrics(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Log numbers; with a step they make a curve. Numbers that are not finite are left out.

        A name is `group/name`: the user interface draws one section per group.
        """
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        entries = [
            Metric(_named(name), float(value), now, step or 0) for name, value in values.items() if math.isfinite(value)
        ]
        for start in range(0, len(entries), _METRICS_A_CALL):
            self.store.client.log_batch(self.id, metrics=entries[start : start + _METRICS_A_CALL])

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Set tags; `find_runs` finds by them."""
        from mlflow.entities import RunTag

        entries = [RunTag(_named(k), _cut(_text(v), _TAG_LENGTH)) for k, v in tags.items()]
        for start in range(0, len(entries), _PARAMS_A_CALL):
            self.store.client.log_batch(self.id, tags=entries[start : start + _PARAMS_A_CALL])

    def log_file(self, path: Path, folder: str | None = None) -> None:
        """Copy a file into the run, at its root or in a folder. The user interface compares files at the root."""
        self.store.client.log_artifact(self.id, str(path), folder)

    def log_folder(self, path: Path, folder: str) -> None:
        """Copy what a folder holds into a folder of the run."""
        self.store.client.log_artifacts(self.id, str(path), folder)

    def log_bytes(self, name: str, content: bytes) -> None:
        """Write a file of the run, a picture say; `name` may lie in a folder: `plots/roc.png`."""
        self._write(name, lambda path: path.write_bytes(content))

    def log_text(self, name: str, content: str) -> None:
        """Write a text file of the run, in UTF-8."""
        self.log_bytes(name, content.encode())

    def log_json(self, name: str, content: object) -> None:
        """Write a JSON file of the run."""
        self.log_text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def log_table(self, name: str, table: "pd.DataFrame") -> None:
        """Write a table of the run, without its index, as the ending of `name` says: .parquet, .csv or .jsonl."""
        writers: dict[str, Callable[[Path], object]] = {
            ".parquet": lambda path: table.to_parquet(path, index=False),
            ".csv": lambda path: table.to_csv(path, index=False),
            ".jsonl": lambda path: table.to_json(path, orient="records", lines=True, force_ascii=False),
        }
        ending = PurePosixPath(name).suffix
        if ending not in writers:
            raise UsageError(f"a table must be named *.parquet, *.csv or *.jsonl; got {name!r}")
        self._write(name, writers[ending])

    def log_dataset(self, name: str, texts: Iterable[str], *, source: str, context: str) -> str:
        """Note which texts the run read: their number and a digest, not the texts.

        Args:
            name: what to call them, `arxiv` say.
            texts: in their order.
            source: where they came from: a file, an id, an address.
            context: what they were used for: `unseen`, `validation`, `test`.

        Returns:
            The digest: the first 32 hexadecimal digits of the SHA-256 over the SHA-256 of each text.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag

        count, digest = 0, hashlib.sha256()
        for text in texts:
            count += 1
            digest.update(hashlib.sha256(text.encode()).digest())
        short = digest.hexdigest()[:32]
        entry = Dataset(
            name=name,
            digest=short,
            source_type="code" if not Path(source).exists() else "local",
            source=json.dumps({"uri": _cut(source, _TEXT_LENGTH)}),
            schema=None,
            profile=json.dumps({"num_rows": count}),
        )
        tags = [InputTag("mlflow.data.context", context)]
        self.store.client.log_inputs(self.id, [DatasetInput(entry, tags)])
        return short

    def _write(self, name: str, write: Callable[[Path], object]) -> None:
        target = PurePosixPath(name)
        with tempfile.TemporaryDirectory(prefix="fsd-") as staging:
            path = Path(staging) / target.name
            write(path)
            self.log_file(path, None if len(target.parts) == 1 else str(target.parent))


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
    """Open a run for the length of a `with` block.

    It ends as FINISHED; as KILLED if the user interrupts it; as FAILED with the tag `error` if it raises.

    Args:
        experiment: `fsd-<domain>`; created if need be.
        name: shown in lists of runs.
        params: settings, see `Run.log_params`.
        tags: see `Run.set_tags`.
        description: shown on the run's page; Markdown.
        parent: the run that this one is a part of: a tuning study's, say.

    Raises:
        UsageError: see `open_store`.
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


def _named(name: str) -> str:
    """The name, if MLflow takes it."""
    parts = name.split("/")
    if not _NAME.fullmatch(name) or {".", ".."} & set(parts) or len(name) > 250:
        raise UsageError(
            f"a name of a metric, setting or tag must be 1 to 250 letters, digits, _ - . : / or spaces; got {name!r}"
        )
    return name


def _flat(params: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in params.items():
        if is_dataclass(value) and not isinstance(value, type):
            value = asdict(value)
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
