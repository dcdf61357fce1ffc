"""The command `fsd contamination`."""

from pipelines.common.cli import command, deferred
from pipelines.evidence import contamination

if __name__ == "__main__":
    command(
        contamination.ContaminationConfig, deferred("pipelines.evidence.contamination.matrix"), contamination.__doc__
    )
