"""How much of some texts stands in a corpus, word for word: `fsd overlap`."""

from fsd.api import Command, Evidence, Plug

PLUG = Plug(
    commands={
        "overlap": Command(
            "research and preparation",
            "extensions.overlap.command",
            "how much of these texts stands in that corpus, word for word?",
            Evidence(
                numbers={
                    "found": "texts that share n-grams with the corpus",
                    "texts": "share of the texts that do",
                    "share": "share of the n-grams that occur in the corpus",
                    "longest": "words of the longest passage",
                }
            ),
        )
    }
)
