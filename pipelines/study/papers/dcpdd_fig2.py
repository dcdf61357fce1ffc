"""DC-PDD paper (arXiv 2409.14781), Figure 2: contribution of each part of the method."""

from pipelines.study.spec import DetectorSpec, Study

STUDY = Study(
    place="DC-PDD, Figure 2",
    title="What do the cap (LUP) and the first occurrences (SFO) add to the calibration alone (CLD)?",
    detectors=(
        DetectorSpec("dc_pdd", {"limit": False, "first": False}, "CLD"),
        DetectorSpec("dc_pdd", {"limit": True, "first": False}, "CLD + LUP"),
        DetectorSpec("dc_pdd", {"limit": True, "first": True}, "CLD + LUP + SFO"),
    ),
    columns=("metric",),
    metrics=("auc", "tpr_at_5fpr"),
    states=("base",),
    settings={"data.data": ("wikimia:128",)},
    needs="--frequencies (pipelines.frequencies)",
)
