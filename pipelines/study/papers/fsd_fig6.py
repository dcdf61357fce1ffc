"""FSD paper (arXiv 2410.10880), Figure 6: number of unseen texts, on a subset of the Pile."""

from dataclasses import replace

from pipelines.study.papers import fsd_fig4
from pipelines.study.spec import numbers, vary

PAPER = """
EleutherAI/pythia-6.9b | pile:bookcorpus2 | zlib | 0 | base auc .48
EleutherAI/pythia-6.9b | pile:bookcorpus2 | zlib | 100 | fsd auc .78
"""
"""Printed in FSD (arXiv 2410.10880), prose on Figure 6; see `spec.numbers`."""

STUDY = replace(
    fsd_fig4.STUDY,
    place="FSD, Figure 6",
    title="How many unseen texts does FSD need where members and non-members are from the same period?",
    axes=(vary("unseen texts", "texts.unseen_count", (0, 100, 200, 300, 400, 500), (0, 10, 20, 40, 60)),),
    model="EleutherAI/pythia-6.9b",
    settings={"data.data": ("pile:bookcorpus2",), "data.unseen": 0.55},
    note=f"{fsd_fig4.STUDY.note} The figure goes from 0 to 500 texts; its steps are not printed.",
    paper=numbers(PAPER),
)
