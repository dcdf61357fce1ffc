"""Canaries: random text published with documents, whose rank among unpublished alternatives is exact evidence.

`python -m pipelines.canary make` draws and seals them, `test` ranks them with any model, `demo` shows both offline.
"""

import sys

from pipelines.canary import demo, make, rank
from pipelines.common.cli import subcommands

if __name__ == "__main__":
    subcommands(
        {
            "make": (make.MakeConfig, make.main, make.__doc__ or "", make.plan),
            "test": (rank.RankConfig, rank.main, rank.__doc__ or "", rank.plan),
            "demo": (demo.DemoConfig, demo.main, demo.__doc__ or "", None),
        },
        __doc__ or "",
        sys.argv[1:],
    )
