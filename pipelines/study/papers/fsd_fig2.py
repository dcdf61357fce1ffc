"""FSD, Figures 2, 3 and 5: the distributions of scores before and after, and of their difference."""

from pipelines.study.spec import Study, plain

STUDY = Study(
    place="FSD, Figures 2, 3 and 5",
    title="How do the scores of members and non-members lie before fine-tuning, and how does FSD?",
    detectors=plain("perplexity", "min_k"),
    metrics=("auc", "tpr_at_5fpr"),
    rows=("detector",),
    columns=("metric", "state"),
    figure="scores",
    settings={"data.data": ("wikimia",)},
    also=("fsd-fig3", "fsd-fig5"),
)
