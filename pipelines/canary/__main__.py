"""The command `fsd canary`."""

import sys

from pipelines import canary
from pipelines.common.cli import deferred, subcommands

COMMANDS = {
    "make": (canary.MakeConfig, "pipelines.canary.make"),
    "test": (canary.RankConfig, "pipelines.canary.rank"),
    "demo": (canary.DemoConfig, "pipelines.canary.demo"),
}

if __name__ == "__main__":
    subcommands(
        {name: (config, deferred(module), config.__doc__ or "") for name, (config, module) in COMMANDS.items()},
        canary.__doc__ or "",
        sys.argv[1:],
    )
