"""SURP paper (arXiv 2407.21248), Figure 3: ROC curves."""

from pipelines.study.spec import Study, with_defaults

STUDY = Study(
    place="SURP, Figure 3",
    title="What true-positive rate is reached at each false-positive rate?",
    detectors=with_defaults("loss", "min_k", "min_k_pp", "surp"),
    columns=("metric", "state"),
    metrics=("auc", "tpr_at_5fpr"),
    figure="roc",
    settings={"data.data": ("wikimia:128",)},
    note="The paper shows base scores only; FSD is added here.",
)
