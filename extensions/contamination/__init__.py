"""Was a data set, as a whole, in the training data? `fsd contamination`."""

from fsd.api import Command, Evidence, Plug

PLUG = Plug(
    commands={
        "contamination": Command(
            "one book, a benchmark, fine-tuning data, or texts not yet published",
            "extensions.contamination",
            "was this benchmark, as a whole, in the training data?",
            Evidence(
                numbers={
                    "p": "smallest p-value, corrected for the number of tests",
                    "share": "estimated share of the data set that was trained on",
                    "blind": "area under the ROC curve of a classifier that never sees the model",
                },
                inputs=("files", "known", "frequencies"),
                tests="exchangeability; with --known also dataset inference, CoDeC and kernel divergence; Holm",
                level="level",
            ),
        )
    }
)
