"""The end of a command: its tracked run, and its report in the run and on the terminal."""

import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd import tracking
from fsd.config import FPR, flags
from fsd.errors import UsageError, without_credentials
from fsd.files import digest
from fsd.plugs import filled
from fsd.progress import stage as stage_line
from fsd.tracking import Run, RunRecord, Version
from pipelines.command.context import EvidenceInvocation, Invocation, context, demands, stage, typed_line

if TYPE_CHECKING:
    from fsd.reporting.report import Report

VERSION = 1
"""Version of configuration files, which they may state under `version`."""
# Version of the JSON document, which programs read.
FORMAT = 1
# Findings in the description of a run: MLflow shows the first lines alone.
DESCRIBED = 3
CHAMPION = "champion"
PAGE = "report.html"
PROVENANCE = "provenance.json"
"""Where the numbers of the run come from."""
ANSWER = "answer.json"
"""What `--json` prints, in the run of a command whose answer is evidence."""
PROTOCOL = "protocol.json"
"""The protocol that was published before the run, if there was one."""


def run_name(model: str, files: Sequence[str], method: str) -> str:
    """Name of a run: method, texts and model in few characters; `Run.conclude` puts the best score behind it."""
    parts = [method]
    if files:
        texts = Path(files[0]).stem
        if len(files) > 1:
            texts += f" + {len(files) - 1}"
        parts.append(texts)
    parts.append(Path(model).name)
    return " · ".join(filter(None, parts))


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
    """Open the run of a command, with its settings; `--name` replaces the name, and `--tags` are added."""
    own_tags = dict(tags or {})
    command = context()
    tags = own_tags | command.invocation.run_tags
    # Commands find their runs by them.
    taken = own_tags.keys() & command.invocation.run_tags.keys()
    if taken:
        raise UsageError(f"tags must not replace those of the command; got {', '.join(sorted(taken))}")
    params = flags(config) if params is None else params
    opened = tracking.run(
        experiment, command.invocation.name or name, params=params, tags=tags, description=description
    )
    with contextlib.ExitStack() as stack:
        # A store that is a server may take seconds to answer.
        with stage("opening"), stage_line("opening the run", again=True):
            run = stack.enter_context(opened)
            run.log("config.yaml", dump(config, command.command))
            for files in filled("files"):
                for file, content in files(command.command, flags(config)).items():
                    run.log(file, content)
            chosen = demands().protocol
            if chosen:
                run.log(PROTOCOL, Path(chosen))
                run.set_tags({"protocol": digest(chosen)})
        yield run


def finished_cells(parent: Run, **tags: str) -> dict[str, RunRecord]:
    """Tag of a cell → the newest run that holds its numbers, in the experiment of the parent."""
    records = tracking.find_runs(parent.experiment, {"kind": "cell", **tags})
    # They come newest first. Of equal keys a dictionary keeps the last value: reversed, so that the newest wins.
    return {record.tags["cell"]: record for record in reversed(records)}


def dump(config: Any, command: str) -> str:
    """The settings as a configuration file in YAML, without the credentials of URLs."""
    import yaml

    def plain(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return list(map(plain, value))
        if isinstance(value, str | Path):
            return without_credentials(str(value))
        return value

    entries: dict[str, Any] = {"version": VERSION}
    if command:
        entries["command"] = command
    for name, value in flags(config).items():
        entries[name.replace("_", "-")] = plain(value)
    return str(yaml.safe_dump(entries, sort_keys=False, allow_unicode=True))


def deliver(report: "Report | Callable[[], Report]", run: Run) -> None:
    """Log the report, or what makes it, to its run, and print it."""
    with stage("recording"):
        if callable(report):
            report = report()
        publish(report, run)
    show(report, run)


def publish(report: "Report", run: Run) -> None:
    """Log metrics, files, tables and the page of a report, and give the run its final name and its description."""
    run.log_metrics(report.metrics)
    if isinstance(context().invocation, EvidenceInvocation):
        run.log(ANSWER, document(report, None))
    if demands().fail_if:
        reasons = failures(context().command, report.numbers, context().invocation)
        run.set_tags({"gate": "; ".join(reasons) or "passed"})
    for name, content in report.artifacts.items():
        run.log(name, content)
    for picture in report.pictures:
        if picture.name:
            run.log(picture.name, picture.png)
    if report.title:
        import pandas as pd

        for table in report.tables:
            if table.name and table.columns:
                run.log(f"{table.name}.json", pd.DataFrame(table.rows, columns=table.head))
        run.log(PAGE, page_of(report, run))
    if report.score:
        # A name that the user chose stays as it is.
        score = "" if context().invocation.name else report.score
        run.conclude(score, report.description or "\n\n".join(report.notes[:DESCRIBED]))


def failures(command: str, numbers: Mapping[str, float | None], invocation: Invocation) -> list[str]:
    """Why an answer of the command with these numbers fails, by what was asked of it."""
    reasons: list[str] = []
    for hook in filled("after"):
        reasons += hook(command, numbers, flags(invocation))
    return reasons


def page_of(report: "Report", run: Run) -> str:
    """The page of a report, for whom `--report-for` says."""
    from fsd.reporting.report import page, reader_page

    with_facts = dated(report)
    if report.reader is None or demands().report_for == "engineer":
        return page(with_facts)
    return reader_page(with_facts, _hashes(with_facts, run))


def _hashes(report: "Report", run: Run) -> list[tuple[str, str]]:
    """The hashes of what was examined, by which somebody else can tell that it is the same."""
    rows = []
    recorded = run.folder / PROVENANCE
    if recorded.is_file():
        for entry in json.loads(recorded.read_bytes())["inputs"]:
            for file in entry["files"]:
                name = Path(entry["name"]).name
                rows.append((f"{name}/{file['name']}".rstrip("/"), f"SHA-256 {file['sha256']}"))
    protocol = run.folder / PROTOCOL
    if protocol.is_file():
        rows.append(("Protocol", f"SHA-256 {digest(protocol)}"))
    kept = ("Model", "Base", "Adapter", "Fine-tuned model", "Command", "Versions", "Commit", "Date")
    for name, value in report.facts:
        if name in kept:
            rows.append((name, value))
    rows.append(("Run", run.id))
    return rows


def dated(report: "Report") -> "Report":
    """The report with the command, the versions and the date among its facts."""
    facts = list(report.facts)
    facts += context().read.items()
    command = context().command
    if command:
        facts.append(("Command", typed_line(command)))
    versions = dict(tracking.versions())  # a copy of what is cached
    commit = versions.pop("commit", "")
    packages = [f"{name} {number}" for name, number in versions.items()]
    facts.append(("Versions", ", ".join(packages)))
    if commit:
        facts.append(("Commit", commit))
    facts.append(("Date", date.today().isoformat()))
    return replace(report, facts=facts)


@contextmanager
def as_far_as_read() -> Iterator[None]:
    """Go on where the reader of the output, `head` for example, has closed it: the run is stored all the same."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still in the buffer would raise again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), (context().stdout or sys.stdout).fileno())


@as_far_as_read()
def show(
    report: "Report",
    run: Run | None = None,
    version: Version | None = None,
    *,
    text: Callable[[], object] | None = None,
) -> None:
    """Print a report and where it is: for people, or with `--json` as one document."""
    command = context()
    command.numbers.update(report.numbers)
    places = _places(report, run)
    if command.invocation.json:
        stdout = command.stdout or sys.stdout
        # In ASCII, since no stream then lacks a character.
        print(document(report, places or None, version), file=stdout, flush=True)
        return
    from fsd.reporting.report import print_facts, print_notes, print_report

    rows = _last_rows(report, run, version, places)
    if version and version.champion_stays:
        report = _with_champion(report, version.champion_stays)
    if text:
        text()
    elif report.facts and not report.title:  # a plan
        print_facts(report.facts)
        print_notes(report.notes)
    elif report.page and not sys.stdout.isatty():
        print(report.artifacts[report.page], end="")
    else:
        # It prints the rows itself, and what else fits the screen.
        print_report(report, verbose=command.invocation.verbose, facts=rows)
        return
    if rows:
        print()
        print_facts(rows)


def _places(report: "Report", run: Run | None) -> dict[str, str]:
    """Where the run is: its id, its report, and its page if a server has it; nothing without a run that is stored."""
    if run is None or run.unsent:
        return {}
    page = report.page
    if report.title and not page:
        page = PAGE
    return {
        "id": run.id,
        "page": run.page() if run.store.is_server else "",
        "report": run.address_of(page) if page else "",
    }


def _last_rows(
    report: "Report", run: Run | None, version: Version | None, places: Mapping[str, str]
) -> list[tuple[str, str]]:
    """The last lines on the terminal: files, run, report and version, and the commands that come next."""
    from fsd.reporting.report import packed

    rows = [(name, str(path)) for name, path in {**context().read, **report.files}.items()]
    # A flag that they repeat may hold a password.
    commands = list(map(without_credentials, report.next))
    if run and places:
        rows.append(("run", places["id"]))
        if places["report"]:
            # Relative to the working folder, as long paths would be cut.
            rows.append(("report", places["report"].removeprefix(f"{Path.cwd()}/")))
        if places["page"]:
            rows.append(("page", places["page"]))
        else:
            commands.append("fsd ui")
    about = []
    if version:
        about = _version_words(version)
        if report.rate:
            command = f"fsd detect FILE --adapter {shlex.quote(version.uri)}"
            if report.rate != FPR:
                command += f" --fpr {report.rate:g}"
            commands.insert(0, command)
    widest = max(map(len, ["version", *dict(rows)]))
    room = shutil.get_terminal_size().columns - widest - 2
    for label, items, between in (("version", about, " "), ("next", commands, " · ")):
        for line in packed(items, room, between):
            # A further line has no label.
            rows.append((label, line))
            label = ""
    return rows


def _version_words(version: Version) -> list[str]:
    """The version, its aliases, and whether it is of an earlier run."""
    meanings = {CHAMPION: f"{CHAMPION}: the best so far"}
    words = [version.uri, *(f"({meanings.get(alias, alias)})" for alias in version.aliases)]
    if version.present:
        words.append("(equal to this run's: no new version)")
    return words


def _with_champion(report: "Report", stays: str) -> "Report":
    """The report with the reason why another version stays champion, among its findings."""
    from fsd.evaluation.findings import AGAINST, Finding

    reason = Finding(stays, AGAINST)
    return replace(report, findings=[*report.findings, reason], signs=[*report.spoken, reason])


def document(report: "Report", places: Mapping[str, str] | None, version: Version | None = None) -> str:
    """The JSON document of `--json`; numbers that are not finite are null."""
    tables = {}
    for table in report.tables:
        if table.name and table.numbers is not None:
            # pandas writes NaN as null, and 15 digits at most.
            tables[table.name] = json.loads(
                table.numbers.to_json(orient="records", double_precision=15, date_format="iso")
            )
    registered = version and {
        "name": version.name,
        "version": version.number,
        "uri": version.uri,
        "aliases": list(version.aliases),
    }
    files = {name: str(path) for name, path in report.files.items()}
    notes = report.notes + list(context().read.values())
    content = {
        "format": FORMAT,
        "command": context().command,
        "headline": report.line,
        "tables": tables,
        "notes": notes,
        "files": files,
        "run": places,
        "registered": registered,
    }
    return json.dumps(content, indent=2, allow_nan=False)
