"""FSD paper (arXiv 2410.10880), Table 16: learning rate, rank and epochs, varied one at a time around the defaults."""

from pipelines.study.spec import Study, vary, with_defaults

STUDY = Study(
    place="FSD, Table 16",
    title="How much do learning rate, rank and epochs matter?",
    axes=(
        vary("learning rate", "training.learning_rate", (1e-5, 1e-4, 1e-3)),
        vary("rank", "training.rank", (8, 16, 32)),
        vary("epochs", "training.epochs", (1, 2, 3)),
    ),
    one_at_a_time=True,
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    rows=("setting",),
    columns=("state", "detector"),
    settings={"data.data": ("wikimia",)},
    note="One setting is varied at a time; the defaults are learning rate 0.001, rank 16 and 3 epochs.",
)
