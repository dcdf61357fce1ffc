"""FSD paper (arXiv 2410.10880), Table 15: unseen texts from the same, a mixed and another domain."""

from pipelines.study.spec import Study, vary, with_defaults

STUDY = Study(
    place="FSD, Table 15",
    title="Must the fine-tuning texts be from the domain of the tested texts?",
    axes=(vary("unseen texts", "texts.foreign", {"own domain": 0.0, "half and half": 0.5, "foreign domain": 1.0}),),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("unseen texts", "state"),
    settings={"data.data": ("wikimia",), "texts.other": ("arxivtection",)},
    small_settings={
        "data.data": ("embedded:cs,eess,stat,math",),
        "texts.other": ("embedded:q-bio,econ,physics,cond-mat",),
    },
    needs="--other, non-members of another domain",
    note="All columns have the same tested texts and the same number of fine-tuning texts.",
)
