"""FSD paper (arXiv 2410.10880), Table 4: training texts of the adapter."""

from pipelines.study.spec import Study, numbers, vary, with_defaults

PAPER = """
huggyllama/llama-7b | wikimia | perplexity | - | base auc .64
huggyllama/llama-7b | wikimia | perplexity | all | fsd auc .68
huggyllama/llama-7b | wikimia | perplexity | members | fsd auc .78
huggyllama/llama-7b | wikimia | perplexity | non-members | fsd auc .92
huggyllama/llama-7b | wikimia | lowercase | - | base auc .58
huggyllama/llama-7b | wikimia | lowercase | all | fsd auc .54
huggyllama/llama-7b | wikimia | lowercase | members | fsd auc .67
huggyllama/llama-7b | wikimia | lowercase | non-members | fsd auc .69
huggyllama/llama-7b | wikimia | zlib | - | base auc .62
huggyllama/llama-7b | wikimia | zlib | all | fsd auc .65
huggyllama/llama-7b | wikimia | zlib | members | fsd auc .79
huggyllama/llama-7b | wikimia | zlib | non-members | fsd auc .90
huggyllama/llama-7b | wikimia | min_k | - | base auc .65
huggyllama/llama-7b | wikimia | min_k | all | fsd auc .61
huggyllama/llama-7b | wikimia | min_k | members | fsd auc .81
huggyllama/llama-7b | wikimia | min_k | non-members | fsd auc .85
"""
"""Printed in FSD (arXiv 2410.10880), Table 4; see `spec.numbers`."""

STUDY = Study(
    place="FSD, Table 4",
    title="Must the fine-tuning texts be non-members?",
    axes=(vary("trained on", "texts.trained_on", {"members": "mem", "all": "all", "non-members": "non"}),),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("state", "trained on"),
    metrics=("auc",),
    model="huggyllama/llama-7b",
    settings={"data.data": ("wikimia",)},
    note="The same share of members and non-members is reserved in all cells: all are tested on the same texts.",
    paper=numbers(PAPER),
)
