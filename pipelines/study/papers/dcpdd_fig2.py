"""DC-PDD, Figure 2: what each part of the method adds."""

from pipelines.study.spec import Detection, Study

STUDY = Study(
    place="DC-PDD, Figure 2",
    title="What do the cap (LUP) and the first occurrences (SFO) add to the calibration alone (CLD)?",
    detectors=(
        Detection("dc_pdd", {"limit": False, "first": False}, "CLD"),
        Detection("dc_pdd", {"limit": True, "first": False}, "CLD + LUP"),
        Detection("dc_pdd", {"limit": True, "first": True}, "CLD + LUP + SFO"),
    ),
    columns=("metric",),
    metrics=("auc", "tpr_at_5fpr"),
    states=("base",),
    settings={"data.data": ("wikimia:128",)},
    needs="--frequencies (pipelines.frequencies)",
)
