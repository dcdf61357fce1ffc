"""Random canaries, published before training, and their exact ranks afterwards: `fsd canary`."""

from fsd.api import Command, Plug

PLUG = Plug(
    commands={
        "canary": Command(
            "one book, a benchmark, fine-tuning data, or texts not yet published",
            "extensions.canary",
            "publish random canaries; was a model trained on them? exact",
        )
    }
)
