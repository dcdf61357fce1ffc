"""The end of a command: its report in the tracked run and on the terminal, or as one JSON document."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd import tracking
from fsd.config import flags
from fsd.reporting.report import Report
from fsd.tracking import Run, Version
from pipelines.common import arguments
from pipelines.common.arguments import OWN_TAGS, context

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
"""Version of the JSON document."""
DESCRIBED = 3
"""Findings in the description of a run."""
PAGE = "report.html"


def run_name(model: str, files: Sequence[str], method: str) -> str:
    """Name of a run: model, texts and method in few characters; `Run.conclude` adds the best score."""
    texts = Path(files[0]).stem + (f" + {len(files) - 1}" if len(files) > 1 else "") if files else ""
    return tracking.run_name(Path(model).name, texts, method)


@contextmanager
def tracked_run(
    config: Any,
    experiment: str,
    name: str,
    *,
    params: Mapping[str, object] | None = None,
    tags: Mapping[str, object] | None = None,
    description: str | None = None,
) -> Iterator[Run]:
    """Open the run of a command, as `fsd.tracking.run` does, with its configuration as an artifact.

    The options `--name` and `--tags` replace the name, for good, and are added to the tags; the settings of `config`
    are the parameters unless others are given.
    """
    own, running = dict(tags or {}), context()
    assert own.keys() <= OWN_TAGS, own  # or a tag of the user's could replace one of them
    given, chosen = running.invocation.run_tags, running.invocation.name
    params = flags(config) if params is None else params
    with tracking.run(
        experiment, chosen or name, params=params, tags=own | given, description=description, final=bool(chosen)
    ) as run:
        run.log_text(arguments.NAME, arguments.dump(config, running.command))
        yield run


def deliver(report: Report, run: Run, version: Version | None = None) -> None:
    """Log the report to its run, and print it."""
    publish(report, run)
    show(report, run, version)


def publish(report: Report, run: Run) -> None:
    """Log metrics, files, tables and the page of a report, and give the run its final name and its description."""
    run.log_metrics(report.metrics)
    for name, content in report.artifacts.items():
        _log(run, name, content)
    for picture in report.pictures:
        if picture.name:
            run.log_bytes(picture.name, picture.png)
    if report.title:
        import pandas as pd

        from fsd.reporting.report import page

        for table in report.tables:
            if table.name and table.columns:
                run.log_table(f"{table.name}.json", pd.DataFrame(table.rows, columns=table.head))
        run.log_text(PAGE, page(dated(report)))
    if report.score:
        run.conclude(report.score, report.description or "\n\n".join(report.findings[:DESCRIBED]))


def dated(report: Report) -> Report:
    """The report with the date among its facts."""
    return replace(report, facts=[*report.facts, ("Date", date.today().isoformat())])


def _log(run: Run, name: str, content: Any) -> None:
    if hasattr(content, "to_parquet"):
        run.log_table(name, content)
    elif isinstance(content, bytes):
        run.log_bytes(name, content)
    elif isinstance(content, str):
        run.log_text(name, content)
    else:
        run.log_json(name, content)


def show(
    report: Report,
    run: Run | None = None,
    version: Version | None = None,
    *,
    text: Callable[[], object] | None = None,
) -> None:
    """Print a report and where it is: for people, or with `--json` as one document."""
    running = context()
    places = _places(run, report.page or (PAGE if report.title else ""))
    if running.invocation.json:
        print(document(report, places, version), file=running.stdout or sys.stdout, flush=True)
        return
    from fsd.reporting.report import print_facts, print_report

    if text:
        text()
    elif report.page and not sys.stdout.isatty():
        print(report.artifacts[report.page], end="")
    else:
        print_report(report)
    if version and version.champion_stays:
        print(version.champion_stays)
    rows = [(name, str(path)) for name, path in report.files.items()]
    rows += [(name, place) for name, place in (places or {}).items() if place]
    if version:
        rows.append(("version", version.uri + (f" ({', '.join(version.aliases)})" if version.aliases else "")))
    if rows:
        print()
        print_facts([("run" if name == "id" else name, place) for name, place in rows])


def document(report: Report, places: Mapping[str, str] | None, version: Version | None = None) -> str:
    """The JSON document of `--json`; numbers that are not finite are null."""
    registered = version and {
        "name": version.name,
        "version": version.number,
        "uri": version.uri,
        "aliases": list(version.aliases),
    }
    content = {
        "format": FORMAT,
        "command": context().command,
        "headline": report.line,
        "tables": {t.name: _records(t.numbers) for t in report.tables if t.name and t.numbers is not None},
        "notes": list(report.findings),
        "files": {name: str(path) for name, path in report.files.items()},
        "run": places,
        "registered": registered,
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


def _records(table: "pd.DataFrame") -> Any:
    return json.loads(table.to_json(orient="records", double_precision=15, date_format="iso"))


def _places(run: Run | None, page: str) -> dict[str, str] | None:
    """Id, page and report of a run; None if there is none, or its store cannot be reached."""
    if run is None or run.gone:
        return None
    return {"id": run.id, "page": run.page(), "report": run.address_of(page) if page else ""}
