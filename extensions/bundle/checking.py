"""A bundle that is verified: whether it is as it was made, and whether its numbers come out again."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from extensions.bundle import protocol
from extensions.bundle.container import hashes, unpacked
from extensions.bundle.manifest import (
    MANIFEST,
    PROTOCOL,
    VERSION,
    Alteration,
    Difference,
    Manifest,
    Weights,
    alterations,
    differences,
)
from extensions.bundle.provenance import Provenance, settings_in
from extensions.bundle.weights import ADAPTER, file_hashes
from fsd.api import UsageError, read_json
from fsd.api import digest_of_files as digest
from fsd.api import value_of_json as from_json

PLACES = ("out", "report", "answers", "cache")
"""Settings of the run that are places of its own machine, which a repetition must not write to."""


@dataclass(frozen=True)
class Bundle:
    """A bundle that may be somebody else's, in a folder: its manifest, and the hash of that."""

    folder: Path
    manifest: Manifest
    sha256: str

    @classmethod
    def opened(cls, place: str) -> "Bundle":
        """The bundle in a folder or a zip file; a UsageError names the field that is not of this version."""
        folder = unpacked(place)
        file = folder / MANIFEST
        must = f"{place}: {MANIFEST} must be the manifest of a bundle of version {VERSION}"
        return cls(folder, from_json(Manifest, file.read_bytes(), must), digest(file))

    @property
    def provenance(self) -> Provenance:
        """What the run recorded when it began."""
        return read_json(Provenance, self.folder / "run/provenance.json", "the provenance of a run")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run by name."""
        return settings_in((self.folder / "run/config.yaml").read_bytes())

    def alterations(self, published: str | None) -> list[Alteration]:
        """What is not as it was made: manifest and files; and, if these are, parts that do not belong together."""
        altered = alterations(self.manifest.hashes, hashes(self.folder))
        if published and published.lower() != self.sha256:
            altered.insert(0, Alteration(MANIFEST, f"edited: SHA-256 {self.sha256}, published {published.lower()}"))
        return altered or list(self._of_other_runs())

    def _of_other_runs(self) -> Iterator[Alteration]:
        """Copies of inputs that the run did not read, and a protocol that is not its own."""
        provenance = self.provenance
        if self.manifest.texts:
            for read, _, copied in provenance.files():
                if self.manifest.hashes.get(copied) != read.sha256:
                    yield Alteration(copied, "not the file that the run read")
        file = self.folder / PROTOCOL
        if not file.exists():
            return
        agreed = from_json(protocol.Protocol, file.read_bytes(), f"{PROTOCOL} must be a protocol")
        weights = {model.name: model.files for model in self.manifest.weights}
        weights[ADAPTER] = self.manifest.below(ADAPTER)
        of_run = protocol.protocol(provenance.command, self.settings, provenance.inputs, weights)
        reason = agreed.mismatch(of_run)
        if reason:
            yield Alteration(PROTOCOL, f"not that of the run: it has {reason}")

    def check_repeatable(self, model: str | None) -> None:
        """Refuse to repeat a run whose texts or weights are not here, before anything is done."""
        if not self.manifest.texts:
            raise UsageError("recompute must have the texts; this bundle has their hashes alone (--without-texts)")
        for weights in self.manifest.weights:
            name = _placed(weights, model)
            present = file_hashes(name)
            if not present:
                raise UsageError(
                    f"weights must be on this machine; there are none at {name}: name their place by --model"
                )
            if weights.files and weights.files != present:
                raise UsageError(f"weights must be those of the bundle; the files of {name} have other hashes")

    def recompute(self, model: str | None) -> list[Difference]:
        """Repeat the run in a process and a store of its own, and compare the tables of its answer."""
        folder = Path(tempfile.mkdtemp())
        settings = folder / "config.yaml"
        settings.write_text(self._settings_again(model), encoding="utf-8")
        # Numbers of an earlier run would not be computed again.
        environment = os.environ | {
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/store.db",
            "FSD_CACHE": str(folder / "cache"),
        }
        line = [sys.executable, "-m", "pipelines", *self.manifest.command.split(), "--config", str(settings), "--json"]
        done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UsageError(f"the command of the bundle must run on this machine; it ended with: {reason}")
        recorded = json.loads((self.folder / "run/answer.json").read_bytes())
        return list(differences(recorded["tables"], json.loads(done.stdout)["tables"]))

    def _settings_again(self, model: str | None) -> str:
        """The configuration file of the run, with the files of the bundle in place of the run's."""
        # The repetition has another working folder.
        folder = self.folder.resolve()
        settings = self.settings
        for name in PLACES:
            settings.pop(name, None)
        places: dict[str, list[str]] = {}
        for entry, copied in self.provenance.copies():
            if not entry.files:
                raise UsageError(f"recompute must have all inputs in the bundle; {entry.name} is not in it")
            places.setdefault(entry.flag, []).append(str(folder / copied))
        for weights in self.manifest.weights:
            place = _placed(weights, model)
            local = Path(place).expanduser()
            places.setdefault(weights.role, []).append(str(local.resolve()) if local.exists() else place)
        for name, of_setting in places.items():
            settings[name] = of_setting if isinstance(settings.get(name), list) else of_setting[0]
        if settings.get(ADAPTER):
            settings[ADAPTER] = str(folder / ADAPTER)
        by_flag = {name.replace("_", "-"): value for name, value in settings.items()}
        return str(yaml.safe_dump(by_flag, sort_keys=False, allow_unicode=True))


def _placed(weights: Weights, model: str | None) -> str:
    """Where a model is on this machine: where the user says, or where the run had it."""
    return model if model and weights.role == "model" else weights.name
