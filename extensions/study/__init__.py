"""Experiments whose answers are known or printed: tables of the papers, a laboratory, and models with known members.

Commands: `fsd study NAME`, `fsd study lab` and `fsd pretrain`.
"""

from fsd.api import Command, Plug

GROUP = "research and preparation"
PLUG = Plug(
    commands={
        "pretrain": Command(GROUP, "extensions.study.pretrain", "pretrain a small model whose members are known"),
        "study": Command(GROUP, "extensions.study", "the papers' tables; our own: real, domains, truth"),
        "study lab": Command(GROUP, "extensions.study", "every score on targets whose training texts are all known"),
    }
)
