"""FSD paper (arXiv 2410.10880), Table 5: effect of timestamps in the texts."""

from pipelines.study.spec import Study, vary, with_defaults

STUDY = Study(
    place="FSD, Table 5",
    title="How much of the AUC remains when timestamps are deleted or replaced by the same year?",
    axes=(
        vary("timestamps", "texts.timestamps", {"kept": "keep", "deleted": "delete", "replaced by 2023": "replace"}),
    ),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("timestamps", "state"),
    settings={"data.data": ("wikimia",)},
    small_settings={"data.data": ("embedded:dated",)},
    note="The embedded texts contain no dates: at the small scale each is preceded by its date of publication.",
)
