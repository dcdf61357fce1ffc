"""The list of one-line changes, `mutants.yaml`."""

from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
"""Folder of the repository."""
LIST = Path(__file__).with_name("mutants.yaml")


@dataclass(frozen=True)
class Mutant:
    """A change of one line of the source, and the test file that must notice it."""

    file: str
    """Source file."""
    test: str
    """Test file of that part of the source."""
    original: str
    """Text that occurs once in the source file."""
    replacement: str
    harm: str
    """What would go wrong for a user."""

    @property
    def change(self) -> str:
        """The change in one line."""
        return f"{self.original} → {self.replacement or 'nothing'}"

    def applied(self, source: str) -> str | None:
        """The changed source; None unless the original text occurs in it exactly once."""
        if source.count(self.original) != 1:
            return None
        return source.replace(self.original, self.replacement)


def mutants(file: Path = LIST) -> list[Mutant]:
    """The changes of a list, in its order."""
    read = []
    for block in yaml.safe_load(file.read_text(encoding="utf-8")):
        for entry in block["changes"]:
            change = Mutant(block["file"], block["test"], entry["original"], entry["replacement"], entry["harm"])
            read.append(change)
    return read
