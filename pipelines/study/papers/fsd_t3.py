"""FSD, Table 3: books."""

from pipelines.study.spec import Study, of_data, plain

STUDY = Study(
    place="FSD, Table 3",
    title="Are passages of copyrighted books told from passages of new ones?",
    axes=(of_data("bookmia", "booktection"),),
    detectors=plain("perplexity", "lowercase", "zlib", "min_k"),
    columns=("data", "metric", "state"),
    metrics=("accuracy", "auc"),
    note="Accuracy is at the threshold that is best on the validation texts. The small form has no books.",
)
