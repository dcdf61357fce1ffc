"""Was this text in the fine-tuning data of a model whose base is known? `fsd adapter-audit`."""

from fsd.api import Command, Evidence, Plug

PLUG = Plug(
    commands={
        "adapter-audit": Command(
            "one book, a benchmark, fine-tuning data, or texts not yet published",
            "extensions.adapter_audit",
            "was this in the fine-tuning data of a model with a known base?",
            Evidence(
                numbers={
                    "auc": "area under the ROC curve of the best score",
                    "low": "lower end of its 95 % interval",
                    "high": "upper end of its 95 % interval",
                    "blind": "the same area of a classifier that never sees the model",
                    "base": "the same area of the base model, which never saw the fine-tuning data",
                    "found": "share of the fine-tuning texts found at 5 % false calls",
                    "called": "texts without a label that are called fine-tuning data",
                    "share": "share of the judged texts that are called",
                },
                inputs=("data", "members", "nonmembers", "frequencies"),
                tests="AUC of the best score with its 95 % interval, beside a blind classifier",
                level="fpr",
            ),
        )
    }
)
