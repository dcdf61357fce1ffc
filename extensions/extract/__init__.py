"""Can passages of a work be extracted from a model? `fsd extract`."""

from fsd.api import Command, Plug

PLUG = Plug(
    commands={
        "extract": Command(
            "one book, a benchmark, fine-tuning data, or texts not yet published",
            "extensions.extract",
            "can passages of this book be extracted? beside a control",
        )
    }
)
