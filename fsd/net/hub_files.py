"""Data files on the hub, streamed: hf://datasets/OWNER/NAME[@REVISION]/PATH, as pandas and fsspec write it."""

import re
from dataclasses import dataclass
from typing import Any

from fsd.errors import UsageError
from fsd.net.hub import first_line, hub_reachable

SCHEME = "hf://datasets/"
_URL = re.compile(rf"{SCHEME}([^/@\s]+/[^/@\s]+)(?:@([^/\s]+))?/(\S+)")


@dataclass(frozen=True)
class HubFile:
    """A file of a dataset at a commit.

    Attributes:
        url: its address, the commit in it.
        size: bytes.
    """

    url: str
    size: int

    def open(self, *, whole: bool) -> Any:
        """The file for reading, over the network.

        Args:
            whole: from begin to end, without seeking, in one request; else in pieces, as they are asked for.
        """
        from huggingface_hub import HfFileSystem

        return HfFileSystem().open(self.url, "rb", **({"block_size": 0} if whole else {}))


def hub_files(url: str) -> list[HubFile]:
    """The files that a URL names, in the order of their names, at the commit that its revision stands for now.

    Args:
        url: hf://datasets/OWNER/NAME[@REVISION]/PATH; * and ** in PATH stand for any names, ** across folders.

    Raises:
        UsageError: for a malformed URL, no network, no such dataset or revision, or no such file.
    """
    from huggingface_hub import HfApi, HfFileSystem

    parts = _URL.fullmatch(url)
    if not parts:
        raise UsageError(f"a file on the hub must be given as {SCHEME}OWNER/NAME[@REVISION]/PATH; got {url}")
    name, revision, path = parts.groups()
    if not hub_reachable():
        raise UsageError(f"the hub must be within reach for {url}; it is not: go online, or give local files")
    try:
        commit = HfApi().dataset_info(name, revision=revision).sha
        pinned = f"{SCHEME}{name}@{commit}/{path}"
        found: Any = HfFileSystem().glob(pinned, detail=True)  # place → what is known of it
    except Exception as error:  # the HTTP client of the hub library, and so its errors, differ by version
        raise UsageError(f"dataset {name} must be on the hub and open to you; {first_line(error)}") from error
    files = [(place, info) for place, info in sorted(found.items()) if info["type"] == "file"]
    if not files:
        raise UsageError(f"dataset {name} must have files {path}; it has none of that name at commit {commit}")
    return [HubFile(f"hf://{place}", int(info["size"])) for place, info in files]
