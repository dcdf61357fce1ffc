"""What stands around an answer: its conditions and its protocol before the model, and where its numbers come from."""

from collections.abc import Mapping
from typing import Any

from extensions.bundle import gate

Settings = Mapping[str, Any]
"""Name of a setting, or of what is asked of an answer → its value."""


def before(command: str, settings: Settings, asked: Settings) -> None:
    """Refuse conditions that no answer can meet; write the protocol of a dry run, or refuse a run that is not of it."""
    gate.conditions(command, asked)
    if asked.get("protocol"):
        from extensions.bundle.protocol import apply

        apply(command, settings, asked)


def files(command: str, settings: Settings) -> dict[str, object]:
    """Where the numbers of a run come from, if its command asks a model for evidence."""
    from extensions.bundle.provenance import INPUTS, provenance

    if command not in INPUTS:
        return {}
    return {"provenance.json": provenance(command, settings)}
