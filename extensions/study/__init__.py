"""Tables and figures of the papers as declarative grids of experiments: `fsd study`."""

from fsd.plugs import Command, Plug

PLUG = Plug(
    commands={
        "study": Command(
            "research and preparation", "extensions.study", "the papers' tables; our own: lab, real, domains, truth"
        )
    }
)
