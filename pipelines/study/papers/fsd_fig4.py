"""FSD paper (arXiv 2410.10880), Figure 4: number of unseen texts."""

from pipelines.study.spec import Study, numbers, vary, with_defaults

PAPER = """
huggyllama/llama-7b | wikimia | perplexity | 0 | base auc .63
huggyllama/llama-7b | wikimia | perplexity | 100 | fsd auc .91
"""
"""Printed in FSD (arXiv 2410.10880), Figure 4; see `spec.numbers`."""

STUDY = Study(
    place="FSD, Figure 4",
    title="How many unseen texts does FSD need?",
    axes=(vary("unseen texts", "texts.unseen_count", (0, 30, 50, 100, 150, 200, 250, 300), (0, 10, 20, 40, 60)),),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    rows=("unseen texts",),
    columns=("metric", "detector"),
    states=("fsd",),
    metrics=("auc", "tpr_at_5fpr"),
    figure="curve",
    x="unseen texts",
    model="huggyllama/llama-7b",
    settings={"data.data": ("wikimia",), "data.unseen": 0.45},
    small_settings={"data.unseen": 0.3},
    note="At 0 texts nothing is trained and the base score is shown. Smaller sets are subsets of larger ones.",
    paper=numbers(PAPER),
)
