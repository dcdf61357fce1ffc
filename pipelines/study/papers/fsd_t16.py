"""FSD, Table 16: learning rate, rank and epochs, one at a time about the defaults."""

from pipelines.study.spec import Axis, Study, plain

STUDY = Study(
    place="FSD, Table 16",
    title="How much do learning rate, rank and epochs matter?",
    axes=(
        Axis("learning rate", {f"{rate:g}": {"training.learning_rate": rate} for rate in (1e-5, 1e-4, 1e-3)}),
        Axis("rank", {str(rank): {"training.rank": rank} for rank in (8, 16, 32)}),
        Axis("epochs", {str(epochs): {"training.epochs": epochs} for epochs in (1, 2, 3)}),
    ),
    apart=True,
    detectors=plain("perplexity", "lowercase", "zlib", "min_k"),
    rows=("setting",),
    columns=("state", "detector"),
    settings={"data.data": ("wikimia",)},
    note="One setting is changed at a time; the others are learning rate 0.001, rank 16 and 3 epochs.",
)
