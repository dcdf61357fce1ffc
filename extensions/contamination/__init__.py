"""Was a data set, as a whole, in the training data? `fsd contamination`."""

from fsd.api import Command, Plug

PLUG = Plug(
    commands={
        "contamination": Command(
            "one book, a benchmark, fine-tuning data, or texts not yet published",
            "extensions.contamination",
            "was this benchmark, as a whole, in the training data?",
        )
    }
)
