"""What every pipeline's command line has in common."""

import os
import sys
from collections.abc import Callable
from typing import TypeVar

from fsd.errors import UsageError

Config = TypeVar("Config")


def command(config: type[Config], main: Callable[[Config], object], description: str) -> None:
    """Read the command line into `config` and run `main` with it.

    A user's mistake ends with exit code 2 and one line on stderr, an interruption with 130; anything else is a
    fault of ours and keeps its traceback.
    """
    import tyro

    # Before torch starts its threads: spinning ones stall two processes on the same cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    settings = tyro.cli(config, description=description, config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands))
    try:
        main(settings)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
