"""The commands `fsd canary make`, `fsd canary test` and `fsd canary demo`."""

from extensions.canary import settings
from pipelines.api import command, deferred, program

# Last word of a command → its settings, and the module of its `prepare`.
COMMANDS = {
    "make": (settings.MakeConfig, "extensions.canary.make"),
    "test": (settings.RankConfig, "extensions.canary.rank"),
    "demo": (settings.DemoConfig, "extensions.canary.demo"),
}

if __name__ == "__main__":
    config, module = COMMANDS[program().split()[-1]]
    command(config, deferred(module), config.__doc__)
