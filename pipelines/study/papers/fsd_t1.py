"""FSD paper (arXiv 2410.10880), Table 1: detectors with and without FSD on several models and two benchmarks."""

from pipelines.study.spec import Study, data_axis, model_axis, numbers, with_defaults

PAPER = """
EleutherAI/gpt-j-6b | wikimia | perplexity | - | base auc .64, fsd auc .95, base tpr_at_5fpr .12, fsd tpr_at_5fpr .78
facebook/opt-6.7b | wikimia | perplexity | - | base auc .60, fsd auc .90, base tpr_at_5fpr .12, fsd tpr_at_5fpr .63
EleutherAI/pythia-6.9b | wikimia | perplexity | - | base auc .64, fsd auc .90
EleutherAI/pythia-6.9b | wikimia | perplexity | - | base tpr_at_5fpr .13, fsd tpr_at_5fpr .66
huggyllama/llama-7b | wikimia | perplexity | - | base auc .64, fsd auc .92, base tpr_at_5fpr .09, fsd tpr_at_5fpr .41
EleutherAI/gpt-neox-20b | wikimia | perplexity | - | base auc .69, fsd auc .93
EleutherAI/gpt-neox-20b | wikimia | perplexity | - | base tpr_at_5fpr .20, fsd tpr_at_5fpr .58
EleutherAI/gpt-j-6b | wikimia | lowercase | - | base auc .59, fsd auc .77, base tpr_at_5fpr .12, fsd tpr_at_5fpr .24
facebook/opt-6.7b | wikimia | lowercase | - | base auc .59, fsd auc .71, base tpr_at_5fpr .07, fsd tpr_at_5fpr .18
EleutherAI/pythia-6.9b | wikimia | lowercase | - | base auc .58, fsd auc .74
EleutherAI/pythia-6.9b | wikimia | lowercase | - | base tpr_at_5fpr .11, fsd tpr_at_5fpr .25
huggyllama/llama-7b | wikimia | lowercase | - | base auc .58, fsd auc .69, base tpr_at_5fpr .10, fsd tpr_at_5fpr .18
EleutherAI/gpt-neox-20b | wikimia | lowercase | - | base auc .66, fsd auc .76
EleutherAI/gpt-neox-20b | wikimia | lowercase | - | base tpr_at_5fpr .16, fsd tpr_at_5fpr .18
EleutherAI/gpt-j-6b | wikimia | zlib | - | base auc .61, fsd auc .94, base tpr_at_5fpr .09, fsd tpr_at_5fpr .78
facebook/opt-6.7b | wikimia | zlib | - | base auc .59, fsd auc .89, base tpr_at_5fpr .09, fsd tpr_at_5fpr .55
EleutherAI/pythia-6.9b | wikimia | zlib | - | base auc .61, fsd auc .88, base tpr_at_5fpr .10, fsd tpr_at_5fpr .50
huggyllama/llama-7b | wikimia | zlib | - | base auc .62, fsd auc .90, base tpr_at_5fpr .09, fsd tpr_at_5fpr .47
EleutherAI/gpt-neox-20b | wikimia | zlib | - | base auc .64, fsd auc .93, base tpr_at_5fpr .10, fsd tpr_at_5fpr .57
EleutherAI/gpt-j-6b | wikimia | min_k | - | base auc .68, fsd auc .92, base tpr_at_5fpr .17, fsd tpr_at_5fpr .40
facebook/opt-6.7b | wikimia | min_k | - | base auc .62, fsd auc .91, base tpr_at_5fpr .14, fsd tpr_at_5fpr .50
EleutherAI/pythia-6.9b | wikimia | min_k | - | base auc .67, fsd auc .86, base tpr_at_5fpr .17, fsd tpr_at_5fpr .35
huggyllama/llama-7b | wikimia | min_k | - | base auc .65, fsd auc .85, base tpr_at_5fpr .15, fsd tpr_at_5fpr .25
EleutherAI/gpt-neox-20b | wikimia | min_k | - | base auc .73, fsd auc .90, base tpr_at_5fpr .25, fsd tpr_at_5fpr .36
EleutherAI/gpt-j-6b | arxivtection | perplexity | - | base auc .79, fsd auc .96
EleutherAI/gpt-j-6b | arxivtection | perplexity | - | base tpr_at_5fpr .26, fsd tpr_at_5fpr .79
facebook/opt-6.7b | arxivtection | perplexity | - | base auc .68, fsd auc .89
facebook/opt-6.7b | arxivtection | perplexity | - | base tpr_at_5fpr .12, fsd tpr_at_5fpr .63
EleutherAI/pythia-6.9b | arxivtection | perplexity | - | base auc .77, fsd auc .95
EleutherAI/pythia-6.9b | arxivtection | perplexity | - | base tpr_at_5fpr .25, fsd tpr_at_5fpr .66
huggyllama/llama-7b | arxivtection | perplexity | - | base auc .68, fsd auc .92
huggyllama/llama-7b | arxivtection | perplexity | - | base tpr_at_5fpr .10, fsd tpr_at_5fpr .81
EleutherAI/gpt-neox-20b | arxivtection | perplexity | - | base auc .79, fsd auc .95
EleutherAI/gpt-neox-20b | arxivtection | perplexity | - | base tpr_at_5fpr .27, fsd tpr_at_5fpr .77
EleutherAI/gpt-j-6b | arxivtection | lowercase | - | base auc .59, fsd auc .81
EleutherAI/gpt-j-6b | arxivtection | lowercase | - | base tpr_at_5fpr .13, fsd tpr_at_5fpr .23
facebook/opt-6.7b | arxivtection | lowercase | - | base auc .58, fsd auc .70
facebook/opt-6.7b | arxivtection | lowercase | - | base tpr_at_5fpr .15, fsd tpr_at_5fpr .22
EleutherAI/pythia-6.9b | arxivtection | lowercase | - | base auc .60, fsd auc .77
EleutherAI/pythia-6.9b | arxivtection | lowercase | - | base tpr_at_5fpr .15, fsd tpr_at_5fpr .25
huggyllama/llama-7b | arxivtection | lowercase | - | base auc .50, fsd auc .69
huggyllama/llama-7b | arxivtection | lowercase | - | base tpr_at_5fpr .09, fsd tpr_at_5fpr .16
EleutherAI/gpt-neox-20b | arxivtection | lowercase | - | base auc .62, fsd auc .75
EleutherAI/gpt-neox-20b | arxivtection | lowercase | - | base tpr_at_5fpr .13, fsd tpr_at_5fpr .20
EleutherAI/gpt-j-6b | arxivtection | zlib | - | base auc .64, fsd auc .96, base tpr_at_5fpr .15, fsd tpr_at_5fpr .80
facebook/opt-6.7b | arxivtection | zlib | - | base auc .55, fsd auc .89, base tpr_at_5fpr .07, fsd tpr_at_5fpr .60
EleutherAI/pythia-6.9b | arxivtection | zlib | - | base auc .63, fsd auc .95
EleutherAI/pythia-6.9b | arxivtection | zlib | - | base tpr_at_5fpr .14, fsd tpr_at_5fpr .50
huggyllama/llama-7b | arxivtection | zlib | - | base auc .57, fsd auc .91, base tpr_at_5fpr .08, fsd tpr_at_5fpr .66
EleutherAI/gpt-neox-20b | arxivtection | zlib | - | base auc .65, fsd auc .95
EleutherAI/gpt-neox-20b | arxivtection | zlib | - | base tpr_at_5fpr .16, fsd tpr_at_5fpr .77
EleutherAI/gpt-j-6b | arxivtection | min_k | - | base auc .85, fsd auc .92, base tpr_at_5fpr .42, fsd tpr_at_5fpr .57
facebook/opt-6.7b | arxivtection | min_k | - | base auc .74, fsd auc .84, base tpr_at_5fpr .24, fsd tpr_at_5fpr .45
EleutherAI/pythia-6.9b | arxivtection | min_k | - | base auc .84, fsd auc .91
EleutherAI/pythia-6.9b | arxivtection | min_k | - | base tpr_at_5fpr .41, fsd tpr_at_5fpr .35
huggyllama/llama-7b | arxivtection | min_k | - | base auc .76, fsd auc .86, base tpr_at_5fpr .24, fsd tpr_at_5fpr .45
EleutherAI/gpt-neox-20b | arxivtection | min_k | - | base auc .85, fsd auc .91
EleutherAI/gpt-neox-20b | arxivtection | min_k | - | base tpr_at_5fpr .40, fsd tpr_at_5fpr .58
"""
"""Printed in FSD (arXiv 2410.10880), Table 1 and Table 11; see `spec.numbers`."""

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
    aliases=("fsd-t11",),
    note="At the small scale the second model is the target's twin, pretrained without members: its AUC should be .5.",
    paper=numbers(PAPER),
)
