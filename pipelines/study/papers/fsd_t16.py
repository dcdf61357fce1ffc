"""FSD paper (arXiv 2410.10880), Table 16: learning rate, rank and epochs, varied one at a time around the defaults."""

from pipelines.study.spec import Study, numbers, vary, with_defaults

PAPER = """
huggyllama/llama-7b | wikimia | perplexity | - | base auc .64
huggyllama/llama-7b | wikimia | perplexity | learning rate 1e-05 | fsd auc .81
huggyllama/llama-7b | wikimia | perplexity | learning rate 0.0001 | fsd auc .84
huggyllama/llama-7b | wikimia | perplexity | learning rate 0.001 | fsd auc .92
huggyllama/llama-7b | wikimia | perplexity | rank 8 | fsd auc .92
huggyllama/llama-7b | wikimia | perplexity | rank 16 | fsd auc .92
huggyllama/llama-7b | wikimia | perplexity | rank 32 | fsd auc .92
huggyllama/llama-7b | wikimia | perplexity | epochs 1 | fsd auc .91
huggyllama/llama-7b | wikimia | perplexity | epochs 2 | fsd auc .91
huggyllama/llama-7b | wikimia | perplexity | epochs 3 | fsd auc .92
huggyllama/llama-7b | wikimia | lowercase | - | base auc .58
huggyllama/llama-7b | wikimia | lowercase | learning rate 1e-05 | fsd auc .60
huggyllama/llama-7b | wikimia | lowercase | learning rate 0.0001 | fsd auc .64
huggyllama/llama-7b | wikimia | lowercase | learning rate 0.001 | fsd auc .69
huggyllama/llama-7b | wikimia | lowercase | rank 8 | fsd auc .69
huggyllama/llama-7b | wikimia | lowercase | rank 16 | fsd auc .68
huggyllama/llama-7b | wikimia | lowercase | rank 32 | fsd auc .69
huggyllama/llama-7b | wikimia | lowercase | epochs 1 | fsd auc .65
huggyllama/llama-7b | wikimia | lowercase | epochs 2 | fsd auc .64
huggyllama/llama-7b | wikimia | lowercase | epochs 3 | fsd auc .69
huggyllama/llama-7b | wikimia | zlib | - | base auc .62
huggyllama/llama-7b | wikimia | zlib | learning rate 1e-05 | fsd auc .73
huggyllama/llama-7b | wikimia | zlib | learning rate 0.0001 | fsd auc .78
huggyllama/llama-7b | wikimia | zlib | learning rate 0.001 | fsd auc .90
huggyllama/llama-7b | wikimia | zlib | rank 8 | fsd auc .91
huggyllama/llama-7b | wikimia | zlib | rank 16 | fsd auc .90
huggyllama/llama-7b | wikimia | zlib | rank 32 | fsd auc .90
huggyllama/llama-7b | wikimia | zlib | epochs 1 | fsd auc .87
huggyllama/llama-7b | wikimia | zlib | epochs 2 | fsd auc .87
huggyllama/llama-7b | wikimia | zlib | epochs 3 | fsd auc .90
huggyllama/llama-7b | wikimia | min_k | - | base auc .65
huggyllama/llama-7b | wikimia | min_k | learning rate 1e-05 | fsd auc .76
huggyllama/llama-7b | wikimia | min_k | learning rate 0.0001 | fsd auc .81
huggyllama/llama-7b | wikimia | min_k | learning rate 0.001 | fsd auc .85
huggyllama/llama-7b | wikimia | min_k | rank 8 | fsd auc .87
huggyllama/llama-7b | wikimia | min_k | rank 16 | fsd auc .85
huggyllama/llama-7b | wikimia | min_k | rank 32 | fsd auc .86
huggyllama/llama-7b | wikimia | min_k | epochs 1 | fsd auc .86
huggyllama/llama-7b | wikimia | min_k | epochs 2 | fsd auc .87
huggyllama/llama-7b | wikimia | min_k | epochs 3 | fsd auc .86
"""
"""Printed in FSD (arXiv 2410.10880), Table 16; see `spec.numbers`."""

STUDY = Study(
    place="FSD, Table 16",
    title="How much do learning rate, rank and epochs matter?",
    axes=(
        vary("learning rate", "training.learning_rate", (1e-5, 1e-4, 1e-3)),
        vary("rank", "training.rank", (8, 16, 32)),
        vary("epochs", "training.epochs", (1, 2, 3)),
    ),
    one_at_a_time=True,
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    rows=("setting",),
    columns=("state", "detector"),
    model="huggyllama/llama-7b",
    settings={"data.data": ("wikimia",)},
    note="One setting is varied at a time; the defaults are learning rate 0.001, rank 16 and 3 epochs.",
    paper=numbers(PAPER),
)
