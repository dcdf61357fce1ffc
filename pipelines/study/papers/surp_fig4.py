"""SURP paper (arXiv 2407.21248), Figure 4: AUC by entropy threshold ε_e and percentile k."""

from itertools import product

from pipelines.study.spec import DetectorSpec, Study, numbers

ENTROPIES = tuple(step / 2 for step in range(1, 21))
PERCENTILES = tuple(range(10, 101, 10))

PAPER = """
allenai/OLMo-7B | dolma_book:middle | surp | surp entropy 2.5 k 100.0 | base auc .52
allenai/OLMo-7B | dolma_book:middle | surp | surp entropy 10.0 k 10.0 | base auc .56
"""
"""Printed in SURP (arXiv 2407.21248), Figure 4; see `spec.numbers`."""

STUDY = Study(
    place="SURP, Figure 4",
    title="How sensitive is SURP to ε_e and k?",
    detectors=tuple(
        DetectorSpec("surp", {"entropy": entropy, "k": float(k)}) for entropy, k in product(ENTROPIES, PERCENTILES)
    ),
    rows=("entropy",),
    columns=("k",),
    states=("base",),
    figure="heat map",
    x="k",
    y="entropy",
    settings={"data.data": ("wikimia:128",)},
    note="The best cell is chosen on the tested texts themselves; pipelines.tune chooses on held-out texts.",
    paper=numbers(PAPER),
)
