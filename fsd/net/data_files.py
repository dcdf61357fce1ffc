"""Data files on disk, in data sets of the Hugging Face hub, and at URLs."""

import io
import re
from pathlib import Path
from typing import Any, NamedTuple

from fsd.errors import UsageError, refusing
from fsd.net.hub import hub_reachable

DATASETS = "hf://datasets/"
_DATA_FILE = re.compile(rf"{DATASETS}([^/@\s]+/[^/@\s]+)(?:@([^/\s]+))?/(\S+)")


class DataFile(NamedTuple):
    """A file on disk, of a dataset on the hub or at a URL; its `state` changes when it does, as far as one can tell."""

    url: str
    size: int
    state: str = ""

    def open(self, *, whole: bool) -> Any:
        """Open the file; on the hub `whole` reads it in one request, without seeking, else in pieces on demand."""
        if "://" not in self.url:
            return Path(self.url).open("rb")
        if not self.url.startswith("hf:"):
            import fsspec

            return fsspec.open(self.url, "rb").open()
        from huggingface_hub import HfFileSystem

        # Blocks of size 0 make it one stream, which reads no lines itself; with blocks, each is a request of its own.
        return io.BufferedReader(HfFileSystem().open(self.url, "rb", block_size=0 if whole else None))


def data_files(place: str) -> list[DataFile]:
    """A file on disk, or the dataset files that a URL names, sorted, at the commit that its revision is now.

    The URL is hf://datasets/OWNER/NAME[@REVISION]/PATH; * in PATH matches any name, ** across folders.
    """
    if not place.startswith("hf:"):
        return [DataFile(place, Path(place).stat().st_size)]
    from huggingface_hub import HfApi, HfFileSystem

    parts = _DATA_FILE.fullmatch(place)
    if not parts:
        raise UsageError(f"a file on the hub must be given as {DATASETS}OWNER/NAME[@REVISION]/PATH; got {place}")
    name, revision, path = parts.groups()
    if not hub_reachable():
        raise UsageError(f"the hub must be within reach for {place}; it is not: go online, or give local files")
    with refusing(f"dataset {name} must be on the hub and open to you; "):
        # At a commit, not a branch: files of one job must be of one state of the dataset.
        commit = HfApi().dataset_info(name, revision=revision).sha
        entries: Any = HfFileSystem().glob(f"{DATASETS}{name}@{commit}/{path}", detail=True)
    files = []
    for entry, about in sorted(entries.items()):
        if about["type"] == "file":
            files.append(DataFile(f"hf://{entry}", int(about["size"])))
    if not files:
        raise UsageError(f"dataset {name} must have files {path}; it has none of that name at commit {commit}")
    return files
