"""The command `fsd canary`."""

from pipelines.common.cli import subcommands
from pipelines.evidence import canary

# Subcommand → its settings, and the module of its `prepare`.
COMMANDS = {
    "make": (canary.MakeConfig, "pipelines.evidence.canary.make"),
    "test": (canary.RankConfig, "pipelines.evidence.canary.rank"),
    "demo": (canary.DemoConfig, "pipelines.evidence.canary.demo"),
}

if __name__ == "__main__":
    subcommands(COMMANDS, canary.__doc__)
