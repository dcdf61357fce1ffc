"""FSD paper (arXiv 2410.10880), Table 3: books."""

from pipelines.study.spec import Study, data_axis, with_defaults

STUDY = Study(
    place="FSD, Table 3",
    title="Can passages of copyrighted books be distinguished from passages of new ones?",
    axes=(data_axis("bookmia", "booktection"),),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("data", "metric", "state"),
    metrics=("accuracy", "auc"),
    note="The accuracy threshold is chosen on the validation texts. The benchmarks of the small scale hold no books.",
)
