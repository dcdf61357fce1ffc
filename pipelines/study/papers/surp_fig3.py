"""SURP, Figure 3: ROC curves."""

from pipelines.study.spec import Study, plain

STUDY = Study(
    place="SURP, Figure 3",
    title="Which share of members is found at which share of false alarms?",
    detectors=plain("loss", "min_k", "min_k_pp", "surp"),
    columns=("metric", "state"),
    metrics=("auc", "tpr_at_5fpr"),
    figure="roc",
    settings={"data.data": ("wikimia:128",)},
    note="The paper draws base scores; FSD is drawn beside them.",
)
