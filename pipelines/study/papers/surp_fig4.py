"""SURP, Figure 4: AUC over the entropy threshold ε_e and the percentile k."""

from itertools import product

from pipelines.study.spec import Detection, Study

ENTROPIES = tuple(step / 2 for step in range(1, 21))
PERCENTILES = tuple(range(10, 101, 10))

STUDY = Study(
    place="SURP, Figure 4",
    title="How much do ε_e and k matter to SURP?",
    detectors=tuple(
        Detection("surp", {"entropy": entropy, "k": float(k)}) for entropy, k in product(ENTROPIES, PERCENTILES)
    ),
    rows=("entropy",),
    columns=("k",),
    states=("base",),
    figure="heat map",
    x="k",
    y="entropy",
    settings={"data.data": ("wikimia:128",)},
    note="The best cell was found on the texts it is shown for; pipelines.tune holds texts out for that.",
)
