"""The command `fsd extract`."""

from extensions.extract import settings
from pipelines.api import command, deferred

if __name__ == "__main__":
    command(settings.ExtractConfig, deferred("extensions.extract.works"), settings.__doc__)
