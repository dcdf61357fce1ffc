"""FSD paper (arXiv 2410.10880), Table 4: training texts of the adapter."""

from pipelines.study.spec import Study, vary, with_defaults

STUDY = Study(
    place="FSD, Table 4",
    title="Must the fine-tuning texts be non-members?",
    axes=(vary("trained on", "texts.trained_on", {"members": "mem", "all": "all", "non-members": "non"}),),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("state", "trained on"),
    metrics=("auc",),
    settings={"data.data": ("wikimia",)},
    note="The same share of members and non-members is reserved in all cells: all are tested on the same texts.",
)
