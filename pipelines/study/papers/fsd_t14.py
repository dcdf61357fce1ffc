"""FSD paper (arXiv 2410.10880), Table 14: subsets of the Pile, members and non-members from the same period."""

from fsd.data.benchmarks import pile
from pipelines.study.spec import SMALL_FIELDS, Study, data_axis, with_defaults

STUDY = Study(
    place="FSD, Table 14",
    title="Does FSD help where members and non-members are from the same period?",
    axes=(data_axis(*(f"pile:{part}" for part in pile.PARTS), small=SMALL_FIELDS),),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    rows=("data",),
    columns=("detector", "state"),
    note="At the small scale the subsets are fields of the embedded corpus, of about 80 to 130 texts each.",
)
