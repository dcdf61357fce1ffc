"""Log a run that was kept because its store failed: python -m fsd.tracking FOLDER."""

import sys
from pathlib import Path

from fsd.errors import StorageError, UsageError
from fsd.tracking.registry import publish
from fsd.tracking.runs import kept_run


def main(folder: Path) -> None:
    """Log the run in the folder, and register the adapter that it was to register."""
    with kept_run(folder) as run:
        if run.record.version:
            publish(run)
    # Of a store without a server, no page is served yet.
    place = run.address_of("").rstrip("/")
    if run.store.is_server:
        place = run.page()
    print(f"logged: {place}")


if __name__ == "__main__":
    try:
        main(Path(" ".join(sys.argv[1:]) or "."))
    except (UsageError, StorageError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
