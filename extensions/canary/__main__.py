"""The command `fsd canary`."""

from extensions.canary import settings
from pipelines.api import subcommands

# Subcommand → its settings, the module of its `prepare`, and whether its answer is evidence.
COMMANDS = {
    "make": (settings.MakeConfig, "extensions.canary.make", False),
    "test": (settings.RankConfig, "extensions.canary.rank", True),
    "demo": (settings.DemoConfig, "extensions.canary.demo", False),
}

if __name__ == "__main__":
    subcommands(COMMANDS, settings.__doc__)
