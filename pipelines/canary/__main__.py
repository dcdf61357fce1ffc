"""The command `fsd canary`."""

from pipelines import canary
from pipelines.common.cli import subcommands

COMMANDS: dict[str, tuple[type, str]] = {
    "make": (canary.MakeConfig, "pipelines.canary.make"),
    "test": (canary.RankConfig, "pipelines.canary.rank"),
    "demo": (canary.DemoConfig, "pipelines.canary.demo"),
}

if __name__ == "__main__":
    subcommands(COMMANDS, canary.__doc__ or "")
