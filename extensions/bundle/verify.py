"""Is this bundle of evidence as it was made? Checks every hash, and the manifest's own.

`fsd verify BUNDLE` needs no model and no network. `--sha256` is the hash that was published: without it somebody could
have replaced files and manifest together. With `--recompute` the command of the bundle runs again, with the weights,
and the numbers that differ are named.

Examples:
    fsd verify evidence.zip --sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    fsd verify evidence.zip --recompute --model ./their-model
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from fsd.api import CheckFailed, OptionalModel, OptionalName, UsageError
from pipelines.api import Job, Stated, command, show, stage

if TYPE_CHECKING:
    from extensions.bundle.checking import Bundle
    from extensions.bundle.manifest import Alteration, Difference
    from fsd.api import Report

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
    from extensions.bundle.checking import Bundle

    if config.model and not config.recompute:
        raise UsageError("model must come with --recompute; got it alone")
    bundle = Bundle.opened(config.bundle)
    if config.recompute:
        bundle.check_repeatable(config.model)
    command = bundle.manifest.command
    count = len(bundle.manifest.files)
    stated = Stated(
        f"{config.bundle}: {count} files of a run of {command}",
        {"path": config.bundle, "files": count, "command": command},
    )
    return Job(partial(run, config, bundle), {"bundle": stated})


def run(config: VerifyConfig, bundle: "Bundle") -> None:
    """Compare, repeat the run if asked to, print, and end with exit code 1 if something is not as it was."""
    with stage("hashing"):
        altered = bundle.alterations(config.sha256)
    # Of files that are not those of the run, nothing is run.
    differing = None
    if config.recompute and not altered:
        with stage("scoring"):
            differing = bundle.recompute(config.model)
    show(report(config, bundle, altered, differing))
    if altered:
        path, what = altered[0]
        raise CheckFailed(f"the bundle is not as it was made: {path} is {what}")
    if differing:
        place, recorded, recomputed = differing[0]
        raise CheckFailed(f"numbers differ: {place} is {recomputed}, recorded {recorded}")


def report(
    config: VerifyConfig, bundle: "Bundle", altered: "Sequence[Alteration]", differing: "Sequence[Difference] | None"
) -> "Report":
    """What was checked, and what is not as it was."""
    import pandas as pd

    from extensions.bundle.manifest import ABSOLUTE, RELATIVE, Alteration, Difference
    from fsd.api import Finding, Report, Section, counted, numbers

    manifest = bundle.manifest
    files = len(manifest.files)
    result = f"nothing was altered: {files} files are as in the manifest, whose SHA-256 is {bundle.sha256}"
    if altered:
        result = f"{counted(len(altered), 'alteration')} of a bundle of {files} files"
    findings = [Finding(result), Finding(f"the answer of the run: {manifest.headline}", not altered)]
    if not config.sha256:
        findings.append(
            Finding("the manifest is not proven: compare its SHA-256 with the published one (--sha256)", sign=False)
        )
    if manifest.protocol and not altered:
        of_protocol = f"the run is that of the protocol with SHA-256 {manifest.protocol}"
        findings.append(Finding(f"{of_protocol}: compare it with the published one", sign=True))
    if differing is not None:
        again = f"recomputed: every number is the same, within {RELATIVE:g} of itself or {ABSOLUTE:g}"
        if differing:
            again = f"recomputed: {len(differing)} numbers differ"
        findings.append(Finding(again, not differing))
    for path, what in altered[:SHOWN]:
        findings.append(Finding(f"{path}: {what}", sign=False))
    for place, recorded, recomputed in (differing or ())[:SHOWN]:
        findings.append(Finding(f"{place}: {recomputed}, recorded {recorded}", sign=False))
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
