"""DC-PDD paper (arXiv 2409.14781), Table 5: the cap a."""

from pipelines.study.spec import DetectorSpec, Study, model_axis, numbers

PAPER = """
Baichuan-13B | patentmia | dc_pdd | a = 0.001 | base auc .645
Baichuan-13B | patentmia | dc_pdd | a = 0.01 | base auc .699
Baichuan-13B | patentmia | dc_pdd | a = 0.1 | base auc .664
Baichuan-13B | patentmia | dc_pdd | a = 1 | base auc .647
Baichuan-13B | patentmia | dc_pdd | a = 10 | base auc .645
Qwen/Qwen1.5-14B | patentmia | dc_pdd | a = 0.001 | base auc .640
Qwen/Qwen1.5-14B | patentmia | dc_pdd | a = 0.01 | base auc .689
Qwen/Qwen1.5-14B | patentmia | dc_pdd | a = 0.1 | base auc .652
Qwen/Qwen1.5-14B | patentmia | dc_pdd | a = 1 | base auc .623
Qwen/Qwen1.5-14B | patentmia | dc_pdd | a = 10 | base auc .619
GPT-3 | bookmia | dc_pdd | a = 0.001 | base auc .673
GPT-3 | bookmia | dc_pdd | a = 0.01 | base auc .676
GPT-3 | bookmia | dc_pdd | a = 0.1 | base auc .665
GPT-3 | bookmia | dc_pdd | a = 1 | base auc .667
GPT-3 | bookmia | dc_pdd | a = 10 | base auc .725
"""
"""Printed in DC-PDD (arXiv 2409.14781), Table 5; see `spec.numbers`."""

STUDY = Study(
    place="DC-PDD, Table 5",
    title="How sensitive is DC-PDD to the cap a?",
    axes=(model_axis("Qwen/Qwen1.5-14B"),),
    detectors=tuple(DetectorSpec("dc_pdd", {"cap": cap}, f"a = {cap:g}") for cap in (1e-3, 1e-2, 1e-1, 1.0, 10.0)),
    columns=("model", "metric"),
    metrics=("auc", "tpr_at_5fpr"),
    states=("base",),
    figure="curve",
    x="cap",
    needs="--data patentmia:FILE or bookmia, and --frequencies, one for each model (pipelines.frequencies)",
    note="The paper has three pairs of model and texts; Baichuan-13B on PatentMIA and GPT-3 on BookMIA cannot be run: "
    "one needs code from its repository, the other is no longer served. "
    "The best cap is chosen on the tested texts themselves; pipelines.tune chooses on held-out texts.",
    paper=numbers(PAPER),
)
