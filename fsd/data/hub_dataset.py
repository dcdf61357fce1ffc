"""Documents from a dataset on the hub, through `datasets`.

Without a network the library waits half a minute before it fails, so the connection is tested first. If the hub cannot
be reached, datasets in the local cache still load and others are refused at once.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsd.data.documents import Benchmark, Document
from fsd.data.readers import parse_rows
from fsd.errors import UsageError
from fsd.net.hub import first_line, hub_reachable


def load(
    name: str,
    columns: Mapping[str, str],
    *,
    config: str | None = None,
    splits: Sequence[str] | Mapping[str, bool] = (),
    only: tuple[str, str] | None = None,
    revision: str | None = None,
) -> Benchmark:
    """All labelled documents of a hub dataset; rows without a text or a label of 0 or 1 are left out and counted.

    Args:
        name: id of the dataset, owner/name.
        columns: column of each field of a document, as for `fsd.data.readers.document`.
        config: configuration, for a dataset with several.
        splits: splits to read; may be empty for a dataset with one split. A mapping gives the label of each split.
        only: column and value of the rows to use.
        revision: full commit hash; None is the newest commit.
    """
    tables = _tables(name, config, revision)
    chosen, there = tuple(splits or tables), ", ".join(tables)
    if not splits and len(tables) != 1:
        raise UsageError(f"dataset {name} must have one split; it has {there}")
    title = f"{name}/{config}" if config else name
    documents: list[Document] = []
    left_out = Counter[str]()
    for split in chosen:
        if split not in tables:
            raise UsageError(f"dataset {name} must have split {split}; it has {there}")
        names = tables[split].column_names
        missing = sorted({*columns.values(), *(only or ())[:1]} - set(names))
        if missing:
            raise UsageError(f"{title}/{split} must have column {', '.join(missing)}; it has {', '.join(names)}")
        label = {"label": splits[split]} if isinstance(splits, Mapping) else {}
        rows = (
            (f"{title}/{split}:{number}", {**row, **label})
            for number, row in enumerate(tables[split], 1)
            if only is None or str(row[only[0]]) == only[1]
        )
        documents += parse_rows(rows, columns, labelled=True, skipped=left_out)
    if not documents and not left_out and only:
        values = sorted({str(value) for split in chosen for value in tables[split].unique(only[0])})
        raise UsageError(f"dataset {name} must have rows with {only[0]} {only[1]}; it has {', '.join(values)}")
    if not documents and not left_out:
        raise UsageError(f"dataset {name} must have rows; split {', '.join(chosen)} has none")
    return Benchmark(documents, title, ", ".join(sorted(_commits(tables))), left_out)


def files(name: str, paths: Sequence[str], *, revision: str | None = None) -> tuple[list[Path], str]:
    """Files of a hub dataset with a loading script, downloaded or from the cache, and their commit."""
    from huggingface_hub import HfApi, constants, hf_hub_download
    from huggingface_hub.errors import GatedRepoError, RemoteEntryNotFoundError

    online = hub_reachable()
    local = []
    for path in paths:
        try:
            file = hf_hub_download(name, path, repo_type="dataset", revision=revision, local_files_only=not online)
        except GatedRepoError as error:
            raise UsageError(
                f"dataset {name} must be open to you; it is gated: accept its terms at "
                f"{constants.ENDPOINT}/datasets/{name} and set HF_TOKEN to a token of that account"
            ) from error
        except RemoteEntryNotFoundError as error:
            folder = path.rpartition("/")[0]
            all_files = HfApi().list_repo_files(name, repo_type="dataset", revision=revision)
            there = ", ".join(sorted(other for other in all_files if other.rpartition("/")[0] == folder))
            raise UsageError(
                f"dataset {name} must have file {path}; it has {there or f'nothing in {folder}/'}"
            ) from error
        except Exception as error:  # no common base class, as in _tables
            raise _unavailable(name, online, error) from error
        local.append(Path(file))
    return local, local[0].parts[local[0].parts.index("snapshots") + 1]


def _tables(name: str, config: str | None, revision: str | None) -> Mapping[str, Any]:
    import datasets

    online = hub_reachable()
    try:
        load_tables = datasets.load_dataset if online else _cached
        loaded: Mapping[str, Any] = load_tables(name, config, revision=revision)
    except Exception as error:  # the errors of the libraries have no common base class
        raise _unavailable(name, online, error) from error
    others = sorted(_commits(loaded) - {revision}) if revision else []
    if others:  # the library takes another commit from the cache if the given one is missing
        raise UsageError(f"dataset {name} must be at commit {revision}; the cache holds {', '.join(others)}")
    return loaded


def _cached(name: str, config: str | None, *, revision: str | None) -> Mapping[str, Any]:
    """A given commit from the cache, or else the newest there, for which alone the library itself looks offline."""
    from datasets.packaged_modules.cache.cache import Cache

    common = {"repo_id": name, "dataset_name": name.split("/")[-1]}
    cache = Cache(**common, config_name=config or "default", hash=revision or "")
    if not revision or not Path(cache.cache_dir).is_dir():
        cache = Cache(**common, config_name=config, hash="auto", version="auto")
    tables: Mapping[str, Any] = cache.as_dataset()
    return tables


def _unavailable(name: str, online: bool, error: Exception) -> UsageError:
    from huggingface_hub import constants

    why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} does not answer"
    cause = first_line(error) if online else f"{why}, and from the local cache: nothing"
    return UsageError(
        f"dataset {name} must be on the hub and within reach: {cause}; "
        "go online, set HF_ENDPOINT to a mirror, or give files by --data FILE"
    )


def _commits(tables: Mapping[str, Any]) -> set[str]:
    """Commits of the tables: the name of their folder in the cache."""
    return {Path(file["filename"]).parent.name for table in tables.values() for file in table.cache_files}
