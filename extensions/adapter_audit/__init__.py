"""Was this text in the fine-tuning data of a model whose base is known? `fsd adapter-audit`."""

from fsd.api import Command, Plug

PLUG = Plug(
    commands={
        "adapter-audit": Command(
            "one book, a benchmark, fine-tuning data, or texts not yet published",
            "extensions.adapter_audit",
            "was this in the fine-tuning data of a model with a known base?",
        )
    }
)
