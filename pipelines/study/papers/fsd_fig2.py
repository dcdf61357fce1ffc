"""FSD paper (arXiv 2410.10880), Figures 2 and 3: score distributions before and after fine-tuning, and of FSD."""

from pipelines.study.spec import Study, with_defaults

STUDY = Study(
    place="FSD, Figures 2 and 3",
    title="How are the scores of members and non-members distributed before fine-tuning, and how is FSD?",
    detectors=with_defaults("perplexity", "min_k"),
    metrics=("auc", "tpr_at_5fpr"),
    rows=("detector",),
    columns=("metric", "state"),
    figure="scores",
    model="huggyllama/llama-7b",
    settings={"data.data": ("wikimia",)},
    aliases=("fsd-fig3",),
)
