"""The command `fsd contamination`."""

from pipelines import contamination
from pipelines.common.cli import command, deferred

if __name__ == "__main__":
    command(
        contamination.ContaminationConfig,
        deferred("pipelines.contamination.dataset"),
        contamination.__doc__ or "",
    )
