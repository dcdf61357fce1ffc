"""DC-PDD paper (arXiv 2409.14781), Table 4: reference corpus of the token frequencies."""

from pipelines.study.spec import FREQUENCIES, Axis, Study, with_defaults

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
    detectors=with_defaults("dc_pdd"),
    rows=("frequencies",),
    columns=("metric",),
    metrics=("auc", "tpr_at_5fpr"),
    states=("base",),
    model="EleutherAI/pythia-6.9b",
    settings={"data.data": ("wikimia:128",)},
    needs="--frequencies, one table per corpus (pipelines.frequencies)",
)
