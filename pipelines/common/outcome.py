"""The end of a command: its results on the terminal, or as one JSON document, and where everything was stored."""

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fsd import tracking
from fsd.tracking import Run, Version
from pipelines.common import config_file
from pipelines.common.invocation import OWN_TAGS, context

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
"""Version of the JSON document."""
REPORT = "report.html"


@dataclass(frozen=True)
class Outcome:
    """What a command found.

    Attributes:
        headline: the result in one sentence.
        tables: name → one row per number, text or cell.
        notes: the conclusions and remarks, one line each.
        files: what was written for the user → path.
        version: the registered version, if any.
        report: name of the report among the artifacts of the run; empty if there is none.
    """

    headline: str
    tables: "Mapping[str, pd.DataFrame]" = field(default_factory=dict)
    notes: Sequence[str] = ()
    files: Mapping[str, object] = field(default_factory=dict)
    version: Version | None = None
    report: str = ""


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

    The options `--name` and `--tags` replace the name, for good, and are added to the tags.

    Args:
        config: settings of the command.
        experiment: name of the experiment.
        name: name of the run, unless the user gives one.
        params: see `fsd.tracking.run`.
        tags: see `fsd.tracking.run`.
        description: see `fsd.tracking.run`.

    Raises:
        UsageError: as for `fsd.tracking.run`.
    """
    own, running = dict(tags or {}), context()
    assert own.keys() <= OWN_TAGS, own  # or a tag of the user's could replace one of them
    given, chosen = running.invocation.run_tags, running.invocation.name
    with tracking.run(
        experiment, chosen or name, params=params, tags=own | given, description=description, final=bool(chosen)
    ) as run:
        run.log_text(config_file.NAME, config_file.dump(config, running.command))
        yield run


def show(outcome: Outcome, run: Run | None, text: Callable[[], object]) -> None:
    """Print the results and where they are.

    Args:
        outcome: what was found.
        run: the run that holds it; None if it is not tracked.
        text: prints it for people; not called with `--json`.
    """
    running = context()
    places = _places(outcome, run)
    if running.invocation.json:
        print(document(outcome, places), file=running.stdout or sys.stdout, flush=True)
        return
    text()
    _closing(outcome, places)


def show_table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    *,
    left: Collection[int] = (0,),
) -> None:
    """Print a table of a demonstration, which is not tracked.

    Args:
        title: what is shown.
        headings: names of the columns.
        rows: the cells.
        notes: the conclusions.
        left: see `fsd.reporting.console.table`.
    """
    import pandas as pd

    from fsd.reporting import console

    names = [" ".join(heading.split()) for heading in headings]
    found = Outcome(notes[0], {"results": pd.DataFrame(rows, columns=names)}, notes)
    show(found, None, lambda: console.table(headings, rows, notes, title=title, left=left))


def document(outcome: Outcome, places: Mapping[str, str] | None) -> str:
    """The JSON document of `--json`; numbers that are not finite are null."""
    version = outcome.version
    registered = version and {
        "name": version.name,
        "version": version.number,
        "uri": version.uri,
        "aliases": list(version.aliases),
    }
    content = {
        "format": FORMAT,
        "command": context().command,
        "headline": outcome.headline,
        "tables": {name: _records(table) for name, table in outcome.tables.items()},
        "notes": list(outcome.notes),
        "files": {name: str(path) for name, path in outcome.files.items()},
        "run": places,
        "registered": registered,
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


def _records(table: "pd.DataFrame") -> Any:
    return json.loads(table.to_json(orient="records", double_precision=15, date_format="iso"))


def _places(outcome: Outcome, run: Run | None) -> dict[str, str] | None:
    """Id, page and report of a run; None if there is none, or its store cannot be reached."""
    if run is None or run.gone:
        return None
    return {"id": run.id, "page": run.page(), "report": run.address_of(outcome.report) if outcome.report else ""}


def _closing(outcome: Outcome, places: Mapping[str, str] | None) -> None:
    """Print what was written, and run id, page, report and registered version, one a line."""
    from fsd.reporting import console

    version = outcome.version
    if version and version.champion_stays:
        print(version.champion_stays)
    rows = [(name, str(path)) for name, path in outcome.files.items()]
    if places:
        rows += [("run", places["id"]), ("page", places["page"])]
        rows += [("report", places["report"])] if places["report"] else []
    if version:
        rows.append(("version", version.uri + (f" ({', '.join(version.aliases)})" if version.aliases else "")))
    if rows:
        print()
        console.facts(rows)
