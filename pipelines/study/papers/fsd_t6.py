"""FSD, Table 6: the method of fine-tuning."""

from pipelines.study.spec import Axis, Study, plain

STUDY = Study(
    place="FSD, Table 6",
    title="Does the method of fine-tuning matter?",
    axes=(
        Axis(
            "method",
            {
                "AdaLoRA": {"training.method": "adalora"},
                "IA3": {"training.method": "ia3"},
                "LoRA": {"training.method": "lora"},
            },
        ),
    ),
    detectors=plain("perplexity", "lowercase", "zlib", "min_k"),
    columns=("state", "method"),
    settings={"data.data": ("wikimia",)},
    note="All methods with the same learning rate.",
)
