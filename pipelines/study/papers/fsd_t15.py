"""FSD paper (arXiv 2410.10880), Table 15: unseen texts of the tested domain, of two domains and of another one."""

from pipelines.study.spec import DATA, Axis, Study, numbers, vary, with_defaults

PAPER = """
huggyllama/llama-7b | wikimia | perplexity | - | base auc .64
huggyllama/llama-7b | wikimia | perplexity | both domains | fsd auc .91
huggyllama/llama-7b | arxivtection | perplexity | - | base auc .68
huggyllama/llama-7b | arxivtection | perplexity | both domains | fsd auc .93
huggyllama/llama-7b | arxivtection | perplexity | other domain | fsd auc .52
huggyllama/llama-7b | wikimia | lowercase | - | base auc .58
huggyllama/llama-7b | wikimia | lowercase | both domains | fsd auc .73
huggyllama/llama-7b | arxivtection | lowercase | - | base auc .50
huggyllama/llama-7b | arxivtection | lowercase | both domains | fsd auc .73
huggyllama/llama-7b | arxivtection | lowercase | other domain | fsd auc .50
huggyllama/llama-7b | wikimia | zlib | - | base auc .62
huggyllama/llama-7b | wikimia | zlib | both domains | fsd auc .91
huggyllama/llama-7b | arxivtection | zlib | - | base auc .57
huggyllama/llama-7b | arxivtection | zlib | both domains | fsd auc .92
huggyllama/llama-7b | arxivtection | zlib | other domain | fsd auc .64
huggyllama/llama-7b | wikimia | min_k | - | base auc .65
huggyllama/llama-7b | wikimia | min_k | both domains | fsd auc .84
huggyllama/llama-7b | arxivtection | min_k | - | base auc .76
huggyllama/llama-7b | arxivtection | min_k | both domains | fsd auc .87
huggyllama/llama-7b | arxivtection | min_k | other domain | fsd auc .61
"""
"""Printed in FSD (arXiv 2410.10880), Table 15; see `spec.numbers`."""


def _each_beside_the_other(first: str, second: str) -> dict[str, dict[str, tuple[str, ...]]]:
    return {a: {"data.data": (a,), "texts.other": (b,)} for a, b in ((first, second), (second, first))}


STUDY = Study(
    place="FSD, Table 15",
    title="Must the fine-tuning texts be from the domain of the tested texts?",
    axes=(
        Axis(
            DATA,
            _each_beside_the_other("wikimia", "arxivtection"),
            _each_beside_the_other("embedded:cs,eess,stat,math", "embedded:q-bio,econ,physics,cond-mat"),
        ),
        vary("trained on", "texts.unseen_from", {"own domain": "own", "both domains": "both", "other domain": "other"}),
    ),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("data", "trained on", "state"),
    model="huggyllama/llama-7b",
    needs="with --data also --other, a labelled benchmark of another domain",
    note="The unseen texts of each domain are those of its own split; together they are more than either. The paper "
    "omits fine-tuning on texts of the own domain, which is in its Table 1, and on ArXivTection for WikiMIA.",
    paper=numbers(PAPER),
)
