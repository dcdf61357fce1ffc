"""SURP paper (arXiv 2407.21248), Figure 3: ROC curves."""

from pipelines.study.spec import Study, with_defaults

STUDY = Study(
    place="SURP, Figure 3",
    title="What true-positive rate is reached at each false-positive rate?",
    detectors=with_defaults("loss", "min_k", "min_k_pp", "surp"),
    columns=("metric", "state"),
    metrics=("auc", "tpr_at_5fpr"),
    figure="roc",
    model="huggyllama/llama-13b",
    settings={"data.data": ("wikimia:64",)},
    note="The paper shows base scores only; FSD is added here, so that some non-members are left out of the test. The "
    "rates in its prose are not those of texts of 64 words, as its caption says.",
)
