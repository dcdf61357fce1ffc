"""FSD paper (arXiv 2410.10880), Table 2: model size within one family."""

from pipelines.study.spec import Study, model_axis, with_defaults

STUDY = Study(
    place="FSD, Table 2",
    title="Does FSD depend on model size?",
    axes=(model_axis("huggyllama/llama-7b", "huggyllama/llama-13b", "huggyllama/llama-30b"),),
    detectors=with_defaults("perplexity", "lowercase", "zlib", "min_k"),
    columns=("model", "state"),
    settings={"data.data": ("wikimia",)},
    note="Only one model size is embedded: at the small scale the models are the target and its twin, pretrained "
    "without members.",
)
