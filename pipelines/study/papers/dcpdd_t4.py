"""DC-PDD, Table 4: does it matter which corpus the token frequencies are from?"""

from pipelines.study.spec import FREQUENCIES, Axis, Study, plain

STUDY = Study(
    place="DC-PDD, Table 4",
    title="Does the reference corpus of the token frequencies matter?",
    axes=(
        Axis(
            FREQUENCIES,
            {},
            {
                "the target's background": {},
                "manual of matplotlib": {"model.frequencies": "docstrings:matplotlib"},
                "manual of pandas": {"model.frequencies": "docstrings:pandas"},
            },
        ),
    ),
    detectors=plain("dc_pdd"),
    rows=("frequencies",),
    columns=("metric",),
    metrics=("auc", "tpr_at_5fpr"),
    states=("base",),
    settings={"data.data": ("wikimia:128",)},
    needs="--frequencies, one table a corpus (pipelines.frequencies)",
)
