"""Does a test notice each of these one-line changes of the source? python -m benchmarks.mutants --help.

Every entry of `mutants.yaml` is applied to a temporary copy of the tree, alone, and the quick tests of the file that
tests this part of the source are run (`-m "not slow"`, those of `make test`). A change that no test notices is a
correction, a constant or a boundary that somebody could break unseen. First the same tests must pass without a change.

    python -m benchmarks.mutants
    python -m benchmarks.mutants --only calibration --out table.md

The exit status is 1 if a change is not noticed, or does not apply since its original text is not there exactly once.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import tyro

from benchmarks.mutants.listed import LIST, ROOT, Mutant, mutants

FAILED = re.compile(r"^(?:FAILED|ERROR) \S+?::(\S+)", re.MULTILINE)
"""A failed test in the summary of pytest."""
LEFT_OUT = (".*", "mlruns", "build", "__pycache__", "*.egg-info", "docs")
"""Names of files and folders that the tests of the list do not need."""
NOT_NOTICED, NOT_THERE, NOT_RUN = "**no test**", "**does not apply**", "**no test ran**"


@dataclass(frozen=True)
class Settings:
    """Which changes to try, and where to write the table."""

    only: str = ""
    """Try the changes alone whose source file, test file or text contains this."""
    out: str | None = None
    """File for the table; it is printed at any rate."""
    list: str = str(LIST)
    """File with the changes."""


class Outcome(NamedTuple):
    """A change, the test that noticed it or why none did, and the seconds of the tests."""

    mutant: Mutant
    noticed_by: str
    seconds: float

    @property
    def good(self) -> bool:
        """Whether a test noticed the change."""
        return self.noticed_by not in (NOT_NOTICED, NOT_THERE, NOT_RUN)


def copied(folder: Path) -> Path:
    """A copy of the tree, in which changes are made."""
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
    return tree


def run_tests(tree: Path, test: str) -> tuple[bool, str]:
    """Run the quick tests of a file in the tree: whether they pass, and what pytest prints."""
    command = [sys.executable, "-m", "pytest", test, "-m", "not slow", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "400"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def attempt(tree: Path, mutant: Mutant) -> Outcome:
    """Apply one change to the tree, run its tests, and take the change back."""
    file = tree / mutant.file
    source = file.read_text(encoding="utf-8")
    changed = mutant.applied(source)
    if changed is None:
        return Outcome(mutant, NOT_THERE, 0.0)
    begun = time.perf_counter()
    try:
        replace(file, changed)
        passed, output = run_tests(tree, mutant.test)
    finally:
        replace(file, source)
    seconds = time.perf_counter() - begun
    if passed:
        return Outcome(mutant, NOT_NOTICED, seconds)
    failed = FAILED.search(output)
    return Outcome(mutant, failed[1] if failed else NOT_RUN, seconds)


def replace(file: Path, source: str) -> None:
    """Write a source file anew, and delete its byte code, which a change within the same second would not outdate."""
    file.write_text(source, encoding="utf-8")
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as a Markdown table."""
    lines = ["| file | change | what would go wrong | noticed by | s |", "|---|---|---|---|---:|"]
    for outcome in outcomes:
        mutant = outcome.mutant
        change = mutant.change.replace("|", r"\|")
        noticed_by = outcome.noticed_by.replace("|", r"\|")
        lines.append(f"| {mutant.file} | `{change}` | {mutant.harm} | {noticed_by} | {outcome.seconds:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Try the changes one by one, and print the table."""
    settings = tyro.cli(Settings)
    chosen = [one for one in mutants(Path(settings.list)) if settings.only in f"{one.file} {one.test} {one.change}"]
    if not chosen:
        sys.exit(f"only must be part of a file or change of the list; got {settings.only!r}")
    with tempfile.TemporaryDirectory(prefix="fsd-mutants-") as folder:
        tree = copied(Path(folder))
        for test in dict.fromkeys(one.test for one in chosen):
            passed, output = run_tests(tree, test)
            if not passed:
                sys.exit(f"the tests must pass without a change; {test} does not:\n{output[-3000:]}")
        outcomes = []
        for mutant in chosen:
            outcome = attempt(tree, mutant)
            outcomes.append(outcome)
            print(f"{outcome.seconds:4.0f} s  {mutant.file}: {mutant.change}: {outcome.noticed_by}", file=sys.stderr)
    good = sum(outcome.good for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    found = f"{table(outcomes)}\n\n{good} of {len(outcomes)} changes are noticed; {seconds:.0f} s in all."
    print(found)
    if settings.out:
        Path(settings.out).write_text(f"{found}\n", encoding="utf-8")
    sys.exit(good < len(outcomes))


if __name__ == "__main__":
    main()
