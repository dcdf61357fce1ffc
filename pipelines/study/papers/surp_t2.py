"""SURP paper (arXiv 2407.21248), Table 2: Dolma-Book, passages from the head, the middle and the tail of books."""

from pipelines.study.spec import Study, model_axis, surp_table, vary

STUDY = Study(
    place="SURP, Table 2",
    title="Does the position of a passage in the book matter?",
    axes=(
        model_axis("allenai/OLMo-1B-hf", "allenai/OLMo-7B-hf"),
        vary("passage from", "texts.where", ("head", "middle", "tail")),
    ),
    detectors=surp_table(),
    rows=("model", "detector"),
    columns=("passage from",),
    states=("base",),
    settings={"texts.words": 1024},
    small_settings={"texts.words": 32},
    needs="--data, labelled whole books, from which the passages are cut; for reference, --reference-model None "
    "allenai/OLMo-1B-hf; for neighbour, --neighbour-model",
    note="The paper shows no reference score for OLMo-1B and no neighbour score.",
)
