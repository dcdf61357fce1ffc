"""Finding runs of the past, so that a study need not repeat them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from fsd.errors import UsageError
from fsd.tracking.store import open_store


@dataclass(frozen=True)
class RunRecord:
    """A run of the past. `parent` is the id of the run that it was a part of, if any."""

    id: str
    name: str
    status: str
    started: datetime
    parent: str | None
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]


def find_runs(
    experiment: str, tags: Mapping[str, object] | None = None, *, status: str = "FINISHED"
) -> list[RunRecord]:
    """The runs of an experiment that carry all of these tags, newest first; none if there is no such experiment.

    Args:
        experiment: its name.
        tags: names and values that must all be equal.
        status: FINISHED, FAILED, KILLED or RUNNING.
    """
    client = open_store().client
    found = client.get_experiment_by_name(experiment)
    if found is None:
        return []
    conditions = [f"attributes.status = '{status}'"]
    conditions += [f"tags.`{name}` = {_quoted(str(value))}" for name, value in (tags or {}).items()]
    records: list[RunRecord] = []
    token = None
    while True:
        page = client.search_runs(
            [found.experiment_id],
            " and ".join(conditions),
            max_results=1000,
            order_by=["attributes.start_time DESC"],
            page_token=token,
        )
        records += [
            RunRecord(
                id=r.info.run_id,
                name=r.info.run_name,
                status=r.info.status,
                started=datetime.fromtimestamp(r.info.start_time / 1000, UTC),
                parent=r.data.tags.get("mlflow.parentRunId"),
                tags=r.data.tags,
                params=r.data.params,
                metrics=r.data.metrics,
            )
            for r in page
        ]
        token = page.token
        if not token:
            return records


def _quoted(value: str) -> str:
    """A literal of MLflow's search language, which knows two kinds of quotes and no escapes."""
    for quote in "'\"":
        if quote not in value:
            return f"{quote}{value}{quote}"
    raise UsageError(f"a tag to search for must not hold both kinds of quotes; got {value!r}")
