"""The command `fsd canary`."""

from extensions.canary import settings
from pipelines.api import subcommands

# Subcommand → its settings, and the module of its `prepare`.
COMMANDS = {
    "make": (settings.MakeConfig, "extensions.canary.make"),
    "test": (settings.RankConfig, "extensions.canary.rank"),
    "demo": (settings.DemoConfig, "extensions.canary.demo"),
}

if __name__ == "__main__":
    subcommands(COMMANDS, settings.__doc__)
