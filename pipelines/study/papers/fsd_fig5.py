"""FSD paper (arXiv 2410.10880), Figure 5: score distributions on ArXivTection, otherwise as Figures 2 and 3."""

from dataclasses import replace

from pipelines.study.papers import fsd_fig2

STUDY = replace(
    fsd_fig2.STUDY,
    place="FSD, Figure 5",
    title="How are the scores distributed on ArXivTection before fine-tuning, and how is FSD?",
    settings={"data.data": ("arxivtection",)},
    aliases=(),
)
