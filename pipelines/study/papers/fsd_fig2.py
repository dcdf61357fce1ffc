"""FSD paper (arXiv 2410.10880), Figures 2, 3 and 5: score distributions before and after fine-tuning, and of FSD."""

from pipelines.study.spec import Study, with_defaults

STUDY = Study(
    place="FSD, Figures 2, 3 and 5",
    title="How are the scores of members and non-members distributed before fine-tuning, and how is FSD?",
    detectors=with_defaults("perplexity", "min_k"),
    metrics=("auc", "tpr_at_5fpr"),
    rows=("detector",),
    columns=("metric", "state"),
    figure="scores",
    settings={"data.data": ("wikimia",)},
    aliases=("fsd-fig3", "fsd-fig5"),
)
