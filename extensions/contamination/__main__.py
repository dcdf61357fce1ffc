"""The command `fsd contamination`."""

from extensions.contamination import settings
from pipelines.api import command, deferred

if __name__ == "__main__":
    command(settings.ContaminationConfig, deferred("extensions.contamination.matrix"), settings.__doc__)
