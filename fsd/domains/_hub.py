"""Documents from a dataset on the hub, through `datasets`.

Without a network the library tries for half a minute before it gives up, so the hub is first asked for a
connection. If it does not answer, a dataset in the local cache still loads and any other is refused at once.
"""

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from fsd.documents import Document
from fsd.errors import UsageError
from fsd.rows import document

PATIENCE = 3.0
"""Seconds in which the hub must accept a connection."""


def documents(
    name: str,
    columns: Mapping[str, str],
    *,
    splits: Sequence[str] = (),
    limit: int | None = None,
    revision: str | None = None,
) -> Iterator[Document]:
    """Labelled documents of a hub dataset, in the order of its splits and rows.

    Args:
        name: id of the dataset, owner/name.
        columns: what a document is made of → its column, as for `fsd.rows.document`.
        splits: the splits to read; none for a dataset that has just one.
        limit: the most documents to give.
        revision: commit to load, in full, for results that can be repeated; None is the newest.

    Raises:
        UsageError: if the dataset cannot be had, lacks a split, or a row breaks a rule.
    """
    tables = _tables(name, revision)
    if not splits and len(tables) != 1:
        raise UsageError(f"dataset {name} must have one split; it has {', '.join(tables)}")
    missing = [split for split in splits if split not in tables]
    if missing:
        raise UsageError(f"dataset {name} must have split {missing[0]}; it has {', '.join(tables)}")
    count = 0
    for split in splits or tables:
        for number, row in enumerate(tables[split], 1):
            if limit is not None and count >= limit:
                return
            count += 1
            yield document(row, columns, f"{name}/{split}:{number}", labelled=True)


def _tables(name: str, revision: str | None) -> Mapping[str, Any]:
    import datasets
    from huggingface_hub import constants

    online = not constants.HF_HUB_OFFLINE and reachable(constants.ENDPOINT)
    try:
        with _offline(not online):
            loaded: Mapping[str, Any] = datasets.load_dataset(name, revision=revision)
    except Exception as error:  # the libraries' own errors share no base class, and all mean: not to be had
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        if not online:
            why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} does not answer"
            cause = f"{why}, and from the local cache: {'nothing' if isinstance(error, OSError) else cause}"
        raise UsageError(
            f"dataset {name} must be on the hub and within reach: {cause}; "
            "go online, set HF_ENDPOINT to a mirror, or give files by --data FILE"
        ) from error
    if revision is not None:
        _check_revision(name, loaded, revision)
    return loaded


def _check_revision(name: str, tables: Mapping[str, Any], revision: str) -> None:
    """Refuse another commit: the cache alone gives its latest, whatever was asked for."""
    files = [Path(file["filename"]) for table in tables.values() for file in table.cache_files]
    others = sorted({file.parent.name for file in files} - {revision})
    if others:
        raise UsageError(f"dataset {name} must be at commit {revision}; the cache holds {', '.join(others)}")


@contextmanager
def _offline(active: bool) -> Iterator[None]:
    """Have the libraries look only into their caches; they read these flags at each use."""
    import datasets
    from huggingface_hub import constants

    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    if active:
        datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before


def reachable(endpoint: str, patience: float = PATIENCE) -> bool:
    """Whether the server of a URL, or the proxy that the environment sets before it, accepts a connection.

    Args:
        endpoint: URL.
        patience: seconds to wait for it, the look-up of its name included.
    """
    url = urlsplit(endpoint)
    proxy = getproxies().get(url.scheme)
    if proxy and not proxy_bypass(url.hostname or ""):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    address = url.hostname or "", url.port or {"https": 443}.get(url.scheme, 80)
    answered = threading.Event()

    def connect() -> None:
        try:
            with socket.create_connection(address, timeout=patience):
                answered.set()
        except OSError:
            pass

    # looking up a name cannot be given a time limit, so a thread is left behind with it
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(patience)
    return answered.is_set()
