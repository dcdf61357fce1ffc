"""One folder or zip file with the evidence of a run, and a manifest by which the other side can check it.

`fsd bundle RUN` copies every table, figure and page of a run of run, detect, extract, contamination, adapter-audit or
canary test, its settings, its adapter and its input files, and hashes these, the weights and the code. It prints the
SHA-256 of the manifest: publish it, or have it time-stamped. `fsd verify` finds every later alteration.

Examples:
    fsd bundle 0a1b2c3d4e5f60718293a4b5c6d7e8f9 --out evidence.zip
    fsd bundle 0a1b2c3d4e5f60718293a4b5c6d7e8f9 --without-texts
"""

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, arg

from extensions.bundle.container import files_in, pack
from fsd.config import OptionalPath
from fsd.errors import UsageError, counted
from pipelines.command.cli import command
from pipelines.command.context import ASKING, stage
from pipelines.command.deliver import ANSWER, PROVENANCE, show
from pipelines.command.job import Job, Stated
from pipelines.command.output import check_new_folder, check_path, new_folder, write_file

if TYPE_CHECKING:
    from extensions.bundle.manifest import Input, InputFile, Manifest, Provenance, Quotations
    from fsd.reporting.report import Report

CONFIG = "config.yaml"


@dataclass(frozen=True)
class BundleConfig:
    """A finished run, and the bundle to be made of it."""

    run_id: Annotated[Positional[str], arg(metavar="RUN")]
    """Id of a finished run, as the command printed it, or runs:/ID."""
    out: OptionalPath = None
    """New folder, or a file that ends in .zip. Default: the folder evidence-RUN."""
    without_texts: FlagCreatePairsOff[bool] = False
    """Leave out all texts, which stand as SHA-256: the inputs, and what quotes them in tables and pages."""


@dataclass(frozen=True)
class Source:
    """A run that can be bundled: its id, the folder of its files, its settings, and where its numbers come from."""

    run: str
    folder: Path
    settings: Mapping[str, Any]
    provenance: "Provenance"


def prepare(config: BundleConfig) -> Job:
    """Fetch the run, and check that its inputs are still what they were."""
    out = Path(config.out or f"evidence-{config.run_id.removeprefix('runs:/').strip('/')[:8]}")
    if out.suffix.lower() == ".zip":
        check_path(out)
    else:
        check_new_folder(out)
    source = fetch(config.run_id)
    check_inputs(source.provenance)
    command = source.provenance.command
    reads = {"run": Stated(f"{source.run}: {command}", {"id": source.run, "command": command})}
    for entry in source.provenance.inputs:
        count = len(entry.files)
        reads[f"input {entry.flag}"] = Stated(
            f"{entry.name}: {counted(count, 'file')}", {"name": entry.name, "files": count}
        )
    return Job(partial(run, config, source, out), reads, writes=[out])


def fetch(name: str) -> Source:
    """The run of that id; a UsageError if it is none of a command whose answer is evidence."""
    import yaml

    from extensions.bundle.manifest import Provenance
    from fsd import tracking
    from fsd.files import read_json, read_text

    run_id, folder = tracking.fetch_run(name)
    recorded = folder / PROVENANCE
    if not recorded.is_file() or not (folder / ANSWER).is_file():
        raise UsageError(
            f"the run must be of {', '.join(ASKING)}, by fsd 0.2.0 or later, which records where numbers come from; "
            f"{run_id} has no {PROVENANCE}: run its command again, and bundle the new run"
        )
    provenance = read_json(Provenance, recorded, "the provenance of a run")
    return Source(run_id, folder, yaml.safe_load(read_text(folder / CONFIG)), provenance)


def check_inputs(provenance: "Provenance") -> None:
    """Refuse input files that are not what the run read."""
    from fsd.files import digest

    for entry in provenance.inputs:
        for file in entry.files:
            path = _place(entry, file)
            if not path.is_file():
                raise UsageError(f"inputs must be where the run read them; there is no {path}")
            if digest(path) != file.sha256:
                raise UsageError(f"inputs must be as the run read them; {path} has been changed since")


def _place(entry: "Input", file: "InputFile") -> Path:
    # The name of a file that is the whole input is empty, which joins to the same path.
    return Path(entry.name) / file.name


def run(config: BundleConfig, source: Source, out: Path) -> None:
    """Copy, hash, and print the hash of the manifest."""
    from fsd.leftovers import temporary_folder

    with stage("recording"):
        if out.suffix.lower() == ".zip":
            with temporary_folder() as folder:
                bundled = fill(folder, source, config)
                write_file(out, partial(pack, folder))
        else:
            with new_folder(out) as folder:
                bundled = fill(folder, source, config)
    show(report(bundled, out))


def fill(folder: Path, source: Source, config: BundleConfig) -> "tuple[Manifest, str]":
    """Write the files of a bundle and its manifest, which is given with its hash."""
    from extensions.bundle.manifest import MANIFEST, Manifest, sha256
    from extensions.bundle.weights import adapter_files, weights_of
    from fsd.leftovers import write_whole
    from fsd.tracking import versions

    provenance = source.provenance
    texts = [read_input(entry, source.settings) for entry in provenance.inputs]
    quotations = None
    if config.without_texts:
        from extensions.bundle.manifest import Quotations

        quotations = Quotations(chain.from_iterable(chain.from_iterable(texts)))
    inputs = []
    for entry, of_input in zip(provenance.inputs, texts, strict=True):
        inputs.append(add_input(folder, entry, of_input, copied=not config.without_texts))
    for name, path in files_in(source.folder):
        _copy(path, folder / "run" / name)
    adapter = source.settings.get("adapter")
    if adapter:
        # With the files that travel with it, so that a folder names it.
        for name, path in adapter_files(str(adapter)).items():
            _copy(path, folder / "adapter" / name)
    weights = weights_of(source.settings, folder)
    files, left_out = entries(folder, quotations)
    answer = json.loads((source.folder / ANSWER).read_bytes())
    headline = str(answer["headline"])
    if quotations and quotations.in_text(headline):
        headline = ""
    manifest = Manifest(
        version=1,
        made_by=f"fsd {versions()['fsd']}",
        run=source.run,
        headline=headline,
        provenance=replace(provenance, inputs=inputs),
        weights=weights,
        texts=not config.without_texts,
        files=files,
        left_out=left_out,
    )
    content = json.dumps(asdict(manifest), indent=1, ensure_ascii=False) + "\n"
    write_whole(folder / MANIFEST, content.encode())
    return manifest, sha256(content.encode())


def read_input(entry: "Input", settings: Mapping[str, Any]) -> list[list[str]]:
    """The texts of each file of an input; none of a file that holds no texts, such as a list of canaries."""
    from fsd.data.readers import parse_columns, read_texts

    columns = parse_columns(str(settings.get("columns") or ""), answers=True)
    texts = []
    for file in entry.files:
        try:
            # Rows that the run left out are no texts here either.
            documents = read_texts([_place(entry, file)], columns, skipped=Counter())
        except UsageError:
            documents = []
        texts.append([document.text for document in documents])
    return texts


def add_input(folder: Path, entry: "Input", texts: Sequence[Sequence[str]], *, copied: bool) -> "Input":
    """Copy an input into the bundle, unless its texts are left out, and hash its texts."""
    from fsd.data.documents import content_hash

    number = len(list(folder.glob(f"inputs/{entry.flag}-*")))
    path = f"inputs/{entry.flag}-{number + 1}/{Path(entry.name).name}"
    files = []
    for file, of_file in zip(entry.files, texts, strict=True):
        files.append(replace(file, texts=list(map(content_hash, of_file))))
        if copied:
            _copy(_place(entry, file), folder / path / file.name)
    return replace(entry, files=files, path=path if copied and files else "")


def entries(folder: Path, quotations: "Quotations | None") -> tuple[list[Any], list[Any]]:
    """The files of a bundle with their hashes, and those that were left out, as they quote texts."""
    from extensions.bundle.manifest import Entry, sha256

    kept = []
    left_out = []
    for name, path in files_in(folder):
        content = path.read_bytes()
        original = sha256(content)
        if quotations is None or not quotations.in_file(name, content):
            kept.append(Entry(name, len(content), original))
            continue
        hashed = quotations.without(name, content)
        if hashed is None:
            path.unlink()
            left_out.append(Entry(name, len(content), original))
        else:
            path.write_bytes(hashed)
            kept.append(Entry(name, len(hashed), sha256(hashed), original))
    return kept, left_out


def _copy(source: Path, copied: Path) -> None:
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, copied)


def report(bundled: "tuple[Manifest, str]", out: Path) -> "Report":
    """Where the bundle is, and the hash to be published."""
    import pandas as pd

    from fsd.evaluation.findings import AGAINST, FOR, Finding
    from fsd.reporting.report import Report, Section, numbers

    manifest, digest = bundled
    findings = [Finding(f"{out} holds {len(manifest.files)} files; SHA-256 of its manifest: {digest}")]
    findings.append(Finding("publish this hash, or have it time-stamped: it proves that nothing changed later"))
    if manifest.protocol:
        findings.append(Finding(f"the run is that of the protocol with SHA-256 {manifest.protocol}", FOR))
    if manifest.left_out:
        quoting = ", ".join(entry.path for entry in manifest.left_out)
        findings.append(Finding(f"left out, as they quote texts: {quoting}", AGAINST))
    for weights in manifest.weights:
        if not weights.files:
            absent = f"the weights of {weights.name} are not on this machine, so that they are not hashed"
            findings.append(Finding(absent, AGAINST))
    files = numbers("files", pd.DataFrame(map(vars, manifest.files)))
    return Report(
        findings=findings,
        sections=[Section("", tables=[files])],
        files={"bundle": out},
        next=[f"fsd verify {out} --sha256 {digest}"],
    )


if __name__ == "__main__":
    command(BundleConfig, prepare, __doc__, stages={"data": "run", "recording": "copying and hashing"})
