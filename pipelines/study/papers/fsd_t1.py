"""FSD paper (arXiv 2410.10880), Table 1: detectors with and without FSD on several models and two benchmarks."""

from pipelines.study.spec import Study, data_axis, model_axis, with_defaults

STUDY = Study(
    place="FSD, Table 1",
    title="Does FSD improve the detectors across models and benchmarks?",
    axes=(
        data_axis("wikimia", "arxivtection"),
        model_axis(
            "EleutherAI/gpt-j-6b",
            "facebook/opt-6.7b",
            "EleutherAI/pythia-6.9b",
            "huggyllama/llama-7b",
            "EleutherAI/gpt-neox-20b",
        ),
    ),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    rows=("model", "detector"),
    columns=("data", "metric", "state"),
    metrics=("auc", "tpr_at_5fpr"),
    note="At the small scale the second model is the target's twin, pretrained without members: its AUC should be .5.",
)
