"""The command `fsd extract`."""

from pipelines import extract
from pipelines.common.cli import command, deferred

if __name__ == "__main__":
    command(
        extract.ExtractConfig,
        deferred("pipelines.extract.works"),
        extract.__doc__ or "",
    )
