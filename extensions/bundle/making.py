"""A run that is made a bundle: its files, its inputs, its adapter, and the manifest of them all."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from extensions.bundle.container import copy, files_in
from extensions.bundle.manifest import MANIFEST, VERSION, Entry, Manifest
from extensions.bundle.provenance import Provenance, asking, settings_in
from extensions.bundle.quotations import Quotations
from extensions.bundle.weights import ADAPTER, weights_of
from fsd.api import UsageError, content_hash, parse_columns, read_json, read_texts, tracking
from fsd.api import digest_of_files as digest
from pipelines.api import files_of


@dataclass(frozen=True)
class Source:
    """A run that can be bundled: its id, the folder of its files, its settings, and where its numbers come from."""

    run: str
    folder: Path
    settings: Mapping[str, Any]
    provenance: Provenance

    @classmethod
    def fetched(cls, name: str) -> "Source":
        """The run of that id; a UsageError if it is none of a command whose answer is evidence."""
        run_id, folder = tracking.fetch_run(name)
        recorded = folder / "provenance.json"
        if not recorded.is_file() or not (folder / "answer.json").is_file():
            raise UsageError(
                f"the run must be of {', '.join(asking())}, by fsd 0.2.0 or later, which records where numbers come "
                f"from; {run_id} has no {recorded.name}: run its command again, and bundle the new run"
            )
        provenance = read_json(Provenance, recorded, "the provenance of a run")
        return cls(run_id, folder, settings_in((folder / "config.yaml").read_bytes()), provenance)

    def check_inputs(self) -> None:
        """Refuse input files that are not what the run read."""
        for file, path, _ in self.provenance.files():
            if not path.is_file():
                raise UsageError(f"inputs must be where the run read them; there is no {path}")
            if digest(path) != file.sha256:
                raise UsageError(f"inputs must be as the run read them; {path} has been changed since")

    def fill(self, folder: Path, *, texts: bool) -> tuple[Manifest, str]:
        """Write the files of a bundle, with or without texts, and its manifest, which is given with its hash."""
        of_files = self._texts()
        if texts:
            for _, path, copied in self.provenance.files():
                copy(path, folder / copied)
        for name, path in files_in(self.folder):
            copy(path, folder / "run" / name)
        adapter = self.settings.get(ADAPTER)
        if adapter:
            # With the files that travel with it, so that a folder names it.
            for name, path in files_of(str(adapter)).items():
                copy(path, folder / ADAPTER / name)
        quotations = None
        headline = str(json.loads((self.folder / "answer.json").read_bytes())["headline"])
        if not texts:
            quotations = Quotations(text for of_file in of_files.values() for text in of_file)
            headline = "" if quotations.in_text(headline) else headline
        text_hashes = {copied: list(map(content_hash, of_file)) for copied, of_file in of_files.items()}
        files, left_out = _entries(folder, quotations)
        manifest = Manifest(
            version=VERSION,
            made_by=f"fsd {tracking.versions()['fsd']}",
            run=self.run,
            command=self.provenance.command,
            headline=headline,
            weights=weights_of(self.settings),
            texts=texts,
            text_hashes=text_hashes,
            files=files,
            left_out=left_out,
        )
        written = folder / MANIFEST
        written.write_text(json.dumps(asdict(manifest), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return manifest, digest(written)

    def _texts(self) -> dict[str, list[str]]:
        """The texts of each file of the inputs, by its copy; none of a file without any, such as a list of canaries."""
        columns = parse_columns(str(self.settings.get("columns") or ""), answers=True)
        texts = {}
        for _, path, copied in self.provenance.files():
            try:
                # Rows that the run left out are no texts here either.
                documents = read_texts([path], columns, skipped=Counter())
            except UsageError:
                documents = []
            texts[copied] = [document.text for document in documents]
        return texts


def _entries(folder: Path, quotations: Quotations | None) -> tuple[list[Entry], list[Entry]]:
    """The files of a bundle with their hashes, and those that were left out, as they quote texts."""
    kept = []
    left_out = []
    for name, path in files_in(folder):
        whole = Entry(name, path.stat().st_size, digest(path))
        content = path.read_bytes() if quotations else b""
        hashed = quotations.without(name, content) if quotations else content
        if hashed is None:
            path.unlink()
            left_out.append(whole)
        elif hashed == content:
            kept.append(whole)
        else:
            path.write_bytes(hashed)
            kept.append(Entry(name, len(hashed), digest(path), original=whole.sha256))
    return kept, left_out
