"""FSD paper (arXiv 2410.10880), Tables 2 and 12: model size within one family."""

from pipelines.study.spec import Study, model_axis, numbers, with_defaults

PAPER = """
huggyllama/llama-7b | wikimia | perplexity | - | base auc .64, fsd auc .92
huggyllama/llama-13b | wikimia | perplexity | - | base auc .66, fsd auc .92
huggyllama/llama-30b | wikimia | perplexity | - | base auc .68, fsd auc .91
huggyllama/llama-7b | wikimia | lowercase | - | base auc .58, fsd auc .69
huggyllama/llama-13b | wikimia | lowercase | - | base auc .60, fsd auc .70
huggyllama/llama-30b | wikimia | lowercase | - | base auc .60, fsd auc .75
huggyllama/llama-7b | wikimia | zlib | - | base auc .62, fsd auc .90
huggyllama/llama-13b | wikimia | zlib | - | base auc .63, fsd auc .90
huggyllama/llama-30b | wikimia | zlib | - | base auc .65, fsd auc .91
huggyllama/llama-7b | wikimia | min_k | - | base auc .65, fsd auc .85
huggyllama/llama-13b | wikimia | min_k | - | base auc .67, fsd auc .86
huggyllama/llama-30b | wikimia | min_k | - | base auc .70, fsd auc .82
"""
"""Printed in FSD (arXiv 2410.10880), Table 2; see `spec.numbers`."""

STUDY = Study(
    place="FSD, Tables 2 and 12",
    title="Does FSD depend on model size?",
    axes=(model_axis("huggyllama/llama-7b", "huggyllama/llama-13b", "huggyllama/llama-30b"),),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("model", "metric", "state"),
    metrics=("auc", "tpr_at_5fpr"),
    settings={"data.data": ("wikimia",)},
    aliases=("fsd-t12",),
    note="Only one model size is embedded: at the small scale the models are the target and its twin, pretrained "
    "without members.",
    paper=numbers(PAPER),
)
