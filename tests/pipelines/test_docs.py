"""Every command in the README and the docs: its options exist, and it runs where it needs no network.

README and tutorial are followed from a fresh clone in tests/test_first_use.py.
"""

import json
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fsd.config import FSDConfig
from fsd.errors import UsageError
from pipelines.command import cli
from pipelines.command.commands import commands

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # runpy of what is imported

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = {name: command.module for name, command in commands().items()}
# Of names that begin alike, such as those of two words, the longer one first.
NAMES = "|".join(sorted(MODULES, key=len, reverse=True))
START = re.compile(rf"(?:^|\s)(?:-m (?P<module>(?:pipelines|benchmarks)\.\w+)|fsd (?P<word>{NAMES}))(?=\s|$)")
OPERATORS = {"&", "&&", "|", ";", ">"}


class Command(NamedTuple):
    """A command of a page: the module that it starts, and its arguments."""

    page: str
    module: str
    arguments: tuple[str, ...]
    inline: bool = False
    program: str = ""

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
            if not found:
                continue
            module = found["module"] or MODULES[found["word"]]
            program = found["word"] and f"fsd {found['word']}"
            line = re.split(r"\s#", line[found.end() :])[0]
            words = list(takewhile(lambda word: word not in OPERATORS, shlex.split(line.replace(";", " ;"))))
            arguments = tuple(word.replace("$", "") for word in words if word != "...")
            yield Command(page.name, module, arguments, inline, program or f"python -m {module}")


ALL = list(dict.fromkeys(commands()))
PIPELINES = [command for command in ALL if command.module in MODULES.values()]


class Parsed(Exception):  # noqa: N818 - the end of parsing, not an error
    """Carries a configuration and the function that prepares it."""


def parse(command: Command, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Callable[[Any], Any]]:
    """The configuration that the command line gives, and the pipeline's function `prepare`."""

    def stop(config: type[Any], prepare: Callable[[Any], object], description: str, **_: object) -> None:
        raise Parsed(cli.read(config, description)[0], prepare)

    monkeypatch.setattr(cli, "command", stop)
    monkeypatch.setattr(sys, "argv", [command.program, *command.arguments])
    with pytest.raises(Parsed) as parsed:
        runpy.run_module(command.module, run_name="__main__")
    config, prepare = parsed.value.args
    return config, prepare


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


def test_benchmarks_make_targets_and_links_exist() -> None:
    for module in {command.module for command in ALL} - {command.module for command in PIPELINES}:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    used = {name for page in PAGES for line, _ in blocks(page) for name in re.findall(r"^make ([a-z]+)", line)}
    assert used <= targets
    for page in PAGES:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", [page for page in PAGES[1:] if "```python" in page.read_text(encoding="utf-8")])
@pytest.mark.slow
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S):
        exec(compile(block, page.name, "exec"), {"__name__": "block"})


STAND_INS = {"data": ("data.jsonl",), "corpus": ("data.jsonl",), "columns": "", "epochs": 1, "placebo": "none"}
"""What is taken in place of the reader's own files, and of what takes long."""


def runnable(config: Any, tiny: Path) -> Any:
    """The configuration with a tiny model and the files of the finished run for the reader's own, and short."""
    changes: dict[str, Any] = {}
    for name in (entry.name for entry in fields(config)):
        value = getattr(config, name)
        if is_dataclass(value):
            changes[name] = runnable(value, tiny)
        elif name in STAND_INS and value:
            changes[name] = STAND_INS[name]
        elif name == "unseen" and isinstance(value, str):
            changes[name] = "new.jsonl"
        elif name == "adapter" and str(value).startswith("./"):
            changes[name] = "models:/fsd-arxiv/1"
        elif name in ("model", "reference_model") and value and not str(value).startswith("embedded"):
            changes[name] = str(tiny)
        elif name == "detectors" and value == "auto":
            changes[name] = "loss,min_k"
    config = replace(config, **changes)
    if isinstance(config, FSDConfig) and (config.adapter or config.model.model == str(tiny)):
        data = replace(config.data, data=("data.jsonl",))
        config = replace(config, data=data, model=replace(config.model, model=str(tiny)), audit_repeats=1)
    return config


def runs_offline(command: Command) -> bool:
    """Whether the command needs no service; tuning, studies and evidence have tests of their own."""
    services = r"api:|hf://|--device spread|--bits|--engine|--shard "  # these of an array have no numbers
    modules = ("pipelines.fsd", "pipelines.score", "pipelines.frequencies")
    if command.page in ("README.md", "tutorial.md"):
        return False
    return command.module in modules and not command.inline and not re.search(services, " ".join(command.arguments))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", sorted({command.page for command in PIPELINES if runs_offline(command)}))
def test_the_commands_of_a_page_run(page, finished_run, tiny, make_rows, tmp_path, monkeypatch) -> None:
    shutil.copytree(finished_run.folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    Path("new.jsonl").write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in make_rows(30, seed=1)))
    ran: list[Any] = []
    for command in [command for command in PIPELINES if command.page == page and runs_offline(command)]:
        with monkeypatch.context() as patch:
            config, prepare = parse(command, patch)
        config = runnable(config, tiny)
        if config not in ran:
            prepare(config).run()
            ran.append(config)
