"""The scores of several runs side by side: `fsd compare`."""

from fsd.api import Command, Plug

PLUG = Plug(
    commands={
        "compare": Command(
            "research and preparation",
            "extensions.compare.command",
            "which run is better, and by how much? means over seeds",
        )
    }
)
