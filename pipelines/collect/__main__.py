"""Collect texts of a domain that cannot be in a model's pretraining data: fsd collect --help.

--after (or --model, which takes the model's known cutoff) collects non-members, --before members, and both together a
balanced benchmark with a card that shows how fair it is. --contemporaries collects texts published up to the cutoff as
non-members. A killed run resumes when it is started again.

Examples:
    fsd collect --domain arxiv --limit 500 --after 2024-06-30
    fsd collect --domain wikipedia --limit 500 --before 2022-01-01 --after 2024-06-30 --out benchmark.jsonl
"""

from pipelines.collect import Collect
from pipelines.command.cli import command, deferred

if __name__ == "__main__":
    command(
        Collect, deferred("pipelines.collect.job"), __doc__, stages={"data": "settings", "collecting": "collecting"}
    )
