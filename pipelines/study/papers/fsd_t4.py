"""FSD, Table 4: what the adapter is trained on."""

from pipelines.study.spec import Axis, Study, plain

STUDY = Study(
    place="FSD, Table 4",
    title="Must the fine-tuning texts be non-members?",
    axes=(
        Axis(
            "trained on",
            {
                "members": {"texts.trained_on": "mem"},
                "all": {"texts.trained_on": "all"},
                "non-members": {"texts.trained_on": "non"},
            },
        ),
    ),
    detectors=plain("perplexity", "lowercase", "zlib", "min_k"),
    columns=("state", "trained on"),
    metrics=("auc",),
    settings={"data.data": ("wikimia",)},
    note="A share of members and of non-members is set aside in all cells, so that all are tested on the same texts.",
)
