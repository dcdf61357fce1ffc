"""SURP, Table 1: WikiMIA in its four lengths."""

from pipelines.study.spec import Axis, Study, plain

LENGTHS = (32, 64, 128, 256)
SMALL = (16, 32, 64)

STUDY = Study(
    place="SURP, Table 1",
    title="Do surprising tokens tell members apart in short and long texts?",
    axes=(
        Axis(
            "words",
            {str(words): {"data.data": (f"wikimia:{words}",), "texts.words": words} for words in LENGTHS},
            {str(words): {"texts.words": words} for words in SMALL},
        ),
    ),
    detectors=plain("loss", "lowercase", "zlib", "min_k", "min_k_pp", "surp"),
    columns=("words",),
    states=("base",),
    note="With --data, texts are cut to the lengths; shorter texts are left out.",
)
