"""DC-PDD, Tables 2 and 3: DC-PDD against other detectors, paired tests included."""

from pipelines.study.spec import Study, of_data, of_models, plain

STUDY = Study(
    place="DC-PDD, Tables 2 and 3",
    title="Does DC-PDD tell members apart better than other detectors?",
    axes=(
        of_data("wikimia", "bookmia"),
        of_models("facebook/opt-6.7b", "EleutherAI/pythia-6.9b", "huggyllama/llama-13b", "EleutherAI/gpt-neox-20b"),
    ),
    detectors=plain("perplexity", "lowercase", "zlib", "reference", "min_k", "min_k_pp", "dc_pdd"),
    rows=("data", "detector"),
    columns=("model", "metric"),
    metrics=("auc", "tpr_at_5fpr"),
    states=("base",),
    against="dc_pdd",
    needs="--frequencies for dc_pdd (pipelines.frequencies), --reference-model for reference; "
    "PatentMIA: --data patentmia:FILE with a Chinese model",
    also=("dcpdd-t3",),
    note="In the small form the second model is the target's twin, which saw none of the texts: its AUC should be .5.",
)
