"""A small model whose members are known: `fsd pretrain`."""

from fsd.plugs import Command, Plug

PLUG = Plug(
    commands={
        "pretrain": Command(
            "research and preparation", "extensions.pretrain.command", "pretrain a small model whose members are known"
        )
    }
)
