"""What stands around an answer: its protocol before the model is asked, and where its numbers come from."""

from collections.abc import Mapping
from typing import Any

from fsd.api import UsageError

Settings = Mapping[str, Any]
"""Flag, of a command or of what is asked of its answer → its value."""


def check_protocol(command: str, settings: Settings, asked: Settings) -> None:
    """Refuse conditions on several answers; write the protocol of a dry run, or refuse a run that is not of its own."""
    for several in ("models", "files"):
        count = len(set(settings.get(several) or ()))
        if command == "contamination" and asked.get("fail_if") and count > 1:
            raise UsageError(f"fail-if must be asked of one model and one data set; got {count} {several}")
    # A command whose answer is no evidence has no such flag.
    path = asked.get("protocol")
    if path:
        from extensions.bundle.protocol import apply

        apply(path, command, settings, dry_run=asked["dry_run"])


def files(command: str, settings: Settings) -> dict[str, object]:
    """Where the numbers of a run come from, if its command asks a model for evidence."""
    from extensions.bundle.provenance import asking, provenance

    # Others ask no model, and have nothing to prove.
    if command not in asking():
        return {}
    return {"provenance.json": provenance(command, settings)}
