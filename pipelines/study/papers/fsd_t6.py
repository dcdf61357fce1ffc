"""FSD paper (arXiv 2410.10880), Table 6: fine-tuning methods."""

from pipelines.study.spec import Study, numbers, vary, with_defaults

PAPER = """
huggyllama/llama-7b | wikimia | perplexity | - | base auc .64, base tpr_at_5fpr .09
huggyllama/llama-7b | wikimia | perplexity | AdaLoRA | fsd auc .82, fsd tpr_at_5fpr .39
huggyllama/llama-7b | wikimia | perplexity | IA3 | fsd auc .91, fsd tpr_at_5fpr .52
huggyllama/llama-7b | wikimia | perplexity | LoRA | fsd auc .92, fsd tpr_at_5fpr .41
huggyllama/llama-7b | wikimia | lowercase | - | base auc .58, base tpr_at_5fpr .10
huggyllama/llama-7b | wikimia | lowercase | AdaLoRA | fsd auc .62, fsd tpr_at_5fpr .13
huggyllama/llama-7b | wikimia | lowercase | IA3 | fsd auc .72, fsd tpr_at_5fpr .17
huggyllama/llama-7b | wikimia | lowercase | LoRA | fsd auc .69, fsd tpr_at_5fpr .18
huggyllama/llama-7b | wikimia | zlib | - | base auc .62, base tpr_at_5fpr .09
huggyllama/llama-7b | wikimia | zlib | AdaLoRA | fsd auc .76, fsd tpr_at_5fpr .24
huggyllama/llama-7b | wikimia | zlib | IA3 | fsd auc .84, fsd tpr_at_5fpr .32
huggyllama/llama-7b | wikimia | zlib | LoRA | fsd auc .90, fsd tpr_at_5fpr .47
huggyllama/llama-7b | wikimia | min_k | - | base auc .65, base tpr_at_5fpr .15
huggyllama/llama-7b | wikimia | min_k | AdaLoRA | fsd auc .80, fsd tpr_at_5fpr .22
huggyllama/llama-7b | wikimia | min_k | IA3 | fsd auc .90, fsd tpr_at_5fpr .39
huggyllama/llama-7b | wikimia | min_k | LoRA | fsd auc .85, fsd tpr_at_5fpr .25
"""
"""Printed in FSD (arXiv 2410.10880), Table 6; see `spec.numbers`."""

STUDY = Study(
    place="FSD, Table 6",
    title="Does the fine-tuning method matter?",
    axes=(vary("method", "training.method", {"AdaLoRA": "adalora", "IA3": "ia3", "LoRA": "lora"}),),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("metric", "state", "method"),
    metrics=("auc", "tpr_at_5fpr"),
    model="huggyllama/llama-7b",
    settings={"data.data": ("wikimia",)},
    note="All methods use the same learning rate.",
    paper=numbers(PAPER),
)
