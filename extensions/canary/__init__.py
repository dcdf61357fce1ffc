"""Random canaries, published before training, and their exact ranks afterwards: `fsd canary`."""

from fsd.api import Command, Evidence, Plug

QUESTION = "one book, a benchmark, fine-tuning data, or texts not yet published"
MODULE = "extensions.canary"
PLUG = Plug(
    commands={
        "canary make": Command(QUESTION, MODULE, "draw random canaries for documents, to be published"),
        "canary test": Command(
            QUESTION,
            MODULE,
            "was a model trained on published canaries? exact",
            Evidence(
                numbers={
                    "p": "smallest p-value of all documents, corrected for the number of detectors",
                    "found": "share of the documents found at the level alpha",
                },
                inputs=("folder", "frequencies"),
                tests="rank of the published canaries among the withheld ones, all documents together; Holm",
                level="alpha",
            ),
        ),
        "canary demo": Command(QUESTION, MODULE, "both on the embedded model, in a minute"),
    }
)
