"""One folder or zip file with the evidence of a run, and a manifest by which the other side can check it.

`fsd bundle RUN` copies every table, figure and page of a run of run, detect, extract, contamination, adapter-audit or
canary test, its settings, its adapter and its input files, and hashes these, the weights and the code. It prints the
SHA-256 of the manifest: publish it, or have it time-stamped. `fsd verify` finds every later alteration.

Examples:
    fsd bundle 0a1b2c3d4e5f60718293a4b5c6d7e8f9 --out evidence.zip
    fsd bundle 0a1b2c3d4e5f60718293a4b5c6d7e8f9 --without-texts
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from fsd.api import OptionalPath, counted, tracking
from pipelines.api import Job, Stated, check_new_folder, check_path, command, new_folder, show, stage, write_file

if TYPE_CHECKING:
    from extensions.bundle.making import Source
    from extensions.bundle.manifest import Manifest
    from fsd.api import Report


@dataclass(frozen=True)
class BundleConfig:
    """A finished run, and the bundle to be made of it."""

    run_id: Annotated[Positional[str], arg(metavar="RUN")]
    """Id of a finished run, as the command printed it, runs:/ID, or the version that it registered, models:/NAME/V."""
    out: OptionalPath = None
    """New folder, or a file that ends in .zip. Default: the folder evidence-RUN."""
    without_texts: FlagCreatePairsOff[bool] = False
    """Leave out all texts, which stand as SHA-256: the inputs, and what quotes them in tables and pages."""


def prepare(config: BundleConfig) -> Job:
    """Fetch the run, and check that its inputs are still what they were."""
    from extensions.bundle.making import Source

    version = tracking.version_info(config.run_id)
    run_id = version.run_id if version else config.run_id
    out = Path(config.out or f"evidence-{run_id.removeprefix('runs:/').strip('/')[:8]}")
    if out.suffix.lower() == ".zip":
        check_path(out)
    else:
        check_new_folder(out)
    source = Source.fetched(run_id)
    source.check_inputs()
    command = source.provenance.command
    reads = {"run": Stated(f"{source.run}: {command}", {"id": source.run, "command": command})}
    for entry in source.provenance.inputs:
        count = len(entry.files)
        reads[f"input {entry.flag}"] = Stated(
            f"{entry.name}: {counted(count, 'file')}", {"name": entry.name, "files": count}
        )
    return Job(partial(run, config, source, out), reads, writes=[out])


def run(config: BundleConfig, source: "Source", out: Path) -> None:
    """Copy, hash, and print the hash of the manifest."""
    import tempfile

    from extensions.bundle.container import pack

    with stage("recording"):
        if out.suffix.lower() == ".zip":
            folder = Path(tempfile.mkdtemp())
            manifest, digest = source.fill(folder, texts=not config.without_texts)
            write_file(out, partial(pack, folder))
        else:
            with new_folder(out) as folder:
                manifest, digest = source.fill(folder, texts=not config.without_texts)
    show(report(manifest, digest, out))


def report(manifest: "Manifest", digest: str, out: Path) -> "Report":
    """Where the bundle is, and the hash to be published."""
    import pandas as pd

    from fsd.api import Finding, Report, Section, numbers

    texts = " with the texts that the run read (--without-texts leaves them out)" if manifest.texts else ""
    findings = [
        Finding(f"{out} holds {len(manifest.files)} files{texts}; SHA-256 of its manifest: {digest}"),
        Finding("publish this hash, or have it time-stamped: it proves that nothing changed later"),
    ]
    if manifest.protocol:
        findings.append(Finding(f"the run is that of the protocol with SHA-256 {manifest.protocol}", sign=True))
    if manifest.left_out:
        quoting = ", ".join(entry.path for entry in manifest.left_out)
        findings.append(Finding(f"left out, as they quote texts: {quoting}", sign=False))
    for weights in manifest.weights:
        if not weights.files:
            absent = f"the weights of {weights.name} are not on this machine, so that they are not hashed"
            findings.append(Finding(absent, sign=False))
    files = numbers("files", pd.DataFrame(map(vars, manifest.files)))
    return Report(
        findings=findings,
        sections=[Section("", tables=[files])],
        files={"bundle": out},
        next=[f"fsd verify {out} --sha256 {digest}"],
    )


if __name__ == "__main__":
    command(BundleConfig, prepare, __doc__, stages={"data": "run", "recording": "copying and hashing"})
