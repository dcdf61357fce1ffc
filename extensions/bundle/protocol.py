"""The protocol: texts, settings, weights, tests and level of a command, fixed before the model is asked."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from extensions.bundle.provenance import Input, Settings, asking, inputs
from extensions.bundle.weights import Hashes, hashes_of
from fsd.api import UsageError, note, read_json
from fsd.api import digest_of_files as digest
from pipelines.api import check_path, evidences

VERSION: Literal[2] = 2
"""Version of the file."""
INTERVAL_LEVEL = 0.05
"""The level of the other commands, as it stands in a protocol."""
BY_PROMPTS = "rank of the longest run of words that is returned of a work among those of the control works; Holm"
"""What is tested where `extract` asks by prompts."""
ELSEWHERE = {"version", "command", "out", "report", "answers", "device", "cache", "max_batch_tokens"}
ELSEWHERE |= {"base_url", "concurrency", "requests_per_minute", "price"}
"""Settings on which no number depends."""


@dataclass(frozen=True)
class Protocol:
    """What is fixed: the hashes of the texts by setting, the settings, the hashes of the weights, tests and level.

    The hashes of the weights are those of the files of each model by its name, and of the adapter. A model that is not
    on this machine, or behind an API, has none: its name is fixed alone.
    """

    version: Literal[2]
    command: str
    texts: Mapping[str, Sequence[str]]
    settings: Settings
    weights: Hashes
    tests: str
    level: float

    @property
    def by_name(self) -> list[str]:
        """The models that have no hash."""
        return [name for name, files in self.weights.items() if not files]

    def mismatch(self, run: "Protocol") -> str:
        """What of a run is not of this protocol, in a few words; "" if all of it is."""
        if self.command != run.command:
            return f"command {self.command}; the run is of {run.command}"
        flag = _differing(self.texts, run.texts)
        if flag is not None:
            return f"other texts of {flag}"
        name = _differing(self.settings, run.settings)
        if name is not None:
            return f"{name} {self.settings.get(name)}; the run has {run.settings.get(name)}"
        for name in sorted(self.weights.keys() & run.weights.keys()):
            fixed = self.weights[name]
            of_run = run.weights[name]
            file = _differing(fixed, of_run)
            # Weights that are not on the machine have no hash.
            if fixed and of_run and file is not None:
                return f"other weights of {name} ({file})"
        if self.level != run.level or self.tests != run.tests:
            return "other tests or another level"
        return ""


def _differing(fixed: Settings, of_run: Settings) -> str | None:
    """The first key whose value is another, or that one side lacks; a key of somebody else's file may be empty."""
    for key in sorted(fixed.keys() | of_run.keys()):
        if fixed.get(key) != of_run.get(key):
            return key
    return None


def protocol(command: str, settings: Settings, inputs: Sequence[Input], weights: Hashes) -> Protocol:
    """The protocol of a command with these settings, inputs and weights."""
    texts: dict[str, list[str]] = {}
    for entry in inputs:
        # Of a published benchmark or a task, the name is all there is here.
        hashes = [file.sha256 for file in entry.files] or [entry.name]
        texts.setdefault(entry.flag, []).extend(hashes)
    as_json = json.loads(json.dumps(settings, default=str))
    fixed = {name: value for name, value in as_json.items() if name not in ELSEWHERE | texts.keys()}
    evidence = evidences()[command]
    level = settings[evidence.level] if evidence.level else INTERVAL_LEVEL
    tests = evidence.tests
    if settings.get("prompts") or settings.get("questions"):
        tests = BY_PROMPTS
    return Protocol(VERSION, command, texts, fixed, weights, tests, level)


def apply(path: str, command: str, settings: Settings, *, dry_run: bool) -> None:
    """Write the protocol of a dry run into a file, or refuse a run that is not of the protocol there."""
    if command not in asking():
        raise UsageError(f"protocol must be of a command that asks a model ({', '.join(asking())}); got {command}")
    adapter = settings.get("adapter")
    # An alias may move to another version after the protocol is published.
    if adapter and re.search(r"^models:.*(@|/latest$)", adapter):
        raise UsageError(f"a protocol must name a version of the adapter, models:/NAME/VERSION; got {adapter}")
    run = protocol(command, settings, inputs(command, settings), hashes_of(settings))
    agreed = run
    if dry_run and not Path(path).exists():
        check_path(Path(path))
        Path(path).write_text(json.dumps(vars(run), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        agreed = read_json(Protocol, path, f"a protocol of version {VERSION}, made by --protocol with --dry-run")
        check(path, agreed, run)
    note(f"protocol {path}: SHA-256 {digest(path)}")
    for name in agreed.by_name:
        absence = "are behind an API" if name.startswith("api:") else "were not on the machine"
        note(f"the protocol fixes {name} by its name alone: its weights {absence}")


def check(path: str | Path, agreed: Protocol, run: Protocol) -> None:
    """Refuse a run that is not of its protocol, and one whose weights cannot be compared with it."""
    reason = agreed.mismatch(run)
    if reason:
        raise UsageError(f"the run must be as its protocol; {path} has {reason}")
    # They would be downloaded after this check, and could be any.
    absent = [name for name in run.by_name if name not in agreed.by_name]
    if absent:
        raise UsageError(f"the weights that a protocol fixes must be on this machine; those of {absent[0]} are not")
