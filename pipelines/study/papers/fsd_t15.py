"""FSD, Table 15: unseen texts of the own, a mixed and a foreign domain."""

from pipelines.study.spec import Axis, Study, plain

STUDY = Study(
    place="FSD, Table 15",
    title="Must the fine-tuning texts be of the domain of the tested ones?",
    axes=(
        Axis(
            "unseen texts",
            {
                "own domain": {"texts.foreign": 0.0},
                "half and half": {"texts.foreign": 0.5},
                "foreign domain": {"texts.foreign": 1.0},
            },
        ),
    ),
    detectors=plain("perplexity", "lowercase", "zlib", "min_k"),
    columns=("unseen texts", "state"),
    settings={"data.data": ("wikimia",), "texts.other": ("arxivtection",)},
    small_settings={
        "data.data": ("embedded:cs,eess,stat,math",),
        "texts.other": ("embedded:q-bio,econ,physics,cond-mat",),
    },
    needs="--other, non-members of another domain",
    note="The number of fine-tuning texts and the tested texts are the same in all columns.",
)
