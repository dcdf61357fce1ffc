"""SURP paper (arXiv 2407.21248), Table 3: seven domains of MIMIR."""

from fsd.data.benchmarks import mimir
from pipelines.study.spec import SMALL_FIELDS, Study, data_axis, with_defaults

STUDY = Study(
    place="SURP, Table 3",
    title="Do surprising tokens reveal members in the domains of the Pile?",
    axes=(data_axis(*(f"mimir:{domain}" for domain in mimir.DOMAINS), small=SMALL_FIELDS),),
    detectors=with_defaults("loss", "lowercase", "zlib", "min_k", "min_k_pp", "surp"),
    columns=("data",),
    states=("base",),
    note="At the small scale the domains are fields of the embedded corpus, of about 80 to 130 texts each.",
)
