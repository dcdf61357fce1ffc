"""FSD, Table 14: subsets of the Pile, where members and non-members are of one time."""

from fsd.data.benchmarks import pile
from pipelines.study.spec import Study, of_data, plain

FIELDS = ("embedded:cs,eess", "embedded:math,stat", "embedded:q-bio,econ", "embedded:physics,cond-mat,astro-ph")

STUDY = Study(
    place="FSD, Table 14",
    title="Does FSD help where members and non-members do not differ in time?",
    axes=(of_data(*(f"pile:{part}" for part in pile.PARTS), small=FIELDS),),
    detectors=plain("perplexity", "lowercase", "zlib", "min_k"),
    rows=("data",),
    columns=("detector", "state"),
    note="In the small form the subsets are fields of the embedded corpus, of about 80 to 130 texts each.",
)
