"""A command from its job, what is about to be done, to its end: the report in the tracked run and on the terminal."""

import contextlib
import json
import math
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from tyro.conf import FlagCreatePairsOff, arg

from fsd import distributed, tracking
from fsd.config import NEIGHBOURS, AdapterConfig, ModelConfig, OptionalName, OptionalPath, Recipe, flags
from fsd.errors import UsageError, at_least, without_credentials
from fsd.progress import stage as stage_line
from fsd.tracking import Run, Version

if TYPE_CHECKING:
    from fsd.reporting.report import Report
    from fsd.token_stats import Labelled
    from fsd.views import Detector

OWN_TAGS = frozenset(
    {
        *("base_model", "base_revision", "base_fingerprint", "model", "adapter", "reused_adapter", "method", "texts"),
        *("task", "tune", "study", "plan", "kind", "cell", "from", "process", "error", "fsd_version"),
    }
)
"""Tags that commands set themselves."""
VERSION = 1
"""Version of configuration files, which they may state under `version`."""
FORMAT = 1
"""Version of the JSON document."""
DESCRIBED = 3
"""Findings in the description of a run."""
PAGE = "report.html"
TOKEN = 3.0
"""Characters a token, about, of the small vocabularies of models that are pretrained from scratch."""
RUN_BYTES = 2**20
"""Bytes that any run takes, for figures and report."""
Passes = Mapping[str, int]
"""Reader (base, tuned, reference) → number of texts that it scores."""


@dataclass(frozen=True)
class Invocation:
    """How the command is run, and what it prints; every command has these options."""

    config: OptionalPath = None
    """YAML or TOML file of settings, named like the flags; flags on the command line replace them."""
    dry_run: FlagCreatePairsOff[bool] = False
    """Print what would be read, loaded, computed and written, and the memory; train, write and track nothing."""
    verbose: FlagCreatePairsOff[bool] = False
    """Print every table and remark; without it the end fits one screen, and the report has the rest."""
    json: FlagCreatePairsOff[bool] = False
    """Print the results as one JSON document on stdout, and everything else on stderr."""
    name: OptionalName = None
    """Name of the run in MLflow. Default: made of model, data and method."""
    tags: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE ...", help_behavior_hint="")] = ()
    """Tags of the run in MLflow, by which it can be found."""

    def check(self) -> None:
        """Check the tags."""
        for tag in self.tags:
            name, equals, _ = tag.partition("=")
            if not (equals and re.fullmatch(r"[\w. :/-]{1,250}", name)):
                raise UsageError(f"tags must look like KEY=VALUE; got {tag!r}")
            if name.startswith("mlflow."):
                raise UsageError(f"tags must not begin with mlflow., which MLflow itself sets; got {tag!r}")
            if name in OWN_TAGS:
                raise UsageError(
                    f"tags must not replace those of commands ({', '.join(sorted(OWN_TAGS))}); got {tag!r}"
                )

    @property
    def run_tags(self) -> dict[str, str]:
        """The tags of the run."""
        return dict(tag.split("=", 1) for tag in self.tags)


USUAL = {
    "data": "settings and texts",
    "model": "model",
    "scoring": "scoring",
    "recording": "recording: figures, report",
}
"""Stages of most commands: name → what is shown."""
LATE = ("finetuning", "tuning", "scoring", "placebo", "judging", "recording")
"""Stages after all checks: elsewhere than on a terminal only they are shown, so that a mistake is one line."""


@dataclass
class Stages:
    """The stages of a command, each shown by a line that stays, and the seconds spent in it, by metric name."""

    names: Mapping[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Show the stage, if it is one of `names`, and add the time of the block to its seconds."""
        key, begun = f"seconds/{name}", time.perf_counter()
        line: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if name in self.names and distributed.is_main_process() and (sys.stderr.isatty() or name in LATE):
            number = f"[{list(self.names).index(name) + 1}/{len(self.names)}] " if len(self.names) > 1 else ""
            line = stage_line(number + self.names[name], again=key in self.seconds)
        with line:
            yield
        self.seconds[key] += time.perf_counter() - begun


@dataclass(frozen=True)
class Context:
    """The command that is running: its name, empty where a pipeline is called as a function, and where it prints."""

    command: str = ""
    invocation: Invocation = Invocation()
    stdout: TextIO | None = None
    stages: Stages | None = None


_CONTEXT = ContextVar("context", default=Context())  # noqa: B039 - frozen


def stages() -> Stages:
    """The stages of the command that is running; new ones without lines where a pipeline is called as a function."""
    return _CONTEXT.get().stages or Stages()


def stage(name: str) -> contextlib.AbstractContextManager[None]:
    """A stage of the command that is running."""
    return stages()(name)


@contextmanager
def running(command: str, invocation: Invocation, names: Mapping[str, str] = USUAL) -> Iterator[None]:
    """Make a command the one that is running; with `--json`, whatever else prints to stdout goes to stderr."""
    stdout = sys.stdout
    token = _CONTEXT.set(Context(command, invocation, stdout, Stages(names)))
    try:
        with redirect_stdout(sys.stderr if invocation.json else stdout):
            yield
    finally:
        _CONTEXT.reset(token)


@dataclass(frozen=True)
class Job:
    """A command whose settings and files have been checked.

    Attributes:
        work: does it.
        reads: what is read → files and numbers of texts.
        model: the model under test; None if none is loaded.
        texts: texts that are scored; None if they are not on this machine, so that they cannot be counted.
        passes: see `Passes`.
        trained: texts that are trained on.
        training: how; None without training.
        rounds: how often training and scoring are repeated, such as by the trials of a tuning.
        writes: what is written.
        experiment: of the tracked run; empty for a command that is not tracked.
        notes: what the numbers leave out.
    """

    work: Callable[[], object]
    reads: Mapping[str, str]
    model: ModelConfig | None = None
    texts: Sequence[str] | None = ()
    passes: Passes = field(default_factory=dict)
    trained: Sequence[str] = ()
    training: AdapterConfig | None = None
    rounds: int = 1
    writes: Sequence[object] = ()
    experiment: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        prefix, _, domain = self.experiment.partition("-")
        if prefix == "fsd":
            check_name("domain", domain)

    def check(self) -> None:
        """Refuse what could not be stored."""
        if self.experiment:
            check_space([*(self.texts or ()), *self.trained])
            distributed.from_main(tracking.check_store)

    def run(self) -> object:
        """Do the work, after a check that its results can be stored."""
        self.check()
        return self.work()

    def plan(self) -> "Report":
        """What would be done, without doing it."""
        import pandas as pd

        from fsd.reporting.report import Report, Section, numbers

        writes = [str(path) for path in self.writes if path]
        writes += [f"a run of the experiment {self.experiment}"] if self.experiment else []
        rows = [*self.reads.items(), *self._model(), ("writes", ", ".join(writes) or "nothing")]
        rows = [(name, without_credentials(value)) for name, value in rows]
        frame = pd.DataFrame(rows, columns=["what", "value"])
        notes = [*self.notes, "dry run: nothing was trained, scored, written or tracked"]
        return Report(
            headline="dry run", findings=notes, sections=[Section("", tables=[numbers("plan", frame)])], facts=rows
        )

    def _model(self) -> list[tuple[str, str]]:
        if self.model is None:
            return []
        name, steps = self.model.model, 0
        if self.training and self.trained:
            steps = math.ceil(len(self.trained) / self.training.batch_size) * self.training.epochs * self.rounds
        work = ", ".join(f"{count * self.rounds:,} by {reader}" for reader, count in self.passes.items())
        passes = f"{sum(self.passes.values()) * self.rounds:,} texts ({work})"
        computes = [
            ("forward passes", "unknown before the download" if self.texts is None else passes),
            ("training steps", f"{steps:,}"),
        ]
        if name.startswith("api:"):
            return [("model", f"{name}, behind an API: nothing is loaded"), *computes]
        from fsd.net.hub import model_size

        size = model_size(name, self.model.revision)
        if size is None:
            absent = f"{name}: not on this machine, to be downloaded; its size is known after that"
            return [("model", absent), *computes]
        from fsd.models.language_model import load_tokenizer, memory, token_ids

        rows = [
            ("model", f"{name}: {size.parameters:,} parameters, {byte_size(size.size)} in {size.folder}"),
            *computes,
        ]
        if self.texts is not None:
            tokenizer, _ = load_tokenizer(name, revision=self.model.revision)
            count = sum(map(len, token_ids(tokenizer, self.texts))) if self.texts else 0
            rows.append(("tokens", f"{count:,} in the texts to score"))
        low, high, device = memory(size, self.model, trained=bool(steps))
        return [*rows, ("memory", f"{byte_size(low)} to {byte_size(high)} on {device}")]


def check_name(flag: str, name: str) -> None:
    """Check that a name can be part of the names of experiments and studies."""
    if not re.fullmatch(r"[\w.-]{1,100}", name) or set(name) == {"."}:
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise UsageError(f"{flag} must be 1 to 100 letters, digits, _, - and .; got {shown!r}")


def passes(
    detectors: "Iterable[Detector]",
    texts: Sequence[str],
    model: ModelConfig,
    *,
    states: Sequence[str] = ("base", "tuned"),
    unseen: bool | Sequence[object] = True,
    labelled: "Labelled" = MappingProxyType({}),
    strict: bool | None = None,
    chat: bool = False,
) -> Passes:
    """Number of texts that each model scores, shared views once; refuses what cannot be computed, like `usable`."""
    from fsd.scoring.api import BYTES_PER_TOKEN
    from fsd.scoring.model import API, KNOWN, WORD_SWAPS, both_sides, draws, member_prefix, reader_names
    from fsd.token_stats import Known, Prompt
    from fsd.views import FORMS, ViewInputs, usable, view_in

    at_least(1, **{"max-batch-tokens": model.max_batch_tokens})
    words = model.neighbour_model in (None, "words")
    has_neighbours = bool(unseen) and (model.neighbour_model is not None or model.model == "embedded")
    copies: Callable[[str], Sequence[str]] = lambda _: ()  # noqa: E731 - counted, never made
    sides, prefixed = both_sides(labelled, 0), member_prefix(labelled, 0, 0)
    totals = {"known": 0 if isinstance(unseen, bool) else 3 * min(KNOWN, len(unseen))}
    totals["labelled"] = 3 * len(sides.prompts) if sides else 0
    common = {form: Known([]) for form, total in totals.items() if total}
    inputs = ViewInputs("a prefix" if unseen else "", copies if has_neighbours else None, copies, prefixed, **common)
    sizes = {"neighbours": model.neighbours or (WORD_SWAPS if words else NEIGHBOURS), "swapped": WORD_SWAPS}
    sizes |= {"repeated": 2}
    ways = draws(model)
    readers = [name for name in reader_names(model) if name not in ("base", "tuned") or name in states]
    readers = [] if chat else readers
    known = None if model.model.startswith(API) and not chat else strict  # an API has to be asked what it gives
    computable = usable(list(detectors), texts, readers, inputs, strict=known)[0]
    counts = Counter[str]()
    for view in {view_in(state, view) for detector in computable for state in states for view in detector.views}:
        if view.reader != "unigram":
            reader = f"{view.reader} with gradients" if view.form == "gradient" else view.reader
            if way := ways.get(view.form):
                truths = [FORMS[view.form](Prompt(text), inputs)[0].text.encode() for text in texts]
                each = sum(way.tokens or math.ceil(len(truth) / BYTES_PER_TOKEN) for truth in truths)
                sizes[view.form], reader = way.total, f"{reader} generating about {way.total * each:,} tokens"
            counts[reader] += totals.get(view.form, len(texts) * sizes.get(view.form, 1))
    return dict(sorted(counts.items()))


def files(names: Iterable[object], texts: int | None = None) -> str:
    """Files with their number of texts, if it is known."""
    listed = list(map(str, names))
    shown = ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
    return shown if texts is None else f"{texts:,} texts in {shown}"


def pretraining(recipe: Recipe, tokens: float) -> dict[str, str]:
    """Size of a model that is pretrained from scratch, and what it is trained on, over all passes and models."""
    count = 12 * recipe.layers * recipe.hidden_size**2 + 2 * recipe.vocabulary * recipe.hidden_size
    return {"model": f"about {count:,} parameters, from scratch", "tokens": f"about {tokens:,.0f} to train on"}


def on_this_machine(name: str) -> bool:
    """Whether a file or model can be read without the network."""
    from fsd.net.gguf import SMOLLM2
    from fsd.net.hub import EMBEDDED

    return name in (SMOLLM2, *EMBEDDED) or Path(name).expanduser().exists()


def byte_size(number: float) -> str:
    """A number of bytes in a fitting unit."""
    power = min(int(math.log10(max(number, 1)) / 3), 4)
    return f"{number / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def check_space(texts: Iterable[str]) -> None:
    """Refuse disks of temporary files and runs without room for tables of the texts, estimated far below the need."""
    needed = RUN_BYTES + sum(map(len, texts)) // 8
    for name, folder in (("TMPDIR", Path(tempfile.gettempdir())), ("the working folder", Path.cwd())):
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise UsageError(
                f"{name} must have at least {needed / 2**20:.1f} MiB of free space; {folder} has {free / 2**20:.1f} MiB"
            )


def run_name(model: str, files: Sequence[str], method: str) -> str:
    """Name of a run: method, texts and model in few characters; `Run.conclude` puts the best score before it."""
    texts = Path(files[0]).stem + (f" + {len(files) - 1}" if len(files) > 1 else "") if files else ""
    return " · ".join(filter(None, (method, texts, Path(model).name)))


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
    own, running = dict(tags or {}), _CONTEXT.get()
    assert own.keys() <= OWN_TAGS, own  # or a tag of the user's could replace one of them
    given, chosen = running.invocation.run_tags, running.invocation.name
    params = flags(config) if params is None else params
    opened = tracking.run(experiment, chosen or name, params=params, tags=own | given, description=description)
    with contextlib.ExitStack() as stack:
        with stage("opening"), stage_line("opening the run", again=True):
            run = stack.enter_context(opened)
            run.log("config.yaml", dump(config, running.command))
        yield run


def dump(config: Any, command: str) -> str:
    """The settings as a configuration file in YAML, without the credentials of URLs."""
    import yaml

    def plain(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [plain(entry) for entry in value]
        return without_credentials(str(value)) if isinstance(value, str | Path) else value

    own = {"version": VERSION} | ({"command": command} if command else {})
    entries = {name.replace("_", "-"): plain(value) for name, value in flags(config).items()}
    return str(yaml.safe_dump(own | entries, sort_keys=False, allow_unicode=True))


def deliver(report: "Report | Callable[[], Report]", run: Run) -> None:
    """Log the report, or what makes it, to its run, and print it."""
    with stage("recording"):
        made = report() if callable(report) else report
        publish(made, run)
    show(made, run)


def publish(report: "Report", run: Run) -> None:
    """Log metrics, files, tables and the page of a report, and give the run its final name and its description."""
    run.log_metrics(report.metrics)
    for name, content in report.artifacts.items():
        run.log(name, content)
    for picture in report.pictures:
        if picture.name:
            run.log(picture.name, picture.png)
    if report.title:
        import pandas as pd

        from fsd.reporting.report import page

        for table in report.tables:
            if table.name and table.columns:
                run.log(f"{table.name}.json", pd.DataFrame(table.rows, columns=table.head))
        run.log(PAGE, page(dated(report)))
    if report.score:
        score = "" if _CONTEXT.get().invocation.name else report.score
        run.conclude(score, report.description or "\n\n".join(report.findings[:DESCRIBED]))


def dated(report: "Report") -> "Report":
    """The report with the command, the versions and the date among its facts."""
    command, found = _CONTEXT.get().command, dict(tracking.versions())
    typed = without_credentials(shlex.join(["fsd", *command.split(), *sys.argv[1:]]))
    commit = found.pop("commit", "")
    own = {
        "Command": typed if command else "",
        "Versions": ", ".join(f"{name} {number}" for name, number in found.items()),
        "Commit": commit,
        "Date": date.today().isoformat(),
    }
    return replace(report, facts=[*report.facts, *((name, value) for name, value in own.items() if value)])


@contextmanager
def _as_far_as_read() -> Iterator[None]:
    """Go on where the reader of the output, `head` for example, has closed it: the run is stored all the same."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), (_CONTEXT.get().stdout or sys.stdout).fileno())


@_as_far_as_read()
def show(
    report: "Report",
    run: Run | None = None,
    version: Version | None = None,
    *,
    text: Callable[[], object] | None = None,
) -> None:
    """Print a report and where it is: for people, or with `--json` as one document."""
    running, places = _CONTEXT.get(), {}
    if run and not run.gone:
        page = report.page or (PAGE if report.title else "")
        places = {"id": run.id, "page": run.page(), "report": run.address_of(page) if page else ""}
    if running.invocation.json:
        print(document(report, places or None, version), file=running.stdout or sys.stdout, flush=True)
        return
    from fsd.reporting.report import Against, packed, print_facts, print_notes, print_report

    here = f"{Path.cwd()}/"
    rows = [(name, str(path)) for name, path in report.files.items()]
    named = (("run", "id"), ("report", "report"))
    rows += [(name, places[key].removeprefix(here)) for name, key in named if places.get(key)]
    next_ones = list(report.next)
    if places and run:
        served = run.store.uri.startswith("http")
        rows += [("page", places["page"])] if served else []
        next_ones += [] if served else ["fsd ui"]
    if version:
        about = [*version.aliases, *(["equal to this run's: no new version"] if version.present else [])]
        rows.append(("version", version.uri + (f" ({'; '.join(about)})" if about else "")))
        next_ones[:0] = [f"fsd detect FILE --adapter {version.uri}"] if report.verdicts else []
    room = shutil.get_terminal_size().columns - max(len(name) for name, _ in [*rows, ("next", "")]) - 2
    rows += [("" if at else "next", line) for at, line in enumerate(packed(next_ones, room, " · "))]
    if version and (stays := version.champion_stays):
        signs = [*report.signs, (False, stays)] if report.signs else []
        report = replace(report, findings=[*report.findings, Against(stays)], signs=signs)
    if text:
        text()
    elif report.facts and not report.title:  # a plan
        print_facts(report.facts)
        print_notes(report.findings)
    elif report.page and not sys.stdout.isatty():
        print(report.artifacts[report.page], end="")
    else:
        print_report(report, verbose=running.invocation.verbose, facts=rows)
        return
    if rows:
        print()
        print_facts(rows)


def document(report: "Report", places: Mapping[str, str] | None, version: Version | None = None) -> str:
    """The JSON document of `--json`; numbers that are not finite are null."""
    tables = {table.name: table.numbers for table in report.tables if table.name}
    how: dict[str, Any] = {"orient": "records", "double_precision": 15, "date_format": "iso"}
    content = {
        "format": FORMAT,
        "command": _CONTEXT.get().command,
        "headline": report.line,
        "tables": {name: json.loads(table.to_json(**how)) for name, table in tables.items() if table is not None},
        "notes": list(report.findings),
        "files": {name: str(path) for name, path in report.files.items()},
        "run": places,
        "registered": version
        and {"name": version.name, "version": version.number, "uri": version.uri, "aliases": list(version.aliases)},
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
