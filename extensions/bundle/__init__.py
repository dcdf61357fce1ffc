"""The evidence of a run in one folder or file, which the other side can verify: `fsd bundle`, `fsd verify`."""

from fsd.api import Command, Plug

PLUG = Plug(
    commands={
        "bundle": Command(
            "evidence that the other side can check",
            "extensions.bundle.command",
            "the evidence of a run, with hashes, in one folder or zip file",
        ),
        "verify": Command(
            "evidence that the other side can check",
            "extensions.bundle.verify",
            "is a bundle as it was made? and do its numbers come out again?",
        ),
    },
    before="extensions.bundle.hooks:check_protocol",
    files="extensions.bundle.hooks:files",
    after="extensions.bundle.gate:failures",
)
