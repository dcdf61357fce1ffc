"""Every command in the README and the docs: its options exist, and it runs where it needs no network."""

import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from fsd.config import AdapterConfig, FSDConfig, TuneConfig
from fsd.errors import UsageError
from pipelines.__main__ import COMMANDS
from pipelines.common import cli

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # runpy of what is imported

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = {name: module for name, (module, _) in COMMANDS.items()}
START = re.compile(r"(?:^|\s)(?:-m (?P<module>(?:pipelines|benchmarks)\.\w+)|fsd (?P<word>[a-z-]+))(?=\s|$)")


OPERATORS = {"&", "&&", "|", ";", ">"}


class Command(NamedTuple):
    """A command of a page: the module that it starts, and its arguments."""

    page: str
    module: str
    arguments: tuple[str, ...]
    inline: bool = False

    def __str__(self) -> str:
        return f"{self.page}: {self.module.removeprefix('pipelines.')} {' '.join(self.arguments)}"


def blocks(page: Path) -> Iterator[tuple[str, bool]]:
    """The lines of shell code, continued lines joined, and whether the code is inline."""
    language: str | None = None
    for line in re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8")).splitlines():
        if line.startswith("```"):
            language = line.removeprefix("```") if language is None else None
        elif language in ("", "bash", "sh", "console") or (language is None and line.startswith("    ")):
            yield line, False
        elif language is None:
            yield from ((code, True) for code in re.findall(r"`([^`]+)`", line) if "[" not in code)


def commands() -> Iterator[Command]:
    """Every call of a pipeline or a benchmark on the pages."""
    for page in PAGES:
        for line, inline in blocks(page):
            found = START.search(line)
            if not found or (found["word"] and found["word"] not in MODULES):
                continue
            module = found["module"] or MODULES[found["word"]]
            line = re.split(r"\s#", line[found.end() :])[0]
            words = list(takewhile(lambda word: word not in OPERATORS, shlex.split(line.replace(";", " ;"))))
            yield Command(page.name, module, tuple(word.replace("$", "") for word in words if word != "..."), inline)


ALL = list(dict.fromkeys(commands()))
PIPELINES = [command for command in ALL if command.module.startswith("pipelines")]


class Parsed(Exception):  # noqa: N818 - the end of parsing, not an error
    """Carries a configuration and the function that runs it."""


def parse(command: Command, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Callable[[Any], object]]:
    """The configuration that the command line gives, and the pipeline's main function."""

    def stop(config: type[Any], main: Callable[[Any], object], description: str, **_: object) -> None:
        raise Parsed(cli.parse(config, description), main)

    monkeypatch.setattr(cli, "command", stop)
    monkeypatch.setattr(sys, "argv", [command.module, *command.arguments])
    with pytest.raises(Parsed) as parsed:
        runpy.run_module(command.module, run_name="__main__")
    config, main = parsed.value.args
    return config, main


def test_the_pages_show_every_pipeline() -> None:
    assert {command.module for command in PIPELINES} == set(MODULES.values())


@pytest.mark.parametrize("command", PIPELINES, ids=str)
def test_options_exist(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    if "--help" in command.arguments:
        return
    try:
        parse(command, monkeypatch)
    except UsageError as error:
        if not (command.inline and str(error).startswith("required:")):  # a mention may leave out what is required
            raise


@pytest.mark.parametrize("module", sorted({c.module for c in ALL if c.module.startswith("benchmarks")}))
def test_benchmarks_exist(module: str) -> None:
    path = ROOT / module.replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    used = {name for page in PAGES for line, _ in blocks(page) for name in re.findall(r"^make ([a-z]+)", line)}

    assert used <= targets


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")])
@pytest.mark.slow
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S):
        exec(compile(block, page.name, "exec"), {"__name__": "block"})


def test_links_lead_somewhere() -> None:
    lost = [
        f"{page.name}: {link}"
        for page in PAGES
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]

    assert lost == []


# Running them: stand-ins for the reader's own model and files, short training, no network

HUB = re.compile(r"^(EleutherAI|huggyllama)/.*|^ID$|^\./my-model$|^MODEL$|^lab/\w+$")
OFFLINE = {"pipelines.fsd", "pipelines.score", "pipelines.frequencies", "pipelines.study"}  # tuning: see test_tune.py


def runs_offline(command: Command) -> bool:
    """Whether the command needs neither a service nor a published benchmark nor several processes."""
    line = " ".join(command.arguments)
    if (
        command.inline
        or command.module not in OFFLINE
        or re.search(r"api:|hf://|postgresql|--device spread|--bits|--corpus hf|^lab ", line)  # lab: test_lab.py
    ):
        return False
    own_texts = "--data" in command.arguments
    own_model = "--model" in command.arguments and "embedded" not in line
    return command.module in ("pipelines.study", "pipelines.frequencies") or own_texts or not own_model


@pytest.fixture(scope="session")
def stand_ins(tiny: Path, make_rows: Callable[..., Any]) -> dict[str, Any]:
    rows = pd.DataFrame(make_rows(60, seed=3))
    return {"model": str(tiny), "rows": rows}


def write(path: Path, rows: pd.DataFrame, names: dict[str, str]) -> None:
    """The rows as a file of the format that its ending names."""
    table = rows.rename(columns={own: theirs for own, theirs in names.items() if own in rows})
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
    elif ".csv" in path.suffixes:
        table.to_csv(path, index=False)
    else:
        table.to_json(path, orient="records", lines=True, force_ascii=False)


def prepared(command: Command, stand_ins: dict[str, Any]) -> Command:
    """The command with stand-ins for what a reader would have: a model of their own, files of their own."""
    arguments = [stand_ins["model"] if HUB.match(a) else a for a in command.arguments]
    columns = arguments[arguments.index("--columns") + 1] if "--columns" in arguments else ""
    names = dict(pair.split("=") for pair in columns.split(",") if pair)
    inputs = ("--data", "--unseen", "--corpus", "--members")
    for at, argument in enumerate(arguments):
        if argument in inputs:
            for name in arguments[at + 1 :]:
                if name.startswith("--"):
                    break
                if re.search(r"\.(jsonl|csv|parquet)(\.gz)?$", name):
                    rows = stand_ins["rows"]
                    part = rows[rows.label == 0].tail(10) if argument == "--unseen" else rows
                    if argument == "--unseen":
                        part = part.assign(text=[f"{text} once more {n}" for n, text in enumerate(part.text)])
                    write(Path(name), part, names)
    return command._replace(arguments=tuple(arguments))


def shortened(config: Any) -> Any:
    """The same configuration with a short training, few detectors and few trials."""
    if isinstance(config, TuneConfig):
        job = shortened(config.job)
        if config.job.detection.detectors == "all":
            job = replace(job, detection=replace(job.detection, detectors="min_k"))
        return replace(config, job=job, trials=2, folds=2, repeats=1, timeout=20)
    if isinstance(config, FSDConfig):
        detectors = "loss,min_k" if config.detection.detectors == "all" else config.detection.detectors
        return replace(
            config,
            training=AdapterConfig(method=config.training.method, epochs=1),
            detection=replace(config.detection, detectors=detectors),
            placebo="none",
        )
    return config


@pytest.fixture(scope="session")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tracked run and the adapter that --adapter models:/... and --settings-from refer to."""
    from pipelines.fsd import prepare

    folder = tmp_path_factory.mktemp("first_run")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare(shortened(FSDConfig())).run()
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", sorted({command.page for command in PIPELINES if runs_offline(command)}))
def test_the_commands_of_a_page_run(page, stand_ins, first_run, tmp_path, monkeypatch) -> None:
    shutil.copytree(first_run, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for command in [c for c in PIPELINES if c.page == page and runs_offline(c)]:
        with monkeypatch.context() as patch:
            config, prepare = parse(prepared(command, stand_ins), patch)
        prepare(shortened(config)).run()
