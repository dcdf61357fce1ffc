"""Can passages of a work be extracted from a model? `fsd extract`."""

from fsd.api import Command, Evidence, Plug

PLUG = Plug(
    commands={
        "extract": Command(
            "one book, a benchmark, fine-tuning data, or texts not yet published",
            "extensions.extract",
            "can passages of this book be extracted? beside a control",
            Evidence(
                numbers={
                    "share": "share of the work that can be extracted at p ≥ 0.1 %",
                    "control": "the same share of the control",
                    "highest": "probability of the most probable passage",
                    "words": "with prompts: most words of a work in a row that were returned",
                    "words_control": "the same of the control works",
                    "p": "with prompts: p-value of the work among the control works, corrected for the number of works",
                },
                inputs=("book", "control", "questions"),
                tests="share of the work that can be extracted with its 95 % interval, beside that of the control",
            ),
        )
    }
)
