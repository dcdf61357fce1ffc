"""DC-PDD paper (arXiv 2409.14781), Tables 2 and 3: DC-PDD compared with other detectors, with paired tests."""

from pipelines.study.spec import Study, data_axis, model_axis, with_defaults

STUDY = Study(
    place="DC-PDD, Tables 2 and 3",
    title="Does DC-PDD detect members better than other detectors?",
    axes=(
        data_axis("wikimia", "bookmia"),
        model_axis("facebook/opt-6.7b", "EleutherAI/pythia-6.9b", "huggyllama/llama-13b", "EleutherAI/gpt-neox-20b"),
    ),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "reference", "min_k", "min_k_pp", "dc_pdd"),
    rows=("data", "detector"),
    columns=("model", "metric"),
    metrics=("auc", "tpr_at_5fpr"),
    states=("base",),
    against="dc_pdd",
    needs="--frequencies for dc_pdd (pipelines.frequencies), --reference-model for reference; "
    "PatentMIA: --data patentmia:FILE with a Chinese model",
    aliases=("dcpdd-t3",),
    note="At the small scale the second model is the target's twin, pretrained without members: its AUC should be .5.",
)
