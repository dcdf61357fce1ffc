"""SURP paper (arXiv 2407.21248), Table 1: the four lengths of WikiMIA."""

from pipelines.study.spec import Axis, Study, with_defaults

LENGTHS = (32, 64, 128, 256)
SMALL = (16, 32, 64)

STUDY = Study(
    place="SURP, Table 1",
    title="Do surprising tokens reveal members in short and long texts?",
    axes=(
        Axis(
            "words",
            {str(words): {"data.data": (f"wikimia:{words}",), "texts.words": words} for words in LENGTHS},
            {str(words): {"texts.words": words} for words in SMALL},
        ),
    ),
    detectors=with_defaults("loss", "lowercase", "zlib", "min_k", "min_k_pp", "surp"),
    columns=("words",),
    states=("base",),
    note="Texts given by --data are truncated to each length; shorter texts are dropped.",
)
