"""SURP, Table 2: Dolma-Book, passages from the head, the middle and the tail of books."""

from pipelines.study.spec import Axis, Study, plain

PARTS = ("head", "middle", "tail")

STUDY = Study(
    place="SURP, Table 2",
    title="Does it matter where in a book a passage is from?",
    axes=(Axis("passage from", {part: {"texts.where": part} for part in PARTS}),),
    detectors=plain("loss", "lowercase", "zlib", "min_k", "min_k_pp", "surp"),
    columns=("passage from",),
    states=("base",),
    settings={"texts.words": 512},
    small_settings={"texts.words": 32},
    needs="whole books with labels, of which the passages are cut",
)
