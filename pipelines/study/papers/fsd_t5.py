"""FSD paper (arXiv 2410.10880), Tables 5 and 13: effect of timestamps in the texts."""

from pipelines.study.spec import Study, numbers, vary, with_defaults

PAPER = """
huggyllama/llama-7b | wikimia | perplexity | kept | base auc .64, fsd auc .92
huggyllama/llama-7b | wikimia | perplexity | kept | base tpr_at_5fpr .09, fsd tpr_at_5fpr .41
huggyllama/llama-7b | wikimia | perplexity | deleted | base auc .62, fsd auc .76
huggyllama/llama-7b | wikimia | perplexity | deleted | base tpr_at_5fpr .13, fsd tpr_at_5fpr .23
huggyllama/llama-7b | wikimia | perplexity | replaced by 2023 | base auc .54, fsd auc .71
huggyllama/llama-7b | wikimia | perplexity | replaced by 2023 | base tpr_at_5fpr .04, fsd tpr_at_5fpr .12
huggyllama/llama-7b | wikimia | lowercase | kept | base auc .58, fsd auc .69
huggyllama/llama-7b | wikimia | lowercase | kept | base tpr_at_5fpr .10, fsd tpr_at_5fpr .18
huggyllama/llama-7b | wikimia | lowercase | deleted | base auc .58, fsd auc .62
huggyllama/llama-7b | wikimia | lowercase | deleted | base tpr_at_5fpr .06, fsd tpr_at_5fpr .13
huggyllama/llama-7b | wikimia | lowercase | replaced by 2023 | base auc .52, fsd auc .63
huggyllama/llama-7b | wikimia | lowercase | replaced by 2023 | base tpr_at_5fpr .03, fsd tpr_at_5fpr .15
huggyllama/llama-7b | wikimia | zlib | kept | base auc .62, fsd auc .90, base tpr_at_5fpr .09, fsd tpr_at_5fpr .47
huggyllama/llama-7b | wikimia | zlib | deleted | base auc .58, fsd auc .72, base tpr_at_5fpr .12, fsd tpr_at_5fpr .23
huggyllama/llama-7b | wikimia | zlib | replaced by 2023 | base auc .55, fsd auc .68
huggyllama/llama-7b | wikimia | zlib | replaced by 2023 | base tpr_at_5fpr .09, fsd tpr_at_5fpr .06
huggyllama/llama-7b | wikimia | min_k | kept | base auc .65, fsd auc .85, base tpr_at_5fpr .15, fsd tpr_at_5fpr .25
huggyllama/llama-7b | wikimia | min_k | deleted | base auc .61, fsd auc .69, base tpr_at_5fpr .10, fsd tpr_at_5fpr .14
huggyllama/llama-7b | wikimia | min_k | replaced by 2023 | base auc .54, fsd auc .67
huggyllama/llama-7b | wikimia | min_k | replaced by 2023 | base tpr_at_5fpr .04, fsd tpr_at_5fpr .07
"""
"""Printed in FSD (arXiv 2410.10880), Table 5 and Table 13; see `spec.numbers`."""

STUDY = Study(
    place="FSD, Tables 5 and 13",
    title="How much of the AUC remains when timestamps are deleted or replaced by the same year?",
    axes=(
        vary("timestamps", "texts.timestamps", {"kept": "keep", "deleted": "delete", "replaced by 2023": "replace"}),
    ),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("timestamps", "metric", "state"),
    metrics=("auc", "tpr_at_5fpr"),
    model="huggyllama/llama-7b",
    settings={"data.data": ("wikimia",)},
    small_settings={"data.data": ("embedded:dated",)},
    aliases=("fsd-t13",),
    note="The embedded texts contain no dates: at the small scale each is preceded by a date, that of a non-member "
    "being later than those of all members.",
    paper=numbers(PAPER),
)
