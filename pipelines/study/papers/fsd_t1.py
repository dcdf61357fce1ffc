"""FSD, Table 1: base detectors and their FSD on several models and two benchmarks."""

from pipelines.study.spec import Study, of_data, of_models, plain

STUDY = Study(
    place="FSD, Table 1",
    title="Does FSD improve the detectors across models and benchmarks?",
    axes=(
        of_data("wikimia", "arxivtection"),
        of_models(
            "EleutherAI/gpt-j-6b",
            "facebook/opt-6.7b",
            "EleutherAI/pythia-6.9b",
            "huggyllama/llama-7b",
            "EleutherAI/gpt-neox-20b",
        ),
    ),
    detectors=plain("perplexity", "lowercase", "zlib", "min_k"),
    rows=("model", "detector"),
    columns=("data", "metric", "state"),
    metrics=("auc", "tpr_at_5fpr"),
    note="In the small form the second model is the target's twin, which saw none of the texts: its AUC should be .5.",
)
