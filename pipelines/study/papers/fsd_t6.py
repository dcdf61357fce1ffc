"""FSD paper (arXiv 2410.10880), Table 6: fine-tuning methods."""

from pipelines.study.spec import Study, vary, with_defaults

STUDY = Study(
    place="FSD, Table 6",
    title="Does the fine-tuning method matter?",
    axes=(vary("method", "training.method", {"AdaLoRA": "adalora", "IA3": "ia3", "LoRA": "lora"}),),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("state", "method"),
    settings={"data.data": ("wikimia",)},
    note="All methods use the same learning rate.",
)
