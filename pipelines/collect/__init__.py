"""Collection of dated texts of a domain: the settings of `fsd collect`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

Day = Annotated[str, arg(metavar="DAY", help_behavior_hint="")]


@dataclass(frozen=True)
class Collect:
    """Collect dated texts of a domain."""

    domain: Annotated[str, arg(metavar="NAME")]
    """arxiv, wikipedia, books, patents, stackexchange, local, or any other file in fsd/collection/domains."""
    limit: int
    """Most texts; of a benchmark, on each side."""
    after: Day = ""
    """Collect non-members: first published after this day (YYYY-MM-DD, exclusive)."""
    model: Annotated[str, arg(metavar="MODEL", help_behavior_hint="")] = ""
    """Take the cutoff, in place of --after (or --before), from the table of known ones: a hub id, or embedded."""
    before: Day = ""
    """Collect members: first published before this day (exclusive)."""
    contemporaries: bool = False
    """Collect non-members published before --before, known not to be in the training data; --after is a lower bound."""
    out: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """The .jsonl file to write; by default named after the domain and the dates."""
    options: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help_behavior_hint="")] = ()
    """Options of the domain, e.g. categories=cs.CL,cs.LG or path=dump.jsonl; an unknown one lists them all."""
    language: Annotated[str, arg(metavar="CODE", help_behavior_hint="")] = ""
    """Language code that each text must match; by default the domain's own, `any` for no check."""
    min_words: int = 32
    """Drop shorter texts."""
    benchmark_of: Annotated[tuple[str, ...], arg(metavar="FILE ...", help_behavior_hint="")] = ()
    """Benchmark files; their texts and near-duplicates of them are dropped."""
    drop_shared: bool = False
    """Leave out what members and non-members share, instead of refusing the benchmark."""
