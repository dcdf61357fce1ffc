"""Canaries: random text published with documents, whose rank among unpublished alternatives is exact evidence.

`python -m pipelines.canary make` draws and seals them, `test` ranks them with any model, `demo` shows both offline.
"""

import sys

from pipelines.canary import demo, make, rank
from pipelines.common.cli import subcommands

if __name__ == "__main__":
    subcommands(
        {
            "make": (make.MakeConfig, make.prepare, make.__doc__ or ""),
            "test": (rank.RankConfig, rank.prepare, rank.__doc__ or ""),
            "demo": (demo.DemoConfig, demo.prepare, demo.__doc__ or ""),
        },
        __doc__ or "",
        sys.argv[1:],
    )
