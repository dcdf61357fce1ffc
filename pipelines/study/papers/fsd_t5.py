"""FSD, Table 5: do the detectors read the dates in the texts?"""

from pipelines.study.spec import Axis, Study, plain

STUDY = Study(
    place="FSD, Table 5",
    title="What remains when the timestamps in the texts are deleted or replaced by one year?",
    axes=(
        Axis(
            "timestamps",
            {
                "kept": {"texts.timestamps": "keep"},
                "deleted": {"texts.timestamps": "delete"},
                "replaced by 2023": {"texts.timestamps": "replace"},
            },
        ),
    ),
    detectors=plain("perplexity", "lowercase", "zlib", "min_k"),
    columns=("timestamps", "state"),
    settings={"data.data": ("wikimia",)},
    small_settings={"data.data": ("embedded:dated",)},
    note="The embedded texts name no year: in the small form the day of publication stands before each of them.",
)
