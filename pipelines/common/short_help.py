"""The help of `-h`, which fits one screen: what the command is for, examples, and the flags that matter most."""

import re
import shutil
from argparse import Action
from collections.abc import Sequence
from textwrap import shorten

NARROWEST = 40
"""Columns of a terminal that says it has fewer, or none."""
WIDEST = 100
"""Columns of a line: longer ones are hard to read."""
LEAST = 10
"""Columns of what is said of a flag."""
MOST = 10
"""Flags of the short help."""
MATTERING = {
    "run": "data model domain reference-model placebo cutoff unseen detectors adapter dry-run",
    "detect": "FILE adapter fpr known cutoff same-source out report json dry-run",
    "score": "data out model detectors reference-model base-url chat columns shard dry-run",
    "tune": "data model tune trials objective detectors timeout storage workers dry-run",
    "ui": "port domain open",
    "extract": "BOOK control model prompts questions title prefix suffix base-url dry-run",
    "contamination": "FILE known model cutoff sets level base-url columns detectors dry-run",
    "adapter-audit": "data adapter tuned model fpr same-source columns out demo dry-run",
    "canary make": "data out kind variants alpha words repetitions columns seed dry-run",
    "canary test": "DIR model base-url start-token alpha withheld detectors domain seed dry-run",
    "overlap": "TEXTS CORPUS n out column corpus-column json dry-run",
    "compare": "RUN out json name",
    "study": "NAME list scale model data frequencies other seed columns dry-run",
    "collect": "domain limit after model before contemporaries out options dry-run",
    "pretrain": "members background out passes exposures layers hidden-size vocabulary device dry-run",
    "frequencies": "corpus out model column limit tokens shard engine dry-run",
}
"""Command → its flags that matter most, and its arguments, in this order; other commands show their first ones."""


def flag_lines(command: str, actions: Sequence[Action]) -> list[str]:
    """A line for each of the command's flags that matter, cut at the width of the terminal, and how to see all."""
    by_name = {_name(action): action for action in actions}
    del by_name["help"]
    mattering = MATTERING.get(command)
    names = mattering.split() if mattering else list(by_name)
    chosen = [by_name[name] for name in names[:MOST] if name in by_name]
    width = max(NARROWEST, min(shutil.get_terminal_size().columns, WIDEST))
    column = min(width // 2, max(map(len, map(_title, chosen))))
    lines = []
    for action in chosen:
        title = f"  {_title(action):<{column}}  "
        room = width - len(title)
        about = ""
        # A flag with many values has no room beside it.
        if room > LEAST:
            about = _cut(_about(action), room)
        lines.append((title + about).rstrip())
    lines.append(f"\n--help lists all {len(by_name)} flags.")
    return lines


def _cut(text: str, width: int) -> str:
    """As many whole clauses as fit, or else as many words."""
    if len(text) <= width:
        return text
    # Neither "Default: …" nor a word in brackets ends a clause.
    ends = re.finditer(r"(?<!e\.g)(?<![Dd]efault)[.;:] (?![^(]*\))", text)
    clauses = [clause.start() for clause in ends if clause.start() <= width]
    if clauses:
        return text[: clauses[-1]]
    return shorten(text, width, placeholder=" …")


def _name(action: Action) -> str:
    """The flag without its hyphens; of an argument the word that stands for it."""
    flag = _flag(action)
    return flag.removeprefix("--") or _metavar(action).strip("[]").split()[0]


def _flag(action: Action) -> str:
    """The long form that switches on; empty for an argument."""
    for option in action.option_strings:
        if option.startswith("--"):
            return option
    return ""


def _metavar(action: Action) -> str:
    metavar = action.metavar
    return " ".join(metavar) if isinstance(metavar, tuple) else str(metavar or "")


def _title(action: Action) -> str:
    return f"{_flag(action)} {_metavar(action)}".strip()


def _about(action: Action) -> str:
    """The help in plain characters, without its default."""
    return str(action.help or "").replace("%%", "%").strip()
