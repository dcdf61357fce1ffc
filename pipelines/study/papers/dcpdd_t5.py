"""DC-PDD, Table 5: the cap a."""

from pipelines.study.spec import Detection, Study

STUDY = Study(
    place="DC-PDD, Table 5",
    title="How much does the cap a matter to DC-PDD?",
    detectors=tuple(Detection("dc_pdd", {"cap": cap}, f"a = {cap:g}") for cap in (1e-3, 1e-2, 1e-1, 1.0, 10.0)),
    columns=("metric",),
    metrics=("auc", "tpr_at_5fpr"),
    states=("base",),
    figure="curve",
    x="cap",
    settings={"data.data": ("wikimia:128",)},
    needs="--frequencies (pipelines.frequencies)",
    note="The best cap was found on the texts it is shown for; pipelines.tune holds texts out for that.",
)
