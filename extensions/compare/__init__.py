"""The scores of several runs side by side: `fsd compare`."""

from fsd.api import Command, Plug

PLUG = Plug(
    commands={
        "compare": Command(
            "research and preparation",
            "extensions.compare.command",
            "mean and interval of every score over seeds and runs",
        )
    }
)
