"""How much of some texts stands in a corpus, word for word: `fsd overlap`."""

from fsd.api import Command, Plug

PLUG = Plug(
    commands={
        "overlap": Command(
            "research and preparation",
            "extensions.overlap.command",
            "how much of these texts stands in that corpus, word for word?",
        )
    }
)
