"""Is this bundle of evidence as it was made? Checks every hash, and the manifest's own.

`fsd verify BUNDLE` needs no model and no network. `--sha256` is the hash that was published: without it somebody could
have replaced files and manifest together. With `--recompute` the command of the bundle runs again, with the weights,
and the numbers that differ are named.

Examples:
    fsd verify evidence.zip --sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    fsd verify evidence.zip --recompute --model ./their-model
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from extensions.bundle.container import Bundle
from fsd.config import OptionalModel, OptionalName
from fsd.errors import CheckFailed, UsageError
from pipelines.command.cli import command
from pipelines.command.context import stage
from pipelines.command.deliver import ANSWER, PROVENANCE, show
from pipelines.command.job import Job, Stated

if TYPE_CHECKING:
    from extensions.bundle.manifest import Alteration, Difference, Input, InputFile, Manifest
    from fsd.reporting.report import Report

CONFIG = "run/config.yaml"
PLACES = ("out", "report", "answers", "cache")
"""Settings of the run that are places of its own machine, which a repetition must not write to."""
SHOWN = 20
"""Alterations and differences that are printed; `--json` has all."""


@dataclass(frozen=True)
class VerifyConfig:
    """A bundle, and what its manifest must be."""

    bundle: Annotated[Positional[str], arg(metavar="BUNDLE")]
    """Folder or zip file that `fsd bundle` made."""
    sha256: OptionalName = None
    """SHA-256 of the manifest as it was published."""
    recompute: FlagCreatePairsOff[bool] = False
    """Run the command of the bundle again, and compare its numbers; needs the weights and the texts."""
    model: OptionalModel = None
    """Where the model under test is on this machine, for --recompute. Default: where the run had it."""


def prepare(config: VerifyConfig) -> Job:
    """Read the manifest, and check the settings and, to recompute, that the weights are here."""
    from extensions.bundle.manifest import MANIFEST, read_manifest

    if config.sha256 and not re.fullmatch(r"[0-9a-f]{64}", config.sha256.lower()):
        raise UsageError(f"sha256 must be 64 hexadecimal digits; got {config.sha256!r}")
    if config.model and not config.recompute:
        raise UsageError("model must come with --recompute; got it alone")
    bundle = Bundle(config.bundle)
    content = bundle.read(MANIFEST) or b""
    manifest = read_manifest(content, f"{config.bundle}: {MANIFEST}")
    if config.recompute:
        check_repeatable(manifest, config.model)
    recorded_command = manifest.provenance.command
    count = len(manifest.files)
    stated = Stated(
        f"{config.bundle}: {count} files of a run of {recorded_command}",
        {"path": config.bundle, "files": count, "command": recorded_command},
    )
    return Job(partial(run, config, bundle, manifest, content), {"bundle": stated})


def check_repeatable(manifest: "Manifest", model: str | None) -> None:
    """Refuse to repeat a run whose texts or weights are not here, before anything is done."""
    from extensions.bundle.weights import local_weights

    if not manifest.texts:
        raise UsageError("recompute must have the texts; this bundle has their hashes alone (--without-texts)")
    for entry in manifest.provenance.inputs:
        if not entry.path:
            raise UsageError(f"recompute must have all inputs in the bundle; {entry.name} is not in it")
    for weights in manifest.weights:
        name = model if model and weights.role == "model" else weights.name
        _, files = local_weights(name, None)
        if not files:
            raise UsageError(f"weights must be on this machine; there are none at {name}: name their place by --model")
        recorded = _by_name(weights.files)
        if recorded and recorded != _by_name(files):
            raise UsageError(f"weights must be those of the bundle; the files of {name} have other hashes")


def run(config: VerifyConfig, bundle: Bundle, manifest: "Manifest", content: bytes) -> None:
    """Compare, repeat the run if asked to, print, and end with exit code 1 if something is not as it was."""
    from extensions.bundle.manifest import alterations, sha256

    with stage("hashing"):
        altered = check_manifest(config, content)
        altered += alterations(manifest, bundle.files())
        if not altered:
            altered = check_contents(bundle, manifest)
    # Of files that are not those of the run, nothing is run.
    differing = None
    if config.recompute and not altered:
        with stage("scoring"):
            differing = recompute(bundle, manifest, config.model)
    show(report(config, manifest, sha256(content), altered, differing))
    if altered:
        path, what = altered[0]
        raise CheckFailed(f"the bundle is not as it was made: {path} is {what}{_further(altered)}")
    if differing:
        place, recorded, recomputed = differing[0]
        raise CheckFailed(f"numbers differ: {place} is {recomputed}, recorded {recorded}{_further(differing)}")


def _further(items: Sequence[object]) -> str:
    if len(items) > 1:
        return f"; {len(items) - 1} more"
    return ""


def check_manifest(config: VerifyConfig, content: bytes) -> "list[Alteration]":
    """Whether the manifest is the one that was published."""
    from extensions.bundle.manifest import MANIFEST, Alteration, sha256

    if config.sha256 and config.sha256.lower() != sha256(content):
        return [Alteration(MANIFEST, f"edited: SHA-256 {sha256(content)}, published {config.sha256.lower()}")]
    return []


def check_contents(bundle: Bundle, manifest: "Manifest") -> "list[Alteration]":
    """Whether the parts of a bundle belong together: inputs, provenance and protocol are those of its run."""
    from extensions.bundle import protocol
    from extensions.bundle.manifest import PROTOCOL, Alteration, Provenance
    from fsd.files import from_json

    altered = []
    recorded = from_json(Provenance, bundle.read(f"run/{PROVENANCE}") or b"", f"{PROVENANCE} must be a provenance")
    if _hashes(recorded.inputs) != _hashes(manifest.provenance.inputs):
        altered.append(Alteration("inputs", "other than the run recorded when it began"))
    altered += _wrong_copies(manifest)
    content = bundle.read(PROTOCOL)
    if content:
        agreed = from_json(protocol.Protocol, content, f"{PROTOCOL} must be a protocol")
        of_run = protocol.recorded(recorded, bundle.read(CONFIG) or b"", _weights(manifest))
        reason = agreed.mismatch(of_run)
        if reason:
            altered.append(Alteration(PROTOCOL, f"not that of the run: it has {reason}"))
    return altered


def _weights(manifest: "Manifest") -> dict[str, dict[str, str]]:
    """The hashes of the models by name, and of the adapter as the run had it, before texts were left out."""
    from extensions.bundle.weights import ADAPTER

    weights: dict[str, dict[str, str]] = {ADAPTER: {}}
    for model in manifest.weights:
        weights[model.name] = _by_name(model.files)
    # A table in which texts stand as hashes has another hash than the run's own.
    copied = [(entry.path, entry.original or entry.sha256) for entry in manifest.files]
    copied += [(entry.path, entry.sha256) for entry in manifest.left_out]
    for path, sha256 in copied:
        folder, _, name = path.partition("/")
        if folder == ADAPTER:
            weights[ADAPTER][name] = sha256
    return weights


def _by_name(files: "Sequence[InputFile]") -> dict[str, str]:
    """Name of each file → its hash."""
    return {file.name: file.sha256 for file in files}


def _hashes(inputs: "Sequence[Input]") -> list[tuple[str, str, list[str]]]:
    return [(entry.flag, entry.name, [file.sha256 for file in entry.files]) for entry in inputs]


def _wrong_copies(manifest: "Manifest") -> "list[Alteration]":
    """The copies of inputs that are not the files that the run read."""
    from extensions.bundle.manifest import Alteration

    present = {entry.path: entry.sha256 for entry in manifest.files}
    wrong = []
    for entry in manifest.provenance.inputs:
        for file in entry.files:
            path = f"{entry.path}/{file.name}".rstrip("/")
            if entry.path and present.get(path) != file.sha256:
                wrong.append(Alteration(path, "not the file that the run read"))
    return wrong


def recompute(bundle: Bundle, manifest: "Manifest", model: str | None) -> "list[Difference]":
    """Repeat the run in a process and a store of its own, and compare the tables of its answer."""
    from extensions.bundle.manifest import differences
    from fsd.leftovers import temporary_folder

    recorded = json.loads(bundle.read(f"run/{ANSWER}") or b"{}")
    provenance = manifest.provenance
    with temporary_folder() as folder:
        copies = folder / "bundle"
        bundle.copy([entry.path for entry in manifest.files], copies)
        file = folder / "config.yaml"
        file.write_text(settings_again(copies, manifest, model), encoding="utf-8")
        environment = dict(os.environ)
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/store.db"
        # Numbers of an earlier run would not be computed again.
        environment["FSD_CACHE"] = str(folder / "cache")
        line = [sys.executable, "-m", "pipelines", *provenance.command.split(), "--config", str(file), "--json"]
        done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UsageError(f"the command of the bundle must run on this machine; it ended with: {reason}")
    return list(differences(recorded["tables"], json.loads(done.stdout)["tables"]))


def settings_again(copies: Path, manifest: "Manifest", model: str | None) -> str:
    """The configuration file of the run, with the files of the bundle in place of the run's."""
    import yaml

    from extensions.bundle.provenance import settings_in

    settings = settings_in((copies / CONFIG).read_bytes())
    for name in PLACES:
        settings.pop(name, None)
    by_flag: dict[str, list[str]] = {}
    for entry in manifest.provenance.inputs:
        by_flag.setdefault(entry.flag, []).append(str(copies / entry.path))
    for flag, paths in by_flag.items():
        several = isinstance(settings.get(flag), list)
        settings[flag] = paths if several else paths[0]
    if settings.get("adapter"):
        settings["adapter"] = str(copies / "adapter")
    by_role: dict[str, list[str]] = {}
    for weights in manifest.weights:
        place = model if model and weights.role == "model" else weights.name
        # Relative to the working folder of whoever verifies, not to the one of the repetition.
        local = Path(place).expanduser()
        by_role.setdefault(weights.role, []).append(str(local.resolve()) if local.exists() else place)
    for role, places in by_role.items():
        settings[role.replace("_", "-")] = places if role == "models" else places[0]
    return str(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def report(
    config: VerifyConfig,
    manifest: "Manifest",
    digest: str,
    altered: "Sequence[Alteration]",
    differing: "Sequence[Difference] | None",
) -> "Report":
    """What was checked, and what is not as it was."""
    import pandas as pd

    from extensions.bundle.manifest import ABSOLUTE, RELATIVE, Alteration, Difference
    from fsd.errors import counted
    from fsd.evaluation.findings import AGAINST, FOR, Finding, as_findings
    from fsd.reporting.report import Report, Section, numbers

    files = len(manifest.files)
    if altered:
        result = f"{counted(len(altered), 'alteration')} of a bundle of {files} files"
    else:
        result = f"nothing was altered: {files} files are as in the manifest, whose SHA-256 is {digest}"
    findings = [Finding(result), Finding(f"the answer of the run: {manifest.headline}", not altered)]
    if not config.sha256:
        findings.append(
            Finding("the manifest is not proven: compare its SHA-256 with the published one (--sha256)", AGAINST)
        )
    if manifest.protocol and not altered:
        findings.append(
            Finding(
                f"the run is that of the protocol with SHA-256 {manifest.protocol}: compare it with the published one",
                FOR,
            )
        )
    if differing is not None:
        again = f"recomputed: every number is the same, within {RELATIVE:g} of itself or {ABSOLUTE:g}"
        if differing:
            again = f"recomputed: {len(differing)} numbers differ"
        findings.append(Finding(again, not differing))
    findings += as_findings((f"{path}: {what}" for path, what in altered[:SHOWN]), AGAINST)
    for place, recorded, recomputed in (differing or ())[:SHOWN]:
        findings.append(Finding(f"{place}: {recomputed}, recorded {recorded}", AGAINST))
    alterations = pd.DataFrame(altered, columns=Alteration._fields)
    differences = pd.DataFrame(differing or [], columns=Difference._fields)
    tables = [numbers("alterations", alterations), numbers("differences", differences)]
    return Report(findings=findings, sections=[Section("", tables=tables)])


if __name__ == "__main__":
    command(
        VerifyConfig,
        prepare,
        __doc__,
        stages={"data": "manifest", "hashing": "hashing", "scoring": "running the command again"},
    )
