"""SURP paper (arXiv 2407.21248), Table 2: Dolma-Book, passages from the head, the middle and the tail of books."""

from pipelines.study.spec import Study, vary, with_defaults

STUDY = Study(
    place="SURP, Table 2",
    title="Does the position of a passage in the book matter?",
    axes=(vary("passage from", "texts.where", ("head", "middle", "tail")),),
    detectors=with_defaults("loss", "lowercase", "zlib", "min_k", "min_k_pp", "surp"),
    columns=("passage from",),
    states=("base",),
    settings={"texts.words": 512},
    small_settings={"texts.words": 32},
    needs="labelled whole books, from which the passages are cut",
)
