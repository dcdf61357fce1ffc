"""DC-PDD paper (arXiv 2409.14781), Table 5: the cap a."""

from pipelines.study.spec import DetectorSpec, Study

STUDY = Study(
    place="DC-PDD, Table 5",
    title="How sensitive is DC-PDD to the cap a?",
    detectors=tuple(DetectorSpec("dc_pdd", {"cap": cap}, f"a = {cap:g}") for cap in (1e-3, 1e-2, 1e-1, 1.0, 10.0)),
    columns=("metric",),
    metrics=("auc", "tpr_at_5fpr"),
    states=("base",),
    figure="curve",
    x="cap",
    settings={"data.data": ("wikimia:128",)},
    needs="--frequencies (pipelines.frequencies)",
    note="The best cap is chosen on the tested texts themselves; pipelines.tune chooses on held-out texts.",
)
