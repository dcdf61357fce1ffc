"""SURP, Table 3: seven domains of MIMIR."""

from fsd.data.benchmarks import mimir
from pipelines.study.spec import Study, of_data, plain

FIELDS = ("embedded:cs,eess", "embedded:math,stat", "embedded:q-bio,econ", "embedded:physics,cond-mat,astro-ph")

STUDY = Study(
    place="SURP, Table 3",
    title="Do surprising tokens tell members apart in the domains of the Pile?",
    axes=(of_data(*(f"mimir:{domain}" for domain in mimir.DOMAINS), small=FIELDS),),
    detectors=plain("loss", "lowercase", "zlib", "min_k", "min_k_pp", "surp"),
    columns=("data",),
    states=("base",),
    note="In the small form the domains are fields of the embedded corpus, of about 80 to 130 texts each.",
)
