"""The command `fsd extract`."""

from pipelines.common.cli import command, deferred
from pipelines.evidence import extract

if __name__ == "__main__":
    command(extract.ExtractConfig, deferred("pipelines.evidence.extract.works"), extract.__doc__)
