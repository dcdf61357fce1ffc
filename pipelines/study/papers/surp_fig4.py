"""SURP paper (arXiv 2407.21248), Figure 4: AUC by entropy threshold ε_e and percentile k."""

from pipelines.study.spec import SURP_GRID, DetectorSpec, Study, numbers

PAPER = """
allenai/OLMo-7B | dolma_book:middle | surp | surp entropy 2.5 k 100.0 | base auc .52
allenai/OLMo-7B | dolma_book:middle | surp | surp entropy 10.0 k 10.0 | base auc .56
"""
"""Printed in SURP (arXiv 2407.21248), Figure 4; see `spec.numbers`."""

STUDY = Study(
    place="SURP, Figure 4",
    title="How sensitive is SURP to ε_e and k?",
    detectors=tuple(DetectorSpec("surp", settings) for settings in SURP_GRID),
    rows=("entropy",),
    columns=("k",),
    states=("base",),
    figure="heat map",
    x="k",
    y="entropy",
    model="allenai/OLMo-7B-hf",
    needs="--data dolma_book:MEMBERS,NONMEMBERS,middle (two files, see docs/benchmarks.md)",
    note="The best cell is chosen on the tested texts themselves; pipelines.tune chooses on held-out texts.",
    paper=numbers(PAPER),
)
